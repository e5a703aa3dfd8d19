"""SQL Server as a Subscriber: by procedures as it generates them itself, and by statements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.dialects import mssql
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import TypeEngine

from tranrepl.connections import Connection
from tranrepl.error_numbers import Codes
from tranrepl.errors import ROW_NOT_FOUND
from tranrepl.model.catalogue import ForeignKeyDescription
from tranrepl.model.names import TableName
from tranrepl.model.source_types import Family, SourceType, decimal_digits
from tranrepl.subscriber.capabilities import Capabilities, NameCase
from tranrepl.subscriber.generic.catalogue import Catalogue
from tranrepl.subscriber.generic.database import UNBOUNDED_NUMERIC, NumberedDatabase, first_line, spelled
from tranrepl.subscriber.generic.row_lock import RowLock
from tranrepl.subscriber.mssql.destinations import SqlServerCatalogue, foreign_key_descriptions
from tranrepl.subscriber.mssql.driver import KIND
from tranrepl.subscriber.mssql.procedures import MOST_ARGUMENTS, PROCEDURE_NAMES, SqlServerScripter
from tranrepl.subscriber.mssql.row_locks import locked_rows
from tranrepl.subscriber.mssql.session import set_session
from tranrepl.subscriber.value_conversion import Binding, ColumnType, Temporal

_COLLATION = "Latin1_General_BIN2"
"""Two texts are equal where they have the same characters."""
_MOST_DIGITS = 38
_LONGEST_NVARCHAR = 4000
_LONGEST_KEY = 450
"""Characters: a key has 900 bytes."""
_USER_ERROR = 50000
_HUNDREDTHS = 2
"""Digits of a second that `datetime` keeps; of the third, only some values."""


class SqlServer(NumberedDatabase):
    """Over pymssql, whose exceptions carry the server's error number."""

    sql_name = "tsql"
    scripter = SqlServerScripter()
    error_codes = Codes.SQL_SERVER.value
    binding = Binding(temporal=Temporal.TEXT)
    lock_timeouts = frozenset({"1222"})

    def __init__(self) -> None:
        super().__init__(KIND)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            title="SQL Server",
            procedures=True,
            most_arguments=MOST_ARGUMENTS,
            procedure_names=PROCEDURE_NAMES,
            name_case=NameCase.INSENSITIVE,
            streams=True,
            schemas=True,
            script_end="\ngo\n\n",
        )

    def url(self, connection: Connection) -> sa.URL:
        options = {"login_timeout": "15", **connection.options, "charset": "UTF-8"}
        return sa.URL.create(
            self.kind,
            connection.login,
            connection.password,
            connection.host,
            connection.port,
            connection.database,
            options,
        )

    def configured(self, engine: sa.Engine) -> sa.Engine:
        event.listen(engine, "connect", _prepare, insert=True)
        return engine

    def catalogue(self, session: sa.Connection) -> Catalogue:
        return SqlServerCatalogue(session)

    def foreign_keys(self, session: sa.Connection, table: TableName) -> list[ForeignKeyDescription]:
        return foreign_key_descriptions(session, table)

    def locked_rows(
        self,
        session: sa.Connection,
        table: sa.Table,
        query: sa.Select[*tuple[Any, ...]],
        lock: RowLock = RowLock.EXCLUSIVE,
    ) -> Sequence[sa.Row[*tuple[Any, ...]]]:
        return locked_rows(session, table, query, lock)

    def wait_for_lock(self, session: sa.Connection, seconds: int) -> None:
        session.exec_driver_sql(f"set lock_timeout {seconds * 1000}")

    def column_type(self, source: SourceType, *, indexed: bool) -> TypeEngine[Any]:
        match source.family:
            case Family.NUMERIC:
                precision, scale = decimal_digits(source) or UNBOUNDED_NUMERIC
                return sa.DECIMAL(min(precision, _MOST_DIGITS), min(scale, _MOST_DIGITS))
            case Family.TEXT if source.length and source.length <= _LONGEST_NVARCHAR:
                return mssql.NVARCHAR(source.length, collation=_COLLATION)
            case Family.CHARACTER if source.length and source.length <= _LONGEST_NVARCHAR:
                return mssql.NCHAR(source.length, collation=_COLLATION)
            case Family.BYTES:
                return _typed(mssql.VARBINARY, 2 * _LONGEST_KEY if indexed else "max")
            case family if family in _TYPES:
                return _TYPES[family]
            case _:
                return mssql.NVARCHAR(_LONGEST_KEY if indexed else None, collation=_COLLATION)

    def described_type(self, reflected: TypeEngine[Any], dialect: sa.Dialect) -> ColumnType:
        return ColumnType(
            reflected,
            _spelled(reflected, dialect),
            fraction_digits=_fraction_digits(reflected),
            with_zone=isinstance(reflected, mssql.DATETIMEOFFSET),
            single_precision=isinstance(reflected, sa.REAL),
            fixed_length=isinstance(reflected, sa.CHAR | sa.NCHAR | sa.BINARY),
            only_ascii=isinstance(reflected, sa.CHAR | sa.VARCHAR | sa.TEXT)
            and not isinstance(reflected, sa.NCHAR | sa.NVARCHAR | mssql.NTEXT),
        )

    def number(self, error: DBAPIError) -> str | None:
        """Return the error's number: a server that lacks a message of that number raises one of ours, which begins with
        it."""
        number = _number(error)
        if number == _USER_ERROR and first_line(error.orig or error).startswith(f"{ROW_NOT_FOUND}:"):
            return ROW_NOT_FOUND
        return None if number is None else str(number)


def _prepare(driver: Any, record: object) -> None:
    del record
    set_session(driver)


def _typed(kind: Callable[..., TypeEngine[Any]], argument: int | str) -> TypeEngine[Any]:
    """Return the bound argument with a type, which SQLAlchemy leaves out."""
    return kind(argument)


_TYPES: Mapping[Family, TypeEngine[Any]] = {
    Family.BOOLEAN: mssql.BIT(),
    Family.SMALLINT: sa.SMALLINT(),
    Family.INTEGER: sa.INTEGER(),
    Family.BIGINT: sa.BIGINT(),
    Family.REAL: sa.REAL(),
    Family.DOUBLE: mssql.FLOAT(53),
    Family.MONEY: sa.DECIMAL(19, 2),
    Family.DATE: sa.DATE(),
    Family.TIME: _typed(mssql.TIME, 6),
    Family.TIMESTAMP: _typed(mssql.DATETIME2, 6),
    Family.TIMESTAMP_WITH_ZONE: _typed(mssql.DATETIMEOFFSET, 6),
    Family.UUID: mssql.UNIQUEIDENTIFIER(),
}


def _spelled(reflected: TypeEngine[Any], dialect: sa.Dialect) -> str:
    name = spelled(reflected, dialect)
    return "int" if name == "integer" else name


def _fraction_digits(reflected: TypeEngine[Any]) -> int | None:
    if isinstance(reflected, mssql.DATETIME2 | mssql.DATETIMEOFFSET | mssql.TIME):
        # Without a number it keeps seven digits, more than there are.
        precision: int | None = reflected.precision
        return precision
    return _HUNDREDTHS if isinstance(reflected, sa.DATETIME) else None


def _number(error: DBAPIError) -> int | None:
    """Return the number that pymssql raises as `(number, text)`, or as a tuple of these within its arguments."""
    found: object = error.orig.args[0] if error.orig is not None and error.orig.args else None
    if isinstance(found, tuple) and found:
        found = found[0]
    return found if isinstance(found, int) else None
