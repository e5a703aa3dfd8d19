"""The three databases of a publication, and the environment that tells jobs where they are."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from urllib.parse import quote

import sqlalchemy as sa

from support.embedded_postgres import PostgresServer
from tranrepl.connections import Connection, variable_name
from tranrepl.distributor.database import DistributionDatabase

_ROLES = ("publisher", "subscriber", "distribution")


@dataclass(frozen=True, slots=True)
class Databases:
    """Publisher, Subscriber and distribution database; each one's connection id is its role's name."""

    publisher: Connection
    subscriber: Connection
    distribution: Connection

    @property
    def environment(self) -> dict[str, str]:
        """`AIRFLOW_CONN_<ID>` of all three."""
        return connection_environment([self.publisher, self.subscriber, self.distribution])

    @property
    def uris(self) -> dict[str, str]:
        """The same, as URIs, which psql takes too."""
        return {
            variable_name(it.connection_id): _as_uri(it) for it in (self.publisher, self.subscriber, self.distribution)
        }


def create_databases(server: PostgresServer) -> Databases:
    """Create the three on one server, under their roles' names."""
    for role in _ROLES:
        server.create_database(role)
    return existing_databases(server)


@contextmanager
def shared_databases(server: PostgresServer, name: str) -> Iterator[Databases]:
    """Create the three for tests that share them; dropped afterwards, with their replication slots."""
    names = {role: f"{role}_{name}" for role in _ROLES}
    for role, database in names.items():
        template = migrated_template if role == "distribution" else empty_template
        server.create_database(database, template(server))
    try:
        yield Databases(*(server.connection(database, role) for role, database in names.items()))
    finally:
        for database in names.values():
            server.drop_database(database)


@cache
def empty_template(server: PostgresServer) -> str:
    """Return a database whose copies have the file that a session writes at its start, so that no session has to."""
    name = "empty_template"
    server.create_database(name)
    server.connect(name).close()
    return name


@cache
def migrated_template(server: PostgresServer) -> str:
    """Return a distribution database that has its schema already, so that `set_up` need not make it for every test."""
    name = "migrated_template"
    server.create_database(name)
    with DistributionDatabase(server.connection(name)) as template:
        template.migrate()
    return name


def sqlalchemy_url(connection: Connection) -> sa.URL:
    """Return the URL by which SQLAlchemy connects to one of them."""
    return sa.URL.create(
        "postgresql+psycopg",
        connection.login,
        connection.password,
        connection.host,
        connection.port,
        connection.database,
        dict(connection.options),
    )


def existing_databases(server: PostgresServer) -> Databases:
    """Return the three that `create_databases` made."""
    return Databases(*(server.connection(role) for role in _ROLES))


def connection_environment(connections: Iterable[Connection]) -> dict[str, str]:
    """Return the variables from which Airflow and the shell read connections."""
    return {variable_name(connection.connection_id): _as_json(connection) for connection in connections}


def _as_uri(connection: Connection) -> str:
    login, password = quote(connection.login or "", safe=""), quote(connection.password or "", safe="")
    return f"postgres://{login}:{password}@{connection.host}:{connection.port}/{connection.database}"


def _as_json(connection: Connection) -> str:
    return json.dumps(
        {
            "conn_type": connection.kind,
            "host": connection.host,
            "port": connection.port,
            "login": connection.login,
            "password": connection.password,
            "schema": connection.database,
            "extra": dict(connection.options),
        }
    )
