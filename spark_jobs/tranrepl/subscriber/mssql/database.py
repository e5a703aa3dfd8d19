"""SQL Server as a Subscriber: by procedures as it generates them itself, and by statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.dialects import mssql
from sqlalchemy.engine.interfaces import ReflectedColumn
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.types import TypeEngine

from tranrepl.connections import Connection
from tranrepl.error_numbers import Codes
from tranrepl.errors import ROW_NOT_FOUND, ConfigurationError, ErrorDetails, ReplicationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import ColumnDescription
from tranrepl.model.names import TableName
from tranrepl.model.source_types import Family, SourceType, decimal_digits
from tranrepl.settings.registration import PublishedTables
from tranrepl.subscriber.base.catalogue import Catalogue, Place
from tranrepl.subscriber.base.comparison_statements import ComparisonWays
from tranrepl.subscriber.base.database import UNBOUNDED_NUMERIC, RowLock
from tranrepl.subscriber.base.execution import BoundStatement, BulkInsert
from tranrepl.subscriber.base.numbered_database import (
    NO_TRANSACTION_OF_ITS_OWN,
    NumberedDatabase,
    procedure_ended_transaction,
)
from tranrepl.subscriber.base.staged_bulk import BulkRules
from tranrepl.subscriber.capabilities import Capabilities, ForeignKeyCheck, NameCase
from tranrepl.subscriber.mssql import statement_batches
from tranrepl.subscriber.mssql.bulk import SqlServerBulk
from tranrepl.subscriber.mssql.bulk_rules import bulk_rules, bulk_target
from tranrepl.subscriber.mssql.column_types import FloatingPoint, Moment, Text, described_type
from tranrepl.subscriber.mssql.columns import SqlServerColumns
from tranrepl.subscriber.mssql.comparison_statements import comparison_ways
from tranrepl.subscriber.mssql.connection_options import certificate_remedy, driver_options, trust_certificates
from tranrepl.subscriber.mssql.destinations import SqlServerCatalogue
from tranrepl.subscriber.mssql.driver import COUNT_CHANGED, ENDED_TRANSACTION, KIND, number_of, set_session, text_of
from tranrepl.subscriber.mssql.procedures import MOST_ARGUMENTS, PROCEDURE_NAMES, SqlServerScripter
from tranrepl.subscriber.mssql.rights import bulk_warnings, right_problems
from tranrepl.subscriber.mssql.row_locks import locked_rows
from tranrepl.subscriber.mssql.sql_text import SCHEMA
from tranrepl.subscriber.mssql.statement_execution import configure, messages_of
from tranrepl.subscriber.value_conversion import Binding, ColumnType, Temporal

_COLLATION = "Latin1_General_BIN2"
"""Two texts are equal where they have the same characters."""
_MOST_DIGITS = 38
_LONGEST_NVARCHAR = 4000
_LONGEST_KEY = 450
"""Characters: a key has 900 bytes."""
_USER_ERROR = 50000
_MARK_BEGINNING = """declare @granted int
exec @granted = sp_getapplock @Resource = N'tranrepl_began', @LockMode = N'Shared', @LockOwner = N'Transaction', \
@LockTimeout = 0
if @granted < 0 raiserror (N'sp_getapplock: %d', 16, 1, @granted)"""
"""A lock that nobody waits for, and that ends with the transaction."""
_MARK_IS_THERE = "select applock_mode(N'public', N'tranrepl_began', N'Transaction')"
_VERBATIM = Binding(temporal=Temporal.TEXT, moment=Moment(), floating=FloatingPoint())
_CONTINUED = replace(_VERBATIM, text=Text())
_SCHEMA_ID = sa.text("select schema_id(:name)")
_CONTINUES_LINES = sa.text("select datalength('\\\n')")
"""0 where a backslash and the end of the line after it are dropped."""
_WHY_FOR_REPLICATION = (
    "the server passes over constraints and triggers declared NOT FOR REPLICATION only in a session that says in its "
    "login packet that it is a replication agent's (`Replication=True` in a connection string), and pymssql over "
    "FreeTDS cannot say so"
)


class SqlServer(NumberedDatabase):
    """Over pymssql, whose exceptions carry the server's error number."""

    sql_name = "tsql"
    scripter = SqlServerScripter()
    error_codes = Codes.SQL_SERVER.value
    lock_timeouts = frozenset({"1222"})
    inserts_identities = True
    errors_end_transactions = True
    statements_together = 200

    def __init__(self, *, continues_lines: bool = True) -> None:
        """`continues_lines`: a backslash at the end of a line in a constant is dropped, with the end of the line."""
        super().__init__(KIND)
        self.binding = _CONTINUED if continues_lines else _VERBATIM

    def of_server(self, session: sa.Connection) -> SqlServer:
        """Return the database as its server reads constants. Raises ConfigurationError where the login's default schema
        is another one than ours."""
        require_own_schema(session.dialect)
        with session.begin():
            kept: int | None = session.scalar(_CONTINUES_LINES)
        return SqlServer(continues_lines=kept == 0)

    def execute_together(self, session: sa.Connection, statements: Sequence[BoundStatement]) -> list[str]:
        messages = messages_of(session)
        messages.forget()
        statement_batches.execute_batch(session, statements)
        return messages.take()

    def in_transaction(self, session: sa.Connection) -> bool:
        # -1: it is there, but can only be rolled back as a whole.
        return bool(session.exec_driver_sql("select xact_state()").scalar_one() == 1)

    def bulk(self, session: sa.Connection, articles: Mapping[int, RegisteredArticle]) -> SqlServerBulk | None:
        places = {number: self._known_place(it.destination) for number, it in articles.items()}
        rules = bulk_rules(session, articles, places)
        return SqlServerBulk(session, rules) if rules.operations else None

    def bulk_insert(self, session: sa.Connection, article: RegisteredArticle) -> BulkInsert | None:
        found = bulk_target(session, article, self._known_place(article.destination))
        return None if found is None else partial(SqlServerBulk(session, BulkRules()).insert, found)

    def _known_place(self, table: TableName) -> tuple[str, str]:
        schema, name = self.place(table)
        return schema or SCHEMA, name

    def constant(self, value: Any, bind: TypeEngine[Any]) -> sa.ColumnElement[Any] | None:
        if isinstance(value, bytes):
            return sa.literal_column(f"0x{value.hex()}")
        found = super().constant(value, bind)
        if found is None or not isinstance(value, str):
            return found
        text = str(found.compile(dialect=self.dialect(), compile_kwargs={"literal_binds": True}))
        # Without N, it is a text of the database's code page.
        return sa.literal_column(f"N{text}" if text.startswith("'") else text)

    def column_statements(self, session: sa.Connection, place: Place) -> SqlServerColumns:
        return SqlServerColumns(session, place)

    def add_column_text(self, table: TableName, column: str, made: TypeEngine[Any]) -> str:
        return super().add_column_text(table, column, made).replace(" ADD COLUMN ", " ADD ", 1)

    def rename_column_text(self, table: TableName, column: str, new_name: str) -> str:
        quoted_column = self.identifiers.quoted(column)
        before, now = (it.replace("'", "''") for it in (f"{self.qualified(table)}.{quoted_column}", new_name))
        return f"EXEC sp_rename N'{before}', N'{now}', N'COLUMN'"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            title="SQL Server",
            comparison=True,
            procedures=True,
            most_arguments=MOST_ARGUMENTS,
            procedure_names=PROCEDURE_NAMES,
            name_case=NameCase.INSENSITIVE,
            streams=True,
            schemas=True,
            foreign_keys=ForeignKeyCheck.AT_ONCE,
            why_for_replication=_WHY_FOR_REPLICATION,
            script_end="\ngo\n\n",
        )

    def url(self, connection: Connection) -> sa.URL:
        options = driver_options(connection)
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
        return trust_certificates(statement_batches.configure(configure(engine)))

    def has_schema(self, session: sa.Connection, name: str) -> bool:
        return session.scalar(_SCHEMA_ID, {"name": name}) is not None

    def catalogue(self, session: sa.Connection) -> Catalogue:
        return SqlServerCatalogue(session)

    def locked_rows(
        self,
        session: sa.Connection,
        table: sa.Table,
        query: sa.Select[*tuple[Any, ...]],
        lock: RowLock = RowLock.EXCLUSIVE,
    ) -> Sequence[sa.Row[*tuple[Any, ...]]]:
        return locked_rows(session, table, query, lock)

    def began(self, session: sa.Connection) -> None:
        session.exec_driver_sql(_MARK_BEGINNING)

    def before_commit(self, session: sa.Connection) -> None:
        if session.exec_driver_sql(_MARK_IS_THERE).scalar() != "Shared":
            raise procedure_ended_transaction(COUNT_CHANGED)

    def warnings(self, session: sa.Connection, result: sa.CursorResult[Any]) -> list[str]:
        del result
        return messages_of(session).take()

    def refused_column(self, found: ReflectedColumn, source: ColumnDescription) -> str | None:
        del source
        match found["type"]:
            case mssql.TIMESTAMP():
                return "is a rowversion, to which the server itself gives values"
            case mssql.SQL_VARIANT():
                return "is a sql_variant, whose values each have a type of their own, which the Publisher has not"
            case sa.types.NullType():
                return "is of a type without a text form, as geography, geometry and hierarchyid are"
            case _:
                return None

    def wait_for_lock(self, session: sa.Connection, seconds: int) -> None:
        session.exec_driver_sql(f"set lock_timeout {seconds * 1000}")

    @property
    def key_collation(self) -> str:
        return _COLLATION

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
        return described_type(reflected, dialect)

    def tells_apart(self, collation: str) -> bool:
        parts = collation.upper().split("_")
        return "BIN" in parts or "BIN2" in parts

    def text(self, error: BaseException) -> str:
        return text_of(error)

    def translate(self, where: str, error: SQLAlchemyError | OverflowError) -> ReplicationError:
        problem = super().translate(where, error)
        if problem.report.database_code in ENDED_TRANSACTION:
            problem.report = problem.report.model_copy(update={"remedy": NO_TRANSACTION_OF_ITS_OWN})
        return problem

    def refused(self, connection: Connection, error: DBAPIError) -> ReplicationError:
        problem = super().refused(connection, error)
        way_on = certificate_remedy(connection)
        if way_on is not None:
            problem.add(ErrorDetails(remedy=way_on))
        return problem

    def right_problems(
        self, session: sa.Connection, where: str, tables: PublishedTables, replication_tables: Sequence[str]
    ) -> Iterator[ConfigurationError]:
        return right_problems(session, where, tables, replication_tables)

    def bulk_warnings(self, session: sa.Connection, tables: PublishedTables) -> Iterator[str]:
        return bulk_warnings(session, tables)

    def comparison_ways(self, session: sa.Connection, where: str) -> ComparisonWays:
        return comparison_ways(session, where)

    def number(self, error: DBAPIError) -> str | None:
        """Return the error's number: a server that lacks a message of that number raises one of ours, which begins with
        it."""
        number = number_of(error)
        if number == _USER_ERROR and self.text(error.orig or error).startswith(f"{ROW_NOT_FOUND}:"):
            return ROW_NOT_FOUND
        return None if number is None else str(number)


def require_own_schema(dialect: sa.Dialect) -> None:
    """Refuse a login in whose default schema others may make tables of our tables' names, which are found first."""
    found = dialect.default_schema_name
    if found != SCHEMA:
        raise ConfigurationError(
            f"SQL Server: the login's default schema is {found}, where names without a schema are looked for first",
            remedy=f"let an owner of the database run, for the login's user in it: ALTER USER [name] WITH "
            f"DEFAULT_SCHEMA = {SCHEMA}",
        )


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
