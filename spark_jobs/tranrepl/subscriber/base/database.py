"""What differs between the databases that SQLAlchemy connects to. This class is any of them, by statements."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import Enum, auto
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import types
from sqlalchemy.engine.interfaces import ReflectedColumn
from sqlalchemy.exc import (
    ArgumentError,
    CompileError,
    DataError as DriverDataError,
    DBAPIError,
    IntegrityError,
    NoSuchModuleError,
    OperationalError,
    ProgrammingError,
    SQLAlchemyError,
    StatementError,
)
from sqlalchemy.pool import NullPool
from sqlalchemy.types import TypeEngine

from tranrepl.connections import Connection, driver_is_missing
from tranrepl.error_numbers import Codes, ErrorCodes
from tranrepl.errors import ConfigurationError, DataError, ReplicationError, TransientError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import ColumnDescription, TableDescription
from tranrepl.model.names import TableName
from tranrepl.model.source_types import Family, SourceType, decimal_digits, source_type
from tranrepl.settings.registration import PublishedTables
from tranrepl.subscriber.applier_options import ApplierOptions
from tranrepl.subscriber.base.catalogue import Catalogue, InspectedCatalogue, Place, Refusal
from tranrepl.subscriber.base.column_steps import ColumnStatements
from tranrepl.subscriber.base.comparison_statements import ComparisonWays
from tranrepl.subscriber.base.execution import BoundStatement, BulkInsert
from tranrepl.subscriber.base.identifiers import Identifiers
from tranrepl.subscriber.base.procedures import ProcedureName, ProcedureScripter
from tranrepl.subscriber.base.staged_bulk import StagedBulk
from tranrepl.subscriber.capabilities import Capabilities, NameCase, NameLimit
from tranrepl.subscriber.foreign_keys import ForeignKey
from tranrepl.subscriber.sequences import SubscriberSequences
from tranrepl.subscriber.value_conversion import PLAIN_TYPES, Binding, ColumnType

UNBOUNDED_NUMERIC = (38, 15)


class RowLock(Enum):
    """How a row of the model's tables is locked."""

    EXCLUSIVE = auto()
    """Nobody else locks it."""
    SHARED = auto()
    """Others may lock it so, and nobody writes it."""


@lru_cache(maxsize=8)
def _engine(database: SqlDatabase, connection: Connection) -> sa.Engine:
    """Return the engine for a connection: what it learns of the server, and the statements that it compiles, serve
    whatever this process asks there next. It keeps no session."""
    arguments = database.driver_arguments(connection)
    return database.configured(sa.create_engine(database.url(connection), connect_args=arguments, poolclass=NullPool))


class SqlDatabase:
    """A database that takes statements only. Others override what they know better."""

    lock_timeouts: frozenset[str] = frozenset()
    """Codes of the error that a wait for a lock has taken too long."""
    binding = Binding()
    scripter: ProcedureScripter | None = None
    """Writes procedures; None where there are none."""
    sql_name = ""
    """sqlglot's name of its SQL; empty for the standard's."""
    counts_together = False
    """The driver's row count of many executions is the sum of theirs. PEP 249 leaves it open."""
    statements_together = 1
    """How many statements of any shape `execute_together` takes; 1 where it takes none."""
    holds_what_is_declared = True
    """A column holds values of its declared type and length, and no others."""
    error_codes: ErrorCodes = Codes.OTHER.value
    inserts_identities = False
    """An INSERT may give an identity column a value, where the statement says so."""
    reads_publishers_filters = False
    """A row filter is an expression of its own SQL as it is."""
    errors_end_transactions = False
    """Some errors roll back the whole transaction, with its savepoints and locks."""
    ddl_commits = False
    """A statement that alters a table, or makes a procedure, commits what is open."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            title=self.kind,
            procedures=False,
            most_arguments=None,
            procedure_names=NameLimit(),
            name_case=NameCase.INSENSITIVE,
            streams=False,
            schemas=True,
        )

    @property
    def table_options(self) -> Mapping[str, Any]:
        """Return options of `sqlalchemy.Table` for a table that setup creates."""
        return {}

    # The model's tables

    @contextmanager
    def transaction(self, session: sa.Connection, where: str) -> Iterator[None]:
        """Enclose a transaction; its errors are of `tranrepl.errors`."""
        with translated_errors(where, self), session.begin():
            yield

    def reading(self, session: sa.Connection, where: str) -> AbstractContextManager[None]:
        """Return what encloses statements that read, and need not see the same state."""
        return self.transaction(session, where)

    def together(self, session: sa.Connection, where: str) -> AbstractContextManager[None]:
        """Return what encloses transactions that are one where DDL is part of a transaction."""
        del session, where
        return nullcontext()

    def name(self, session: sa.Connection) -> str:
        """Return the name of the database that the session is in."""
        return session.engine.url.database or ""

    def has_table(self, session: sa.Connection, table: sa.Table) -> bool:
        """Return whether a table of the model's is there."""
        return sa.inspect(session).has_table(table.name)

    def replication_columns(self, session: sa.Connection, names: Sequence[str]) -> Mapping[str, Collection[str]]:
        """Return the columns of the tables that are there under these names, where the model's are."""
        found = self.catalogue(session).destinations([(None, it) for it in names])
        return {name: it.columns.keys() for (_, name), it in found.items() if it.refusal is None}

    def require_fit_tables(self, session: sa.Connection, where: str, names: Sequence[str]) -> None:
        """Raise ConfigurationError where setup may not use tables that are there under these names."""
        for (_, name), refusal in self.refused_tables(session, [(None, it) for it in names]).items():
            raise refusal.error(where, name)

    def locked_rows(
        self,
        session: sa.Connection,
        table: sa.Table,
        query: sa.Select[*tuple[Any, ...]],
        lock: RowLock = RowLock.EXCLUSIVE,
    ) -> Sequence[sa.Row[*tuple[Any, ...]]]:
        """Return the rows of one of the model's tables that a query finds, locked until the transaction ends, where the
        database locks rows at all."""
        del table
        return session.execute(query.with_for_update(read=lock is RowLock.SHARED)).all()

    def insert_new(self, session: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, object]]) -> int:
        """Insert rows; return how many. Where the database can, those are left out that another session has inserted
        meanwhile."""
        session.execute(sa.insert(table), rows)
        return len(rows)

    # Teardown

    def as_made(self, session: sa.Connection, texts: Mapping[str, str]) -> Mapping[str, bool]:
        """Return which of the generated procedures of these texts are there, and whether each is as its text made
        it."""
        if self.scripter is None:
            return {}
        stored = self.scripter.stored(session, [ProcedureName(None, it) for it in texts])
        return {name.name: self.scripter.made(texts[name.name], it.body) for name, it in stored.items()}

    def drop_statement(self, procedure: str) -> str:
        """Return the statement that drops a generated procedure."""
        return "" if self.scripter is None else self.scripter.drop(ProcedureName(None, procedure))

    def drops(self, session: sa.Connection, procedures: Collection[str]) -> Mapping[str, Sequence[str]]:
        """Return, by name of a generated procedure, the statements that drop all that is there under it."""
        del session
        return {it: [self.drop_statement(it)] for it in procedures}

    def shared_drops(self) -> Sequence[str]:
        """Return the statements that drop procedures which all articles share."""
        return [] if self.scripter is None else [self.scripter.drop(it.name) for it in self.scripter.shared()]

    def drop_problem(
        self, session: sa.Connection, where: str, procedures: Sequence[str], tables: Sequence[sa.Table]
    ) -> ConfigurationError | None:
        """Return that our role may not drop one of these, where that is known before."""
        del session, where, procedures, tables
        return None

    def lock_table(self, session: sa.Connection, table: sa.Table) -> None:
        """Keep other sessions from writing to a table until the transaction ends, where the database can. Elsewhere who
        drops a table waits for writers, and they find it gone."""

    # Connecting

    def of_server(self, session: sa.Connection) -> SqlDatabase:
        """Return this database as the server at hand speaks it."""
        del session
        return self

    def url(self, connection: Connection) -> sa.URL:
        return sa.URL.create(
            self.kind,
            connection.login,
            connection.password,
            connection.host,
            connection.port,
            connection.database,
            dict(connection.options),
        )

    def driver_arguments(self, connection: Connection) -> dict[str, Any]:
        """Return what the driver's connect is given beside what the URL says."""
        del connection
        return {}

    def unused_options(self, connection: Connection) -> Mapping[str, str]:
        """Return why each option of the connection that is not used is not, by name."""
        del connection
        return {}

    def engine(self, connection: Connection) -> sa.Engine:
        """Return an engine. Raises ConfigurationError where SQLAlchemy has no such dialect, or its driver is not
        installed."""
        try:
            return _engine(self, connection)
        except NoSuchModuleError:
            raise ConfigurationError(
                f"connection {connection.connection_id!r} is of type {connection.kind!r}",
                remedy="allowed: postgres, mariadb, mysql, mssql, sqlite, or the name of an SQLAlchemy dialect",
            ) from None
        except ModuleNotFoundError as error:
            raise driver_is_missing(error, f"connection {connection.connection_id!r}") from None
        except (ArgumentError, TypeError, ValueError):
            # The text of the original error may hold the password.
            raise ConfigurationError(f"connection {connection}: not usable as a connection of this type") from None

    def dialect(self) -> sa.Dialect:
        """Return SQLAlchemy's dialect, not connected: it spells types."""
        return sa.URL.create(self.kind).get_dialect()()

    def configured(self, engine: sa.Engine) -> sa.Engine:
        """Return the engine with what every session of it must do first."""
        return engine

    def wait_for_lock(self, session: sa.Connection, seconds: int) -> None:
        """Set how long the session waits for a row that another one has locked, where the database lets us."""

    def not_for_replication_problems(self, session: sa.Connection, where: str) -> Iterator[ConfigurationError]:
        """Yield a problem where the session cannot keep foreign keys from acting."""
        del session
        able = self.capabilities
        if not able.not_for_replication:
            yield ConfigurationError(
                f"{where}: not_for_replication: "
                + (able.why_for_replication or f"a session of {able.title} cannot keep foreign keys from acting"),
                remedy="not_for_replication: false; drop or disable what must not act at the Subscriber's tables",
            )

    def configure_session(self, session: sa.Connection, options: ApplierOptions) -> None:
        """Configure a session before its first transaction that applies. What the database lacks was refused before."""
        if options.lock_timeout_seconds is not None:
            self.wait_for_lock(session, max(1, math.ceil(options.lock_timeout_seconds)))

    def began(self, session: sa.Connection) -> None:
        """Act after a transaction that applies commands has begun."""

    def before_commit(self, session: sa.Connection) -> None:
        """Act before the commit. Raises ConfigurationError where a procedure has ended the transaction meanwhile."""

    def warnings(self, session: sa.Connection, result: sa.CursorResult[Any]) -> list[str]:
        """Return what a procedure's call said without failing."""
        del session, result
        return []

    def execute_together(self, session: sa.Connection, statements: Sequence[BoundStatement]) -> list[str]:
        """Execute statements in one round trip; return what procedures said without failing.

        Raises SQLAlchemy's error where one failed or did not meet a row that it must meet. What the others did is then
        to be rolled back.
        """
        raise NotImplementedError

    def in_transaction(self, session: sa.Connection) -> bool:
        """Return whether what was done in the transaction is still there after an error (`errors_end_transactions`)."""
        del session
        return True

    def right_problems(
        self, session: sa.Connection, where: str, tables: PublishedTables, replication_tables: Sequence[str]
    ) -> Iterator[ConfigurationError]:
        """Yield what our login lacks of the rights that setup and deliveries need, as far as it tells, and settings of
        the server that keep it from taking commands."""
        del session, where, tables, replication_tables
        yield from ()

    def grant_of_texts(self, session: sa.Connection) -> str | None:
        """Return the statement that lets our login see the texts of procedures that others made; None where there is
        none, or another warning has it."""
        del session
        return None

    def bulk_warnings(self, session: sa.Connection, tables: PublishedTables) -> Iterator[str]:
        """Yield which rights our login lacks to apply in bulk, where nothing else does."""
        del session, tables
        yield from ()

    def packet_warnings(self, session: sa.Connection, unbounded: Sequence[str]) -> Iterator[str]:
        """Yield warnings about large values; `unbounded` are articles whose values may be of any length."""
        del session, unbounded
        yield from ()

    def bulk_insert(self, session: sa.Connection, article: RegisteredArticle) -> BulkInsert | None:
        """Return what inserts many rows of a snapshot at a time; None where only value by value is possible."""
        del session, article
        return None

    def bulk(self, session: sa.Connection, articles: Mapping[int, RegisteredArticle]) -> StagedBulk[Any] | None:
        """Return what applies in bulk, where the catalogue allows it; None where only serial apply is possible."""
        del session, articles
        return None

    def comparison_ways(self, session: sa.Connection, where: str) -> ComparisonWays:
        """Return what compares the articles' tables. Raises ConfigurationError where the database has no way."""
        del session
        raise ConfigurationError(
            f"{where}: rows of {self.capabilities.title} cannot be compared",
            remedy="allowed: a Subscriber in PostgreSQL, MariaDB, MySQL, SQL Server or SQLite",
        )

    def column_statements(self, session: sa.Connection, place: Place) -> ColumnStatements | None:
        """Return what changes the columns of a table; None where nobody has tried it."""
        del session, place
        return None

    def add_column_text(self, table: TableName, column: str, made: TypeEngine[Any]) -> str:
        """Return the statement that gives a table a column, for people to paste."""
        name = self.identifiers.quoted(column)
        return f"ALTER TABLE {self.qualified(table)} ADD COLUMN {name} {made.compile(dialect=self.dialect())}"

    def rename_column_text(self, table: TableName, column: str, new_name: str) -> str:
        """Return the statement that renames a column, likewise."""
        before, now = map(self.identifiers.quoted, (column, new_name))
        return f"ALTER TABLE {self.qualified(table)} RENAME COLUMN {before} TO {now}"

    def constant(self, value: Any, bind: TypeEngine[Any]) -> sa.ColumnElement[Any] | None:
        """Return a value that is bound as `bind` as a constant of DDL; None where nobody knows how it is written."""
        if isinstance(value, bytes | bytearray | memoryview):
            return None
        found = sa.literal(value, bind)
        try:
            found.compile(dialect=self.dialect(), compile_kwargs={"literal_binds": True})
        except (CompileError, NotImplementedError):
            return None
        return found

    def lock_session(self, session: sa.Connection, name: str) -> bool:
        """Take a lock that ends with the session (`ddl_commits`); return whether it was to be had."""
        raise NotImplementedError

    # Names and types

    def place(self, table: TableName) -> tuple[str | None, str]:
        """Return schema and name of a destination table."""
        return table.schema, table.table

    def has_schema(self, session: sa.Connection, name: str) -> bool:
        return name in sa.inspect(session).get_schema_names()

    def counts_up(self, source: TableDescription, column: ColumnDescription) -> bool:
        """Return whether a column of a table that setup creates numbers its rows by itself where a statement gives no
        value."""
        del source, column
        return False

    def sequences(self, session: sa.Connection, where: str) -> SubscriberSequences | None:
        """Return what sets the numbers that tables give their rows; None where nothing does."""
        del session, where
        return None

    def columns(self, session: sa.Connection, schema: str | None, table: str) -> list[ReflectedColumn]:
        """Return a table's columns. Raises NoSuchTableError where there is none."""
        return sa.inspect(session).get_columns(table, schema)

    def catalogue(self, session: sa.Connection) -> Catalogue:
        """Return what answers questions about tables that are there."""
        return InspectedCatalogue(session, self.columns, self.column_name)

    def refused_tables(self, session: sa.Connection, places: Sequence[Place]) -> Mapping[Place, Refusal]:
        """Return those of these tables that may not take commands."""
        del session, places
        return {}

    def column_name(self, reflected: str) -> str:
        """Return a column's name, given what SQLAlchemy reads from the catalogue."""
        return reflected

    @property
    def identifiers(self) -> Identifiers:
        """What quotes names for statements that are text."""
        return Identifiers(self.kind)

    def qualified(self, table: TableName) -> str:
        """Return a destination table's name, for a statement that is text."""
        return self.identifiers.qualified(*self.place(table))

    def refused_column(self, found: ReflectedColumn, source: ColumnDescription) -> str | None:
        """Return why values of `source` cannot be given to a column, or would be changed in silence, as in "takes no
        value"; None where they can."""
        del found, source
        return None

    def add_foreign_key_text(self, key: ForeignKey) -> str:
        """Return what creates a foreign key, with a name of the database's own: two tables of a schema may
        not have keys of one name, as the Publisher's may."""
        columns, others = (", ".join(map(self.identifiers.quoted, it)) for it in (key.columns, key.referenced_columns))
        table, referenced = self.qualified(key.table), self.qualified(key.referenced)
        return f"ALTER TABLE {table} ADD FOREIGN KEY ({columns}) REFERENCES {referenced} ({others})"

    def type_named(self, type_name: str, base_type_name: str | None = None, *, indexed: bool) -> TypeEngine[Any]:
        """Return the type that a column of `type_name` at the Publisher gets; for a domain, by the type under it."""
        declared = source_type(type_name)
        if declared.family is Family.OTHER and base_type_name is not None:
            declared = source_type(base_type_name)
        return self.column_type(declared, indexed=indexed)

    def column_type(self, source: SourceType, *, indexed: bool) -> TypeEngine[Any]:
        """Return the type that setup gives a column; `indexed`: of the primary key, where long types have no place."""
        text: TypeEngine[Any] = types.String(255) if indexed else types.Text()
        match source.family:
            case Family.NUMERIC:
                return types.Numeric(*(decimal_digits(source) or UNBOUNDED_NUMERIC))
            case Family.MONEY:
                return types.Numeric(19, 2)
            case Family.TEXT | Family.CHARACTER if source.length:
                return types.String(source.length)
            case Family.UUID:
                return types.String(36)
            case Family.BYTES:
                return types.LargeBinary(255) if indexed else types.LargeBinary()
            case family:
                return PLAIN_TYPES.get(family, text)

    def fit_row(self, table: sa.Table, indexed: Collection[str]) -> None:
        """Give columns of a table that setup will create other types where a row has no room for all of them. `indexed`
        are columns that keep theirs, beside the key's."""
        del table, indexed

    def size_problem(self, table: sa.Table) -> str | None:
        """Return why a table that setup would create is too large, as in "has …"; None where it is not."""
        del table
        return None

    def described_type(self, reflected: TypeEngine[Any], dialect: sa.Dialect) -> ColumnType:
        """Return a destination column's type, as SQLAlchemy reads it from the catalogue."""
        return ColumnType(reflected, spelled(reflected, dialect))

    def key_warning(self, reflected: TypeEngine[Any]) -> str | None:
        """Return, in words, that a key of this type is one for texts that differ; None where it keeps them apart."""
        collation = getattr(reflected, "collation", None)
        if collation is None or self.tells_apart(collation):
            return None
        return (
            f"has collation {collation}, in which texts that the Publisher keeps apart are one key, such as those that "
            f"differ only in case; a key that setup creates has {self.key_collation}"
        )

    @property
    def key_collation(self) -> str:
        """The collation of texts in tables that setup creates, where it names one."""
        return ""

    def tells_apart(self, collation: str) -> bool:
        """Return whether two texts are equal in this collation only where they have the same characters, but for blanks
        at the end."""
        del collation
        return True

    # Errors

    def text(self, error: BaseException) -> str:
        """Return what the server said in a driver's error, in one line."""
        return first_line(error)

    def number(self, error: DBAPIError) -> str | None:
        """Return the database's own number for an error."""
        del error
        return None

    def translate(self, where: str, error: SQLAlchemyError | OverflowError) -> ReplicationError:
        """Translate an error into its class. A statement's parameters are never shown."""
        if not isinstance(error, DBAPIError):
            original = error.orig if isinstance(error, StatementError) else error
            return DataError(f"{where}: {self.text(original or error)}")
        message, numbers = f"{where}: {self.text(error.orig or error)}", self.error_codes.numbered(self.number(error))
        if error.connection_invalidated:
            return TransientError(message, **numbers)
        return self.error_class(error)(message, **numbers)

    def error_class(self, error: DBAPIError) -> type[ReplicationError]:
        """Return the error's class by the DB API's classes (PEP 249)."""
        match error:
            case IntegrityError() | DriverDataError():
                return DataError
            case OperationalError():
                return TransientError
            case ProgrammingError():
                return ConfigurationError
            case _:
                return DataError

    def refused(self, connection: Connection, error: DBAPIError) -> ReplicationError:
        """Return the error of a connection that did not come about."""
        return TransientError(
            f"connection {connection}: {self.text(error.orig or error)}",
            **self.error_codes.numbered(self.number(error)),
            remedy="check host, port, login and database of this connection, and that the server runs",
        )


@contextmanager
def translated_errors(where: str, database: SqlDatabase) -> Iterator[None]:
    """Turn SQLAlchemy's error, or a driver's, into one of ours."""
    try:
        yield
    except SQLAlchemyError as error:
        raise database.translate(where, error) from error


def spelled(column_type: TypeEngine[Any], dialect: sa.Dialect) -> str:
    """Spell the type in the database's SQL, without collation."""
    if isinstance(column_type, types.NullType):
        return "a type that SQLAlchemy does not know"
    return column_type.compile(dialect=dialect).split(" CHARACTER SET")[0].split(" COLLATE")[0].lower()


def first_line(error: BaseException) -> str:
    """Return the first line of a driver's message. Some raise `(number, text)`, some bytes."""
    *_, text = error.args or ("",)
    if isinstance(text, tuple) and text:
        text = text[-1]
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    return (str(text).strip().splitlines() or [type(error).__name__])[0]
