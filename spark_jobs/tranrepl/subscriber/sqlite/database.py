"""SQLite files as Subscribers, by statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event, types
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.types import TypeEngine

from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError, ReplicationError, TransientError
from tranrepl.model.names import TableName
from tranrepl.model.source_types import Family, SourceType
from tranrepl.subscriber.capabilities import Capabilities, NameCase, NameLimit
from tranrepl.subscriber.generic.catalogue import Place
from tranrepl.subscriber.generic.column_steps import MadeColumn
from tranrepl.subscriber.generic.database import SqlDatabase, first_line
from tranrepl.subscriber.generic.recorded_statements import StatementRecorder
from tranrepl.subscriber.sqlite.columns import PlannedSqliteColumns, SqliteColumns, with_names_apart
from tranrepl.subscriber.value_conversion import Binding, Decimals

_BUSY_SECONDS = 60


class Sqlite(SqlDatabase):
    """One writer at a time: a transaction that applies takes the lock when it begins."""

    binding = Binding(decimals=Decimals.BINARY)
    counts_together = True
    sql_name = "sqlite"
    holds_what_is_declared = False
    alters_primary_keys = False

    def __init__(self) -> None:
        super().__init__("sqlite")

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            title="SQLite",
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

    def column_statements(self, session: sa.Connection, place: Place) -> SqliteColumns:
        return SqliteColumns(session, place)

    def planned_columns(
        self, recorder: StatementRecorder, place: Place, columns: Sequence[MadeColumn]
    ) -> PlannedSqliteColumns:
        return PlannedSqliteColumns(recorder, place, columns)

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


def _leave_transactions_to_us(driver: Any, record: object) -> None:
    """Turn off the driver's own transactions. Source: SQLAlchemy, "SQLite: Serializable isolation / Savepoints /
    Transactional DDL"."""
    del record
    driver.isolation_level = None
    driver.execute(f"PRAGMA busy_timeout = {_BUSY_SECONDS * 1000}")
    driver.execute("PRAGMA foreign_keys = ON")


def _begin(session: sa.Connection) -> None:
    writes = session.get_execution_options().get("tranrepl_applies")
    session.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
