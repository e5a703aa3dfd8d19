"""Which dialect a connection's kind means."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from tranrepl.connections import POSTGRES_KINDS, Connection, driver_is_missing
from tranrepl.errors import ConfigurationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import TableDescription
from tranrepl.subscriber.base.dialect import Dialect
from tranrepl.subscriber.capabilities import Capabilities
from tranrepl.subscriber.postgres.dialect import PostgresDialect
from tranrepl.subscriber.procedure_names import Scripted

if TYPE_CHECKING:
    from tranrepl.subscriber.base.database import SqlDatabase

SCRIPTED_KINDS = ("mariadb", "mssql", "mysql")
"""Kinds of connection whose procedures can be scripted without a Subscriber."""


def dialect_of(connection: Connection) -> Dialect:
    """Return the dialect of a connection's kind. One that is not known here is taken for the name of an SQLAlchemy
    dialect, by statements."""
    if connection.kind in POSTGRES_KINDS:
        return PostgresDialect()
    from tranrepl.subscriber.base.sql_dialect import SqlDialect

    return SqlDialect(_sql_database(connection.kind))


@cache
def _sql_database(kind: str) -> SqlDatabase:
    """Import and return a database, and no other: a delivery to PostgreSQL starts sooner without them."""
    from tranrepl.subscriber.base.database import SqlDatabase

    try:
        match kind:
            case "mariadb" | "mysql":
                from tranrepl.subscriber.mariadb.database import MariaDb

                return MariaDb(kind)
            case "mssql":
                from tranrepl.subscriber.mssql.database import SqlServer

                return SqlServer()
            case "sqlite":
                from tranrepl.subscriber.sqlite.database import Sqlite

                return Sqlite()
            case _:
                return SqlDatabase(kind)
    except ModuleNotFoundError as error:
        raise driver_is_missing(error, f"a connection of type {kind!r}") from None


@dataclass(frozen=True, slots=True)
class Script:
    """Statements, and what a shell must be given around them."""

    capabilities: Capabilities
    statements: tuple[str, ...]


def script_of(kind: str, articles: Iterable[tuple[RegisteredArticle, TableDescription]], what: Scripted) -> Script:
    """Return the procedures of articles as they fit the tables that setup would create at a Subscriber of this kind.

    Raises ConfigurationError where that kind has no procedures, or needs its Subscriber for them.
    """
    from tranrepl.subscriber.base.destination import intended_target
    from tranrepl.subscriber.base.procedures import scripted

    database = _sql_database(kind) if kind in SCRIPTED_KINDS else None
    if database is None or database.scripter is None:
        raise ConfigurationError(f"--dialect: {kind!r}", remedy=f"allowed: {', '.join(SCRIPTED_KINDS)}")
    spelling, statements = database.dialect(), [it.create for it in database.scripter.shared()]
    for article, table in articles:
        statements += scripted(database.scripter, intended_target(database, article, table, spelling), what)
    return Script(database.capabilities, tuple(statements))
