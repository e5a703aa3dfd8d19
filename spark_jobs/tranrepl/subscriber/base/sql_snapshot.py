"""A snapshot at a Subscriber that SQLAlchemy connects to: rows go in by INSERT, many at a time."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.sql import quoted_name

from tranrepl.error_numbers import VALUE_DOES_NOT_FIT
from tranrepl.errors import ConfigurationError, DataError, ReplicationError
from tranrepl.failpoint import Failpoint, reach
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import Operation
from tranrepl.model.row_images import values
from tranrepl.settings.publication import PreCreation
from tranrepl.subscriber.applier import ApplierOptions
from tranrepl.subscriber.base.database import SqlDatabase, translated_errors
from tranrepl.subscriber.base.destination import find_destinations, target
from tranrepl.subscriber.base.execution import BulkInsert
from tranrepl.subscriber.base.snapshot import ModelSnapshot
from tranrepl.subscriber.base.snapshot_rows import SnapshotRows
from tranrepl.subscriber.base.sql_subscriber import SqlSubscriber
from tranrepl.subscriber.base.statements import (
    Command,
    ParameterError,
    Parameters,
    Statement,
    insert_statement,
    key_of,
    parameters,
)
from tranrepl.subscriber.base.target import SqlTarget
from tranrepl.subscriber.batching.steps import MismatchError
from tranrepl.subscriber.row_filter_translation import columns_read, translated_filter
from tranrepl.subscriber.row_not_found import key_text
from tranrepl.subscriber.snapshot import (
    DeletedRows,
    LoadedRange,
    OwnedRows,
    SnapshotArticle,
    fence_after,
    half_delivered,
    load_order,
    not_empty,
    referring,
)
from tranrepl.subscriber.subscription import SubscriptionKey, SubscriptionPosition


class EmptiedTables:
    """The tables as they are in the session."""

    def __init__(self, session: sa.Connection, database: SqlDatabase) -> None:
        self._session = session
        self._database = database

    def parents(self, articles: Iterable[SnapshotArticle]) -> dict[str, list[str]]:
        """Return by article those of the articles that its rows refer to."""
        destinations = {it.article.destination: it.name for it in articles}
        parents: dict[str, list[str]] = {}
        for destination, name in destinations.items():
            keys = self._database.foreign_keys(self._session, destination)
            parents[name] = [destinations[key.referenced] for key in keys if key.referenced in destinations]
        return parents

    def holds_rows(self, it: SnapshotArticle) -> bool:
        query = sa.select(sa.literal(1)).select_from(self._table(it)).limit(1)
        return self._session.execute(query).first() is not None

    def delete(self, rows: OwnedRows) -> None:
        """Delete the rows. Nothing is deleted of an empty table."""
        deletion = sa.delete(self._table(rows.article))
        if rows.condition is not None:
            condition = translated_filter(rows.condition, self._database.sql_name, rows.name)
            deletion = deletion.where(sa.text(condition))
        self._session.execute(deletion)

    def lacking(self, rows: Sequence[OwnedRows]) -> Iterator[tuple[OwnedRows, frozenset[str]]]:
        """Yield those whose tables are there, each with the columns that its condition reads and the table lacks."""
        destinations = [it.article.article.destination for it in rows]
        tables = find_destinations(self._session, self._database, destinations)
        for it, destination in zip(rows, destinations, strict=True):
            table = tables.get(destination)
            read = columns_read(it.condition) if it.condition is not None else frozenset()
            if table is not None:
                yield it, read - table.spelled_as(sorted(read)).columns.keys()

    def _table(self, it: SnapshotArticle) -> sa.TableClause:
        schema, name = self._database.place(it.article.destination)
        return sa.table(
            quoted_name(name, quote=True), schema=None if schema is None else quoted_name(schema, quote=True)
        )


_ROWS_TOGETHER = 1000


class SqlSnapshot(ModelSnapshot):
    """The driver's side. Most databases commit by themselves at a CREATE or DROP: what an earlier snapshot has begun is
    known before any of that is done."""

    def __init__(
        self, session: sa.Connection, database: SqlDatabase, key: SubscriptionKey, subscriber: SqlSubscriber
    ) -> None:
        self._tables = EmptiedTables(session, database)
        super().__init__(session, database, key, subscriber, self._tables)
        self._session = session
        self._database = database
        self._subscriber = subscriber

    def problems(self, articles: Sequence[SnapshotArticle]) -> Iterator[ConfigurationError]:
        untouched = [it for it in articles if it.settings.pre_creation_cmd is PreCreation.NONE]
        interrupted = self._interrupted(untouched)
        with self._subscriber.reading_together([(it.settings, it.source) for it in untouched]):
            for it in untouched:
                if it.name not in interrupted and self._subscriber.has_destination(it.article.destination):
                    with self._transaction():
                        in_the_way = self._tables.holds_rows(it)
                    if in_the_way:
                        yield not_empty(self.where, it)

    def _interrupted(self, articles: Sequence[SnapshotArticle]) -> set[str]:
        """Return the articles whose rows are an earlier snapshot's, which found the table empty."""
        if not articles or not self._subscriber.has_snapshots():
            return set()
        with self._transaction():
            return self._rows.interrupted([it.name for it in articles])

    def delete_before_changes(
        self,
        snapshot: str,
        rows: Sequence[OwnedRows],
        chosen: Collection[str],
        position: SubscriptionPosition,
        *,
        not_for_replication: bool,
    ) -> DeletedRows:
        for problem in self.problems([it.article for it in rows]):
            raise problem
        if position.applied_before is not None and not position.is_half_delivered:
            # A snapshot that was killed while it altered a table had deleted its rows before.
            done = self._interrupted([it.article for it in rows])
            rows = [it for it in rows if it.name not in done]
        self._configure(not_for_replication=not_for_replication)
        with self._transaction():
            self._subscriber.hold(position)
            there = list(self._tables.lacking(rows))
            found = {it.name: it for it, columns in there if not columns}
            parents = {} if not_for_replication else self._tables.parents(it.article for it in found.values())
            deleted = found.keys() & referring(parents, chosen)
            order = load_order({name: set(parents.get(name, ())) & deleted for name in deleted})
            self._rows.announce(snapshot, sorted(deleted))
            for name in [name for level in reversed(order.levels) for name in level]:
                self._tables.delete(found[name])
        left = [it.lacking(self.where, columns) for it, columns in there if columns and it.name in chosen]
        return DeletedRows(frozenset(deleted), tuple(left))

    def begin(
        self, snapshot: str, articles: Sequence[SnapshotArticle], *, whole: bool, not_for_replication: bool
    ) -> bytes:
        for problem in self.problems(articles):
            raise problem
        position = self._subscriber.position()
        if not whole and position.is_half_delivered:
            raise half_delivered(self.where)
        fence = fence_after(position.watermark)
        self._subscriber.move_watermark(position.watermark, fence)
        names = [it.name for it in articles]
        with self._transaction():
            self._rows.announce(snapshot, names)
        self._make_ready(articles, not_for_replication=not_for_replication)
        return fence

    def _configure(self, *, not_for_replication: bool) -> None:
        if not_for_replication:
            self._database.configure_session(self._session, ApplierOptions(not_for_replication=True))
            self._session.rollback()

    def _make_ready(self, articles: Sequence[SnapshotArticle], *, not_for_replication: bool) -> None:
        order = self.load_order(articles, not_for_replication=not_for_replication)
        self._configure(not_for_replication=not_for_replication)
        by_name = {it.name: it for it in articles}
        children_first = [by_name[name] for level in reversed(order.levels) for name in level]
        for it in children_first:
            if it.settings.pre_creation_cmd is PreCreation.DROP:
                with self._transaction():
                    table = self._database.qualified(it.article.destination)
                    self._session.exec_driver_sql(
                        f"DROP TABLE IF EXISTS {table}", execution_options={"no_parameters": True}
                    )
        with self._subscriber.reading_together([(it.settings, it.source) for it in articles]):
            for it in articles:
                self._subscriber.set_up_destination(it.settings, it.source)
        for it in children_first:
            with self._transaction():
                self._tables.delete(it.owned)


_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_NOT_OF_IMAGES = {b"b": b"\b", b"f": b"\f", b"v": b"\v"}


def chunk_images(chunk: bytes) -> pa.StringArray:
    """Return whole rows in COPY's text form as images: COPY escapes more than those do."""
    if any(b"\\" + escape in chunk for escape in _NOT_OF_IMAGES):
        chunk = _ESCAPED.sub(lambda it: _NOT_OF_IMAGES.get(it[1], it[0]), chunk)
    return pc.split_pattern(pa.array([chunk.removesuffix(b"\n")], pa.string()), "\n").flatten()


class SqlLoader:
    """Loads ranges, each in a transaction of its own."""

    def __init__(self, session: sa.Connection, database: SqlDatabase, key: SubscriptionKey, snapshot: str) -> None:
        self._session = session
        self._database = database
        self._rows = SnapshotRows(session, database, key)
        self._snapshot = snapshot
        self._where = f"Subscriber {key.subscription}"

    def load(self, article: RegisteredArticle, number: int, chunks: Iterable[bytes]) -> LoadedRange:
        with translated_errors(f"{self._where}, table {article.destination}", self._database):
            self._session.rollback()
            self._rows.require_announced(self._snapshot, str(article.source), self._where)
            loaded = self._insert(article, number, chunks)
            reach(Failpoint.RANGE_LOADED)
            self._rows.add_range(self._snapshot, loaded)
            self._session.commit()
        reach(Failpoint.RANGE_COMMITTED)
        return loaded

    def _insert(self, article: RegisteredArticle, number: int, chunks: Iterable[bytes]) -> LoadedRange:
        at = target(self._session, self._database, article, self._where)
        prepared, in_bulk = insert_statement(at), self._database.bulk_insert(self._session, article)
        rows = size = 0
        for chunk in filter(None, chunks):
            images = chunk_images(chunk)
            if in_bulk is None or not self._insert_in_bulk(at, prepared, in_bulk, images):
                self._insert_by_values(at, prepared, images)
            rows += len(images)
            size += len(chunk)
        return LoadedRange(str(article.source), number, rows, size)

    def _insert_in_bulk(self, at: SqlTarget, prepared: Statement, insert: BulkInsert, images: pa.StringArray) -> bool:
        """Insert all of the rows, or none: an error of one row is known when it goes by itself. Return whether they
        were inserted."""
        savepoint = self._session.begin_nested()
        try:
            insert(images)
        except MismatchError:
            savepoint.rollback()
            return False
        except SQLAlchemyError as error:
            problem = self._database.translate(self._where, error)
            if not isinstance(problem, DataError | ConfigurationError):
                raise problem from error
            self._require_transaction(at, prepared, images.to_pylist(), problem)
            savepoint.rollback()
            return False
        savepoint.commit()
        return True

    def _insert_by_values(self, at: SqlTarget, prepared: Statement, images: pa.StringArray) -> None:
        for first in range(0, len(images), _ROWS_TOGETHER):
            lines = images.slice(first, _ROWS_TOGETHER).to_pylist()
            bound = [self._bound(at, prepared, line) for line in lines]
            savepoint = self._session.begin_nested()
            try:
                self._session.execute(prepared.executable, bound)
            except SQLAlchemyError as error:
                problem = self._database.translate(self._where, error)
                if not isinstance(problem, DataError):
                    raise problem from error
                self._require_transaction(at, prepared, lines, problem)
                savepoint.rollback()
                self._insert_row_by_row(at, prepared, lines)
            else:
                savepoint.commit()

    def _require_transaction(
        self, at: SqlTarget, prepared: Statement, lines: Sequence[str], problem: ReplicationError
    ) -> None:
        """Raise the problem where its error has ended the transaction, with the range's rows; of a row, if it is one
        row's."""
        if self._database.in_transaction(self._session):
            return
        self._session.rollback()
        self._insert_row_by_row(at, prepared, lines)
        raise problem

    def _insert_row_by_row(self, at: SqlTarget, prepared: Statement, lines: Sequence[str]) -> None:
        """Insert each row by itself. Raises DataError that names the row which does not go in."""
        for line in lines:
            try:
                self._session.execute(prepared.executable, self._bound(at, prepared, line))
            except SQLAlchemyError as error:
                problem = self._database.translate(self._where, error)
                source = str(at.article.source)
                key = key_text(key_of(_insertion(at, line), at))
                raise type(problem)(
                    f"{problem.message} (article {source}, {key})",
                    number=problem.report.number,
                    database_code=problem.report.database_code,
                    remedy=problem.report.remedy,
                    article=source,
                ) from error

    def _bound(self, at: SqlTarget, prepared: Statement, line: str) -> Parameters:
        try:
            return parameters(_insertion(at, line), at, prepared.passed)
        except ParameterError as error:
            raise DataError(
                f"{self._where}, article {at.article.source}: {error}",
                number=VALUE_DOES_NOT_FIT,
                article=str(at.article.source),
            ) from error


def _insertion(at: SqlTarget, line: str) -> Command:
    return Command(b"", 0, at.article.article_id, Operation.INSERT, [], values(line), None)
