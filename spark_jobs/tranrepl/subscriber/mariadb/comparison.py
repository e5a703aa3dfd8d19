"""A MariaDB or MySQL Subscriber's end of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Any

import sqlalchemy as sa
from pymysql.converters import escape_item

from tranrepl.errors import ConfigurationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.comparison import Checksum, ColumnForm, ComparedEnd, HeldRead, Rows
from tranrepl.model.source_types import source_type
from tranrepl.subscriber.comparison import ComparableTable, Correction
from tranrepl.subscriber.generic.command_rows import Command
from tranrepl.subscriber.generic.database import SqlDatabase
from tranrepl.subscriber.generic.destination import column_names, target
from tranrepl.subscriber.generic.session_errors import translated_errors
from tranrepl.subscriber.generic.statements import parameters, shape_of, statement
from tranrepl.subscriber.generic.target import SqlTarget
from tranrepl.subscriber.mariadb.comparison_statements import MariaDbSide, compared_column, form_of
from tranrepl.subscriber.mariadb.sql_text import qualified_name, quoted_name

Connect = Callable[[], AbstractContextManager[sa.Connection]]


class HeldSessions:
    """Sessions whose snapshots show one state: MariaDB cannot import another session's."""

    def __init__(self, sessions: Sequence[sa.Connection], database: SqlDatabase, where: str) -> None:
        self._database = database
        self._where = where
        self._free: SimpleQueue[sa.Connection] = SimpleQueue()
        for session in sessions:
            self._free.put(session)
        self._threads = ThreadPoolExecutor(len(sessions), "tranrepl-validation")

    def read(self, statement: str) -> HeldRead:
        return HeldRead(self, statement)

    def start(self, statement: str) -> Future[Rows]:
        return self._threads.submit(self._rows, statement)

    def _rows(self, statement: str) -> Rows:
        session = self._free.get()
        try:
            with translated_errors(self._where, self._database):
                result = session.exec_driver_sql(statement, execution_options={"no_parameters": True})
                return [tuple(row) for row in result.fetchall()]
        finally:
            self._free.put(session)

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _held_sessions(connect: Connect, database: SqlDatabase, sessions: int, where: str) -> Iterator[HeldSessions]:
    """Open them: what they see from now on is the state of now."""
    with ExitStack() as stack:
        opened: list[sa.Connection] = []
        for _ in range(sessions):
            session = stack.enter_context(connect())
            with translated_errors(where, database):
                session.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                session.exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
            opened.append(session)
        held = HeldSessions(opened, database, where)
        stack.callback(held.close)
        yield held


@dataclass(frozen=True, slots=True)
class MariaDbComparison:
    tables: tuple[ComparableTable, ...]
    problems: tuple[tuple[RegisteredArticle, ConfigurationError], ...]
    _session: sa.Connection
    _database: SqlDatabase
    _held: HeldSessions
    _targets: Mapping[int, SqlTarget]
    """The target of each article_id."""

    def native_hashes(self) -> None:
        """Return None: the hash functions are none that another database has."""

    def end(self, table: ComparableTable, checksum_by: Checksum, part_bytes: int) -> ComparedEnd:
        # A table is read as a whole, and there is one checksum.
        del checksum_by, part_bytes
        found = self._targets[table.article.article_id]
        columns = tuple(
            compared_column(column, form.form, quoted_name(column.name))
            for column, form in zip(found.columns, table.forms, strict=True)
        )
        name = qualified_name(found.schema, found.name)
        return ComparedEnd(MariaDbSide(name, columns, table.article.key_positions), self._held)

    def statement(self, correction: Correction) -> str:
        article = correction.article
        found = replace(self._targets[article.article_id], article=article)
        command = _command(correction)
        made = statement(self._database, found, shape_of(command, found))
        return _with_values(made.executable, parameters(command, found, made.passed), self._session)


@contextmanager
def open_comparison(
    connect: Connect, database: SqlDatabase, articles: Sequence[RegisteredArticle], sessions: int, where: str
) -> Iterator[MariaDbComparison]:
    """Hold snapshots in so many sessions, and look at the tables."""
    with connect() as session, _held_sessions(connect, database, sessions, where) as held:
        targets: dict[int, SqlTarget] = {}
        tables: list[ComparableTable] = []
        problems: list[tuple[RegisteredArticle, ConfigurationError]] = []
        for article in articles:
            try:
                with translated_errors(where, database), session.begin():
                    found = target(session, database, article, where)
                    names = column_names(session, database, article.destination)
            except ConfigurationError as error:
                problems.append((article, error))
                continue
            targets[article.article_id] = found
            tables.append(_comparable(found, names))
        yield MariaDbComparison(tuple(tables), tuple(problems), session, database, held, targets)


def _comparable(found: SqlTarget, names: Sequence[str]) -> ComparableTable:
    forms = tuple(
        ColumnForm(form_of(source_type(published.type_name).family, column.type.type))
        for published, column in zip(found.article.columns, found.columns, strict=True)
    )
    types = {column.name: column.type.spelling for column in found.columns}
    return ComparableTable(found.article, forms, types, tuple(names))


def _command(correction: Correction) -> Command:
    return Command(
        b"",
        0,
        correction.article.article_id,
        correction.operation,
        correction.before or [],
        correction.after or [],
        correction.mask,
    )


def _with_values(executable: sa.Executable, values: dict[str, Any], session: sa.Connection) -> str:
    compiled: Any = executable.compile(dialect=session.dialect)  # type: ignore[attr-defined]
    bound = compiled.construct_params(values)
    processors = compiled._bind_processors
    escaped = {
        name: escape_item(processors[name](value) if name in processors else value, "utf8mb4")
        for name, value in bound.items()
    }
    if compiled.positional:
        return str(compiled) % tuple(escaped[name] for name in compiled.positiontup)
    return str(compiled) % escaped
