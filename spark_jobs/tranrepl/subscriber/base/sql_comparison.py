"""A Subscriber's end of a comparison, where SQLAlchemy reaches it: held sessions, forms, corrections as statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Any

import sqlalchemy as sa

from tranrepl.errors import ConfigurationError, DataError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.comparison import Checksum, ColumnForm, ComparedEnd, HeldRead, Rows
from tranrepl.model.source_types import source_type
from tranrepl.subscriber.base.comparison_statements import ComparisonWays
from tranrepl.subscriber.base.database import SqlDatabase, translated_errors
from tranrepl.subscriber.base.destination import column_names, find_destinations, found_target, target
from tranrepl.subscriber.base.statements import Command, parameters, shape_of, statement
from tranrepl.subscriber.base.target import SqlTarget
from tranrepl.subscriber.comparison import ComparableTable, Correction, Values
from tranrepl.subscriber.value_conversion import UnfitValueError

Connect = Callable[[], AbstractContextManager[sa.Connection]]


class HeldSessions:
    """Sessions whose snapshots show one state: these databases cannot import another session's."""

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
                return _with_texts([tuple(row) for row in result.fetchall()])
        finally:
            self._free.put(session)

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)


def _with_texts(rows: Rows) -> Rows:
    """Return rows whose bytes are in the Publisher's text form; what holds numbers is returned as it is."""
    if not rows or not any(isinstance(it, bytes) for it in rows[0]):
        return rows
    return [tuple(f"\\x{it.hex()}" if isinstance(it, bytes) else it for it in row) for row in rows]


@contextmanager
def _held_sessions(
    connect: Connect, database: SqlDatabase, ways: ComparisonWays, sessions: int, where: str
) -> Iterator[HeldSessions]:
    """Open them: what they see from now on is the state of now."""
    with ExitStack() as stack:
        opened: list[sa.Connection] = []
        for _ in range(sessions):
            session = stack.enter_context(connect())
            with translated_errors(where, database):
                ways.hold(session)
            opened.append(session)
        held = HeldSessions(opened, database, where)
        stack.callback(held.close)
        yield held


@dataclass(frozen=True, slots=True)
class SqlComparison:
    tables: tuple[ComparableTable, ...]
    problems: tuple[tuple[RegisteredArticle, ConfigurationError], ...]
    _session: sa.Connection
    _database: SqlDatabase
    _ways: ComparisonWays
    _held: HeldSessions
    _targets: Mapping[int, SqlTarget]
    """The target of each article_id."""

    @property
    def begin(self) -> str:
        return self._ways.begin

    def native_hashes(self) -> None:
        """Return None: the hash functions are none that another database has."""

    def end(self, table: ComparableTable, checksum_by: Checksum, part_bytes: int) -> ComparedEnd:
        # A table is read as a whole, and there is one checksum.
        del checksum_by, part_bytes
        found = self._targets[table.article.article_id]
        side = self._ways.side(found, [it.form for it in table.forms], self._database.identifiers)
        return ComparedEnd(side, self._held)

    def statement(self, correction: Correction) -> str:
        article = correction.article
        found = replace(self._targets[article.article_id], article=article)
        command = _command(correction)
        made = statement(self._database, found, shape_of(command, found))
        return _with_values(made.executable, parameters(command, found, made.passed), self._session, self._ways.literal)


@contextmanager
def open_comparison(
    connect: Connect, database: SqlDatabase, articles: Sequence[RegisteredArticle], sessions: int, where: str
) -> Iterator[SqlComparison]:
    """Hold snapshots in so many sessions, and look at the tables. Raises ConfigurationError where the rows of this kind
    of database cannot be compared."""
    with ExitStack() as stack:
        session = stack.enter_context(connect())
        database = database.of_server(session)
        with translated_errors(where, database):
            ways = database.comparison_ways(session, where)
        held = stack.enter_context(_held_sessions(connect, database, ways, sessions, where))
        targets: dict[int, SqlTarget] = {}
        tables: list[ComparableTable] = []
        problems: list[tuple[RegisteredArticle, ConfigurationError]] = []
        with translated_errors(where, database), session.begin():
            there = find_destinations(session, database, [it.destination for it in articles])
        for article in articles:
            destination = there.get(article.destination)
            try:
                found = found_target(session, database, article, destination, where)
            except ConfigurationError as error:
                problems.append((article, error))
                continue
            targets[article.article_id] = found
            names = [] if destination is None else column_names(article, destination)
            tables.append(_comparable(found, names, ways))
        yield SqlComparison(tuple(tables), tuple(problems), session, database, ways, held, targets)


def rows_of_key(
    session: sa.Connection, database: SqlDatabase, article: RegisteredArticle, key: Sequence[str | None], where: str
) -> list[Values]:
    """Return the article's row with this key as it is now, in the texts by which people know values."""
    ways = database.comparison_ways(session, where)
    found = target(session, database, article, where)
    shown = [
        ways.compared(it, form.form, database.identifiers.quoted(it.catalogue_name)).shown
        for it, form in zip(found.columns, _comparable(found, (), ways).forms, strict=True)
    ]
    table = found.table()
    try:
        equal = [
            list(table.c)[at] == sa.bindparam(None, None if it is None else column.conversion.convert(it))
            for at, column, it in zip(article.key_positions, found.key_columns, key, strict=True)
        ]
    except UnfitValueError as error:
        raise DataError(f"{where}: {error}") from error
    selected: list[sa.ColumnElement[Any]] = [sa.literal_column(it) for it in shown]
    query = sa.select(*selected).select_from(table).where(*equal)
    rows = _with_texts([tuple(row) for row in session.execute(query)])
    return [[None if it is None else str(it) for it in row] for row in rows]


def _comparable(found: SqlTarget, names: Sequence[str], ways: ComparisonWays) -> ComparableTable:
    forms = tuple(
        ColumnForm(ways.form(source_type(published.type_name).family, column.type))
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


def _with_values(
    executable: sa.Executable, values: dict[str, Any], session: sa.Connection, literal: Callable[[Any], str]
) -> str:
    dialect = session.dialect
    if dialect.paramstyle == "qmark":
        named: Callable[..., sa.Dialect] = type(dialect)
        dialect = named(paramstyle="pyformat")
    compiled: Any = executable.compile(dialect=dialect)  # type: ignore[attr-defined]
    bound = compiled.construct_params(values)
    processors = compiled._bind_processors
    written = {name: literal(processors[name](value) if name in processors else value) for name, value in bound.items()}
    if compiled.positional:
        return str(compiled) % tuple(written[name] for name in compiled.positiontup)
    return str(compiled) % written
