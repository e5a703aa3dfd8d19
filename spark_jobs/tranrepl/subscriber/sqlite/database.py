"""SQLite files as Subscribers, by statements."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import event, types
from sqlalchemy.engine.interfaces import ReflectedColumn
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.types import TypeEngine

from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError, ReplicationError, TransientError
from tranrepl.model.catalogue import ColumnDescription
from tranrepl.model.names import TableName
from tranrepl.model.source_types import Family, SourceType, source_type
from tranrepl.subscriber.base.catalogue import Place
from tranrepl.subscriber.base.comparison_statements import ComparisonWays
from tranrepl.subscriber.base.database import SqlDatabase, first_line
from tranrepl.subscriber.capabilities import Capabilities, NameCase, NameLimit
from tranrepl.subscriber.sqlite.columns import SqliteColumns, with_names_apart
from tranrepl.subscriber.sqlite.comparison_statements import WAYS, add_functions
from tranrepl.subscriber.value_conversion import Binding, Decimals

_BUSY_SECONDS = 60


class Sqlite(SqlDatabase):
    """One writer at a time: a transaction that applies takes the lock when it begins."""

    binding = Binding(decimals=Decimals.BINARY)
    counts_together = True
    sql_name = "sqlite"
    holds_what_is_declared = False

    def __init__(self) -> None:
        super().__init__("sqlite")

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            title="SQLite",
            comparison=True,
            procedures=False,
            most_arguments=None,
            procedure_names=NameLimit(),
            name_case=NameCase.INSENSITIVE,
            streams=False,
            schemas=False,
        )

    def url(self, connection: Connection) -> sa.URL:
        """Return the URL of the file that is the connection's schema, or, as Airflow's own SQLite connections have it,
        its host."""
        return sa.URL.create("sqlite+pysqlite", database=connection.database or connection.host)

    def configured(self, engine: sa.Engine) -> sa.Engine:
        event.listen(engine, "connect", _leave_transactions_to_us)
        event.listen(engine, "begin", _begin)
        return with_names_apart(engine)

    def place(self, table: TableName) -> tuple[str | None, str]:
        return None, table.table

    def column_type(self, source: SourceType, *, indexed: bool) -> TypeEngine[Any]:
        if source.family in (Family.NUMERIC, Family.MONEY):
            # Its NUMERIC is an 8-byte float.
            return types.Text()
        return super().column_type(source, indexed=indexed)

    def comparison_ways(self, session: sa.Connection, where: str) -> ComparisonWays:
        del session, where
        return WAYS

    def columns(self, session: sa.Connection, schema: str | None, table: str) -> list[ReflectedColumn]:
        """Return columns with their types as they are declared: by these SQLite goes."""
        columns = super().columns(session, schema, table)
        declared = {it.name: it.type for it in session.execute(_DECLARED, {"table": table})}
        for column in columns:
            kind: Any = column["type"]
            kind.declared = declared[column["name"]]
        return columns

    def refused_column(self, found: ReflectedColumn, source: ColumnDescription) -> str | None:
        declared = str(getattr(found["type"], "declared", ""))
        published = source_type(source.type_name)
        if published.family is Family.OTHER:
            published = source_type(source.base_type_name)
        if published.family not in _MAY_BE_NUMBERS or not _makes_numbers(declared):
            return None
        return f"is declared {declared}, of which SQLite makes numbers: the text '007' would be 7"

    def constant(self, value: Any, bind: TypeEngine[Any]) -> sa.ColumnElement[Any] | None:
        return sa.literal_column(f"x'{value.hex()}'") if isinstance(value, bytes) else super().constant(value, bind)

    def column_statements(self, session: sa.Connection, place: Place) -> SqliteColumns:
        return SqliteColumns(session, place)

    def error_class(self, error: DBAPIError) -> type[ReplicationError]:
        if not isinstance(error, OperationalError):
            return super().error_class(error)
        busy = "locked" in first_line(error.orig or error)
        return TransientError if busy else ConfigurationError

    def refused(self, connection: Connection, error: DBAPIError) -> ReplicationError:
        return ConfigurationError(
            f"connection {connection.connection_id} ({connection.database or connection.host}): "
            f"{first_line(error.orig or error)}",
            remedy="allowed: a file that can be written, in a folder that can be written",
        )


_DECLARED = sa.text("SELECT name, type FROM pragma_table_xinfo(:table)")
_MAY_BE_NUMBERS = (Family.TEXT, Family.CHARACTER, Family.BITS, Family.OTHER)
"""Types whose texts may look like numbers, and are none."""


def _makes_numbers(declared: str) -> bool:
    """Return whether a column so declared turns texts that look like numbers into numbers. Source: SQLite, "Datatypes",
    section 3.1, "Determination Of Column Affinity"."""
    name = declared.upper()
    if "INT" in name:
        return True
    return bool(name) and not any(it in name for it in ("CHAR", "CLOB", "TEXT", "BLOB"))


def _leave_transactions_to_us(driver: Any, record: object) -> None:
    """Turn off the driver's own transactions. Source: SQLAlchemy, "SQLite: Serializable isolation / Savepoints /
    Transactional DDL"."""
    del record
    add_functions(driver)
    driver.isolation_level = None
    driver.execute(f"PRAGMA busy_timeout = {_BUSY_SECONDS * 1000}")
    driver.execute("PRAGMA foreign_keys = ON")


def _begin(session: sa.Connection) -> None:
    writes = session.get_execution_options().get("tranrepl_applies")
    session.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
