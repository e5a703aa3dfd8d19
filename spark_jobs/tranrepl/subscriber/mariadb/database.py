"""MariaDB and MySQL as Subscribers: by statements, and by procedures when asked. A schema is a database there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from itertools import groupby
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.dialects import mysql
from sqlalchemy.engine.interfaces import ReflectedColumn
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.types import TypeEngine

from tranrepl.connections import Connection
from tranrepl.error_numbers import Codes
from tranrepl.errors import ConfigurationError, ErrorDetails, ReplicationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import ColumnDescription, TableDescription
from tranrepl.model.source_types import Family, SourceType
from tranrepl.mysql.connection_options import CHARSET, driver_arguments, unused_options
from tranrepl.mysql.session import notice_dead_peers, refused_tls, tells_apart
from tranrepl.settings.registration import PublishedTables
from tranrepl.subscriber.applier_options import ApplierOptions
from tranrepl.subscriber.base.catalogue import FILLS_ITSELF, InspectedCatalogue, Place, ReferringColumns, Refusal
from tranrepl.subscriber.base.comparison_statements import ComparisonWays
from tranrepl.subscriber.base.execution import BulkInsert
from tranrepl.subscriber.base.numbered_database import NumberedDatabase, procedure_ended_transaction
from tranrepl.subscriber.base.staged_bulk import BulkRules
from tranrepl.subscriber.capabilities import Capabilities, ForeignKeyCheck, NameCase
from tranrepl.subscriber.mariadb.bulk import MariaDbBulk
from tranrepl.subscriber.mariadb.bulk_rules import bulk_rules, bulk_target
from tranrepl.subscriber.mariadb.column_types import TYPES, decimal_digits_of, described_type
from tranrepl.subscriber.mariadb.columns import MariaDbColumns
from tranrepl.subscriber.mariadb.comparison_statements import WAYS
from tranrepl.subscriber.mariadb.procedures import PROCEDURE_NAMES, MariaDbScripter
from tranrepl.subscriber.mariadb.rights import grant_of_texts, right_problems
from tranrepl.subscriber.mariadb.sequences import MariaDbSequences
from tranrepl.subscriber.mariadb.session import (
    PACKET_TOO_LARGE,
    USUAL_PACKET,
    USUAL_WAITS,
    BoundedCursor,
    larger_packets,
    set_session,
)
from tranrepl.subscriber.mariadb.table_check import (
    LOG_FORMAT_REMEDY,
    fit_row,
    log_format_problem,
    size_problem,
    tables_of_other_engines,
)
from tranrepl.subscriber.value_conversion import ColumnType

_COLLATION, _MYSQL_COLLATION = "utf8mb4_nopad_bin", "utf8mb4_0900_bin"
"""Two texts are equal where PostgreSQL says so: the same characters, blanks at the end among them."""
_LONGEST_VARCHAR = 1000
"""Characters: a row has 65,535 bytes for all of them."""
_LONGEST_KEY = 768
"""Characters: an index has 3,072 bytes."""

_GET_LOCK = sa.text("SELECT GET_LOCK(:name, :seconds)")
_LOCK_SECONDS = 300

_LOG_OF_STATEMENTS = "1665"
_ROW_TOO_LARGE = "1118"
_MARK = "tranrepl_began"
_NO_SUCH_SAVEPOINT = 1305


class MariaDb(NumberedDatabase):
    """Over PyMySQL."""

    sql_name = "mysql"
    scripter = MariaDbScripter()
    counts_together = True
    ddl_commits = True
    error_codes = Codes.MARIADB.value
    lock_timeouts = frozenset({"1205"})

    def __init__(self, kind: str, collation: str = _COLLATION) -> None:
        super().__init__(kind)
        self._collation = collation

    @property
    def table_options(self) -> Mapping[str, Any]:
        return {"mysql_engine": "InnoDB", "mysql_charset": CHARSET, "mysql_collate": self._collation}

    def of_server(self, session: sa.Connection) -> MariaDb:
        """Return the database with its server's collation: MySQL has other names for collations."""
        is_mariadb = getattr(session.dialect, "is_mariadb", True)
        return MariaDb(self.kind, _COLLATION if is_mariadb else _MYSQL_COLLATION)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            title="MariaDB",
            comparison=True,
            procedures=True,
            most_arguments=None,
            procedure_names=PROCEDURE_NAMES,
            name_case=NameCase.INSENSITIVE,
            streams=True,
            schemas=True,
            foreign_keys=ForeignKeyCheck.AT_ONCE,
            not_for_replication=True,
            script_start="DELIMITER //\n\n",
            script_end="\n//\n\n",
        )

    def url(self, connection: Connection) -> sa.URL:
        """Return the connection's URL. Raises ConfigurationError where it names no database: the model's tables need
        one."""
        if not connection.database:
            raise ConfigurationError(
                f"connection {connection}: it names no database",
                remedy="name the database (Airflow: schema) in which tranrepl keeps its tables and procedures",
            )
        return sa.URL.create(
            "mysql+pymysql",
            connection.login,
            connection.password,
            connection.host or "127.0.0.1",
            connection.port,
            connection.database,
            {"charset": CHARSET},
        )

    def driver_arguments(self, connection: Connection) -> dict[str, Any]:
        return driver_arguments(connection)

    def unused_options(self, connection: Connection) -> Mapping[str, str]:
        return unused_options(connection)

    def configured(self, engine: sa.Engine) -> sa.Engine:
        event.listen(engine, "do_connect", _choose_cursor)
        # Before SQLAlchemy asks for the mode that it quotes names by.
        event.listen(engine, "connect", _prepare, insert=True)
        return engine

    def began(self, session: sa.Connection) -> None:
        session.exec_driver_sql(f"SAVEPOINT {_MARK}")

    def before_commit(self, session: sa.Connection) -> None:
        try:
            session.exec_driver_sql(f"RELEASE SAVEPOINT {_MARK}")
        except DBAPIError as error:
            if _number(error) != _NO_SUCH_SAVEPOINT:
                raise
            raise procedure_ended_transaction(str(_NO_SUCH_SAVEPOINT)) from error

    def constant(self, value: Any, bind: TypeEngine[Any]) -> sa.ColumnElement[Any] | None:
        return sa.literal_column(f"x'{value.hex()}'") if isinstance(value, bytes) else super().constant(value, bind)

    def column_statements(self, session: sa.Connection, place: Place) -> MariaDbColumns:
        return MariaDbColumns(session, place)

    def lock_session(self, session: sa.Connection, name: str) -> bool:
        granted: int | None = session.scalar(_GET_LOCK, {"name": _lock_name(name), "seconds": _LOCK_SECONDS})
        return granted == 1

    def right_problems(
        self, session: sa.Connection, where: str, tables: PublishedTables, replication_tables: Sequence[str]
    ) -> Iterator[ConfigurationError]:
        problem = log_format_problem(session)
        if problem is not None:
            yield ConfigurationError(
                f"{where}: {problem}", **self.error_codes.numbered(_LOG_OF_STATEMENTS), remedy=LOG_FORMAT_REMEDY
            )
        yield from right_problems(session, where, [article for article, _ in tables], replication_tables)

    def grant_of_texts(self, session: sa.Connection) -> str:
        return grant_of_texts(session)

    def wait_for_lock(self, session: sa.Connection, seconds: int) -> None:
        session.execute(
            sa.text("SET SESSION innodb_lock_wait_timeout = :seconds, lock_wait_timeout = :seconds"),
            {"seconds": seconds},
        )

    def configure_session(self, session: sa.Connection, options: ApplierOptions) -> None:
        # A schema change before has set how long it waits.
        session.exec_driver_sql(USUAL_WAITS)
        super().configure_session(session, options)
        if options.not_for_replication:
            # Cascades are among what it keeps from acting; triggers are not.
            session.exec_driver_sql("SET SESSION foreign_key_checks = 0")

    def warnings(self, session: sa.Connection, result: sa.CursorResult[Any]) -> list[str]:
        if not getattr(result.cursor or result.context.cursor, "warning_count", 0):
            return []
        rows = session.exec_driver_sql("SHOW WARNINGS LIMIT 100")
        return [f"{level}: {text} ({code})" for level, code, text in rows]

    def bulk(self, session: sa.Connection, articles: Mapping[int, RegisteredArticle]) -> MariaDbBulk | None:
        own = session.engine.url.database or ""
        places = {number: self.place(it.destination) for number, it in articles.items()}
        known = {number: (schema or own, name) for number, (schema, name) in places.items()}
        rules = bulk_rules(session, articles, known)
        return MariaDbBulk(session, rules) if rules.operations else None

    def bulk_insert(self, session: sa.Connection, article: RegisteredArticle) -> BulkInsert | None:
        schema, name = self.place(article.destination)
        found = bulk_target(session, article, (schema or session.engine.url.database or "", name))
        return None if found is None else partial(MariaDbBulk(session, BulkRules()).insert, found)

    def comparison_ways(self, session: sa.Connection, where: str) -> ComparisonWays:
        del session, where
        return WAYS

    def columns(self, session: sa.Connection, schema: str | None, table: str) -> list[ReflectedColumn]:
        """Return columns with what SQLAlchemy does not see: character sets and collations where they are the table's,
        and what an UPDATE fills."""
        columns = super().columns(session, schema, table)
        rows = session.execute(_COLUMNS, {"schema": schema, "table": table})
        described = {name: (charset, collation, extra) for name, charset, collation, extra in rows}
        for column in columns:
            # Of a table without any right on it, only SHOW COLUMNS may answer.
            charset, collation, extra = described.get(self.column_name(column["name"]), (None, None, ""))
            found: Any = column
            found[FILLS_ITSELF] = "on update" in extra.lower()
            if isinstance(column["type"], sa.String):
                found["type"].charset, found["type"].collation = charset, collation
        return columns

    def refused_column(self, found: ReflectedColumn, source: ColumnDescription) -> str | None:
        kind = found["type"]
        if isinstance(kind, sa.types.NullType):
            return "is of a type whose text form tranrepl does not know"
        counts = found.get("autoincrement") is True
        if not source.not_null and not found["nullable"] and (counts or isinstance(kind, mysql.TIMESTAMP)):
            made = "the next number" if counts else "the time of now"
            return f"makes {made} of NULL, which it may be at the Publisher"
        return None

    def refused_tables(self, session: sa.Connection, places: Sequence[Place]) -> Mapping[Place, Refusal]:
        return tables_of_other_engines(session, places)

    def column_name(self, reflected: str) -> str:
        """Return a column's name with plain quotes: SQLAlchemy takes it from SHOW CREATE TABLE, and leaves them
        doubled."""
        return reflected.replace("``", "`")

    def catalogue(self, session: sa.Connection) -> MariaDbCatalogue:
        return MariaDbCatalogue(session, self.columns, self.column_name)

    def counts_up(self, source: TableDescription, column: ColumnDescription) -> bool:
        """Return whether the Publisher's counts one by one: AUTO_INCREMENT knows no other steps. It has to be the first
        column of a key."""
        numbers = source.sequences.get(column.name)
        return (
            numbers is not None
            and numbers.increment == 1
            and source.key[:1] == (column,)
            and isinstance(self.type_named(column.type_name, column.base_type_name, indexed=True), sa.Integer)
        )

    def sequences(self, session: sa.Connection, where: str) -> MariaDbSequences:
        return MariaDbSequences(self, session, where)

    def column_type(self, source: SourceType, *, indexed: bool) -> TypeEngine[Any]:
        match source.family:
            case Family.NUMERIC:
                return mysql.DECIMAL(*(decimal_digits_of(source)))
            case Family.TEXT | Family.CHARACTER if source.length and indexed:
                return self._varchar(min(source.length, _LONGEST_KEY))
            case Family.TEXT | Family.CHARACTER if source.length and source.length <= _LONGEST_VARCHAR:
                return self._varchar(source.length)
            case Family.UUID:
                return self._varchar(36)
            case Family.BYTES:
                return mysql.VARBINARY(255) if indexed else mysql.LONGBLOB()
            case family if family in TYPES:
                return TYPES[family]
            case _:
                return self._varchar(255) if indexed else mysql.LONGTEXT(charset=CHARSET, collation=self._collation)

    def _varchar(self, length: int) -> mysql.VARCHAR:
        return mysql.VARCHAR(length, charset=CHARSET, collation=self._collation)

    def fit_row(self, table: sa.Table, indexed: Collection[str]) -> None:
        fit_row(table, indexed, mysql.LONGTEXT(charset=CHARSET, collation=self._collation))

    def size_problem(self, table: sa.Table) -> str | None:
        return size_problem(table)

    @property
    def key_collation(self) -> str:
        return self._collation

    def tells_apart(self, collation: str) -> bool:
        return tells_apart(collation)

    def described_type(self, reflected: TypeEngine[Any], dialect: sa.Dialect) -> ColumnType:
        return described_type(reflected, dialect)

    def number(self, error: DBAPIError) -> str | None:
        number = _number(error)
        return None if number is None else str(number)

    def translate(self, where: str, error: SQLAlchemyError | OverflowError) -> ReplicationError:
        problem = super().translate(where, error)
        remedy = _REMEDIES.get(problem.report.code or "")
        if remedy is not None:
            problem.add(ErrorDetails(remedy=remedy()))
        return problem

    def refused(self, connection: Connection, error: DBAPIError) -> ReplicationError:
        return refused_tls(connection, error.orig or error) or super().refused(connection, error)

    def packet_warnings(self, session: sa.Connection, unbounded: Sequence[str]) -> Iterator[str]:
        largest: int = session.scalar(sa.text("SELECT @@max_allowed_packet"))
        if unbounded and largest < USUAL_PACKET:
            yield (
                f"max_allowed_packet is {largest} bytes: the statement that delivers a row may be longer, because of "
                f"{', '.join(unbounded)}. {larger_packets()}"
            )


_COLUMNS = sa.text(
    "SELECT column_name, character_set_name, collation_name, extra FROM information_schema.columns "
    "WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :table"
)


_FOREIGN_KEYS = sa.text(
    "SELECT constraint_name, referenced_table_schema, referenced_table_name, column_name AS column_name, "
    "referenced_column_name AS referenced_column_name FROM information_schema.key_column_usage "
    "WHERE table_schema = :schema AND table_name = :table AND referenced_table_name IS NOT NULL "
    "ORDER BY constraint_name, ordinal_position"
)


class MariaDbCatalogue(InspectedCatalogue):
    def _foreign_keys(self, schema: str | None, table: str) -> list[ReferringColumns]:
        """Read them as the server names them: SQLAlchemy parses names out of a statement."""
        rows = self._session.execute(_FOREIGN_KEYS, {"schema": schema, "table": table}).all()
        found = []
        for (_, *referenced), parts in groupby(rows, lambda row: tuple(row[:3])):
            pairs = [(row.column_name, row.referenced_column_name) for row in parts]
            columns, others = zip(*pairs, strict=True)
            found.append(ReferringColumns(columns, (referenced[0], referenced[1]), others))
        return found


_REMEDIES: Mapping[str, Callable[[], str]] = {
    str(PACKET_TOO_LARGE): larger_packets,
    _LOG_OF_STATEMENTS: lambda: LOG_FORMAT_REMEDY,
    _ROW_TOO_LARGE: lambda: (
        "make its longest columns longtext (ALTER TABLE … MODIFY COLUMN … longtext), or leave columns out "
        "(articles[].columns)"
    ),
}


def _choose_cursor(dialect: sa.Dialect, record: object, arguments: list[Any], keywords: dict[str, Any]) -> None:
    """Set the cursor's class and the password's encoding: PyMySQL's own is Latin-1, whatever the session's character
    set."""
    del dialect, record, arguments
    keywords["cursorclass"] = BoundedCursor
    if isinstance(keywords.get("password"), str):
        keywords["password"] = keywords["password"].encode()


def _prepare(driver: Any, record: object) -> None:
    del record
    notice_dead_peers(driver)
    set_session(driver)


def _lock_name(lock: str) -> str:
    """Return a name that is short enough, and is the server's, not a database's."""
    return f"tranrepl_{sha256(lock.encode()).hexdigest()[:32]}"


def _number(error: DBAPIError) -> int | None:
    found = error.orig.args[0] if error.orig is not None and error.orig.args else None
    return found if isinstance(found, int) else None
