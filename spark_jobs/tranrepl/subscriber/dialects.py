"""Which dialect a connection's kind means."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tranrepl.article import RegisteredArticle
from tranrepl.catalogue import TableDescription
from tranrepl.connections import POSTGRES_KINDS, Connection
from tranrepl.errors import ConfigurationError
from tranrepl.subscriber.dialect import Capabilities, Dialect, Scripted
from tranrepl.subscriber.mariadb import MariaDb
from tranrepl.subscriber.mssql import SqlServer
from tranrepl.subscriber.postgres_dialect import PostgresDialect
from tranrepl.subscriber.sql_database import SqlDatabase
from tranrepl.subscriber.sql_dialect import SqlDialect
from tranrepl.subscriber.sql_procedures import scripted
from tranrepl.subscriber.sql_target import intended_target
from tranrepl.subscriber.sqlite import Sqlite

_DATABASES: dict[str, Callable[[], SqlDatabase]] = {
    "mariadb": lambda: MariaDb("mariadb"),
    "mysql": lambda: MariaDb("mysql"),
    "mssql": SqlServer,
    "sqlite": Sqlite,
}
SCRIPTED_KINDS = ("mariadb", "mssql", "mysql")
"""Whose procedures can be scripted without a Subscriber."""


def dialect_of(connection: Connection) -> Dialect:
    """By kind. One that is not known here is taken for the name of an SQLAlchemy dialect, by statements."""
    if connection.kind in POSTGRES_KINDS:
        return PostgresDialect()
    database = _DATABASES.get(connection.kind)
    return SqlDialect(database() if database else SqlDatabase(connection.kind))


@dataclass(frozen=True, slots=True)
class Script:
    """Statements, and what a shell must be given around them."""

    capabilities: Capabilities
    statements: tuple[str, ...]


def script_of(kind: str, articles: Iterable[tuple[RegisteredArticle, TableDescription]], what: Scripted) -> Script:
    """The procedures of articles as they fit the tables that setup would create at a Subscriber of this kind.

    Raises ConfigurationError where that kind has no procedures, or needs its Subscriber for them.
    """
    database = _DATABASES[kind]() if kind in SCRIPTED_KINDS else None
    if database is None or database.scripter is None:
        raise ConfigurationError(f"--dialect: {kind!r}", remedy=f"allowed: {', '.join(SCRIPTED_KINDS)}")
    spelling, statements = database.dialect(), [it.create for it in database.scripter.shared()]
    for article, table in articles:
        statements += scripted(database.scripter, intended_target(database, article, table, spelling), what)
    return Script(database.capabilities, tuple(statements))
