"""A Publisher of each kind, new for every test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from itertools import count

import pytest

from conftest import DatabaseFactory
from support.embedded_postgres import PostgresServer
from support.mariadb import MariaDbServer
from support.publishers import (
    PublisherSite,
    mariadb_under_test,
    partitioned_under_test,
    postgres_under_test,
    publishing_mariadb,
)

KINDS = (
    *("postgres", "partitioned", "mariadb"),
    *(pytest.param(it, marks=pytest.mark.slow) for it in ("mariadb-11.8", "mysql-9.7")),
)
"""`partitioned`: PostgreSQL 15, where each table is partitioned."""


@pytest.fixture(scope="session")
def publishing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], MariaDbServer]]:
    """Return servers that can publish, by name, each started when it is first asked for."""
    with ExitStack() as stack:
        yield cache(lambda name: stack.enter_context(publishing_mariadb(tmp_path_factory.mktemp("publishing"), name)))


_numbers = count(1)


def _database(server: MariaDbServer) -> str:
    name = f"publisher{next(_numbers)}"
    server.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    return name


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, database: DatabaseFactory) -> PublisherSite:
    """Return a site for every kind of database that a Publisher may be in."""
    match request.param:
        case "postgres":
            return PublisherSite(postgres_under_test(database("publisher")))
        case "partitioned":
            server: PostgresServer = request.getfixturevalue("debian_postgres")
            return PublisherSite(partitioned_under_test(database("publisher", server)))
        case name:
            home: MariaDbServer = request.getfixturevalue("publishing")(name)
            return PublisherSite(mariadb_under_test(home, _database(home)))
