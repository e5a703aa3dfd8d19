"""A PostgreSQL Publisher whose log announces schema changes, and what it announces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import psycopg

from support.ddl_commands import TABLES
from support.embedded_postgres import PostgresServer
from support.kept_sessions import kept_sessions
from support.least_rights import with_login
from support.site import execute
from tranrepl.connections import Connection
from tranrepl.postgres.session import connect
from tranrepl.publisher.postgres.schema_change_setup import SchemaChangeSetup
from tranrepl.publisher.postgres.schema_messages import read_content

Told = Mapping[str, Any]
PUBLICATION = "tranrepl_test"
_MESSAGES = """
SELECT data FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, 'proto_version', '1',
                                                    'publication_names', %s, 'messages', 'true')
"""


@dataclass(slots=True)
class Announcing:
    """A database of its own, with `TABLES`, of which `orders` and `event` are published."""

    connection: Connection
    notices: list[str] = field(default_factory=list)
    """What the server said to sessions of users."""

    @property
    def _slot(self) -> str:
        return f"announced_{self.connection.database}"

    def create(self, tables: tuple[str, ...] = TABLES, published: str = "orders, event") -> Announcing:
        execute(
            self.connection,
            *tables,
            f"CREATE PUBLICATION {PUBLICATION} FOR TABLE {published}",
        )
        self.keep_log()
        return self

    def keep_log(self) -> None:
        self.execute(f"SELECT pg_create_logical_replication_slot('{self._slot}', 'pgoutput')")

    def drop_log(self) -> None:
        self.execute(f"SELECT pg_drop_replication_slot('{self._slot}')")

    def set_up(self, connection: Connection | None = None) -> list[str]:
        """Run the part of setup that is for schema changes."""
        with self.setup(connection) as setup:
            return setup.set_up()

    @contextmanager
    def setup(self, connection: Connection | None = None) -> Iterator[SchemaChangeSetup]:
        with connect(connection or self.connection, "tranrepl setup", autocommit=True) as session:
            yield SchemaChangeSetup(session, PUBLICATION)

    @contextmanager
    def user(self, connection: Connection | None = None) -> Iterator[psycopg.Connection[Any]]:
        """Yield a session that executes each command by itself."""
        parameters: dict[str, Any] = dict((connection or self.connection).libpq_parameters("user"))
        with psycopg.connect(**parameters, autocommit=True) as session:
            session.add_notice_handler(lambda notice: self.notices.append(notice.message_primary or ""))
            yield session

    def server_version(self) -> int:
        with self.user() as session:
            return session.info.server_version

    def execute(self, *commands: str) -> None:
        execute(self.connection, *commands)

    def warnings(self) -> list[str]:
        """Return the warnings that sessions got from our event triggers."""
        return [it for it in self.notices if it.startswith("tranrepl")]

    def told(self) -> list[Told]:
        """Return the announcements since the log was last read, without the pads; columns that are not announced are
        left out.
        """
        found = [read_content(it) for it in self.messages()]
        return [{key: value for key, value in it.items() if value is not None} for it in found]

    def messages(self) -> list[bytes]:
        """Return the contents of our messages since the log was last read, without the pads."""
        found = [_content(it) for it in self._read() if it[:1] == b"M"]
        return [it for it in found if it is not None]

    def kinds(self) -> list[str]:
        """Return the kinds of messages in the log since it was last read."""
        return [chr(it[0]) for it in self._read()]

    def _read(self) -> list[bytes]:
        with psycopg.connect(**_parameters(self.connection), autocommit=True) as session:
            return [bytes(data) for (data,) in session.execute(_MESSAGES, [self._slot, PUBLICATION])]

    def told_of(self, *commands: str) -> list[Told]:
        self.told()
        self.execute(*commands)
        return self.told()


@cache
def announcing_template(server: PostgresServer) -> str:
    """Return a database with `TABLES` for which the part of setup that is for schema changes was run: copies need only
    their slot, by `keep_log`."""
    name = "announcing_template"
    server.create_database(name)
    site = Announcing(server.connection(name)).create()
    site.set_up()
    site.drop_log()
    return name


@contextmanager
def announcing(server: PostgresServer, name: str) -> Iterator[Announcing]:
    """Yield a copy of `announcing_template` for tests that share it."""
    database = f"announcing_{name}"
    server.create_database(database, announcing_template(server))
    site = Announcing(server.connection(database))
    try:
        with kept_sessions():
            site.keep_log()
            yield site
    finally:
        server.drop_database(database)


def owned_by(site: Announcing, login: str, password: str) -> Connection:
    """Make a login that owns the tables and types and has no other right; return its connection."""
    tables, types = ("orders", "event", "event_1", "aside"), ("TYPE mood", "TYPE pair", "DOMAIN amount")
    database = site.connection.database
    site.execute(
        f"CREATE ROLE {login} LOGIN PASSWORD '{password}'",
        *(f"ALTER TABLE {it} OWNER TO {login}" for it in tables),
        *(f"ALTER {it} OWNER TO {login}" for it in types),
        f"GRANT CREATE ON SCHEMA public TO {login}",
        f'GRANT CREATE ON DATABASE "{database}" TO {login}',
    )
    return with_login(site.connection, login, password)


def signed(kind: str, text: str) -> str:
    """Return the statement by which who may read the secret writes a message of ours."""
    signed = f"convert_to(concat('tranrepl.{kind} ', pg_current_xact_id()::xid, ' ', {text}), getdatabaseencoding())"
    signature = f"encode(sha256(outer_key || sha256(inner_key || {signed})), 'hex')"
    return (
        f"SELECT pg_logical_emit_message(true, 'tranrepl.{kind}', {signature} || {text}) FROM tranrepl.message_secret"
    )


def _parameters(connection: Connection) -> dict[str, Any]:
    return dict(connection.libpq_parameters("test"))


def _content(message: bytes) -> bytes | None:
    """Return the text of a message `M` of ours, which begins with kind, flags and position, behind its length and
    signature; None of a pad's."""
    prefix, rest = message[10:].split(b"\0", 1)
    return rest[4 + 64 :] if prefix == b"tranrepl.schema" else None
