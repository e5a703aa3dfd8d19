"""A snapshot at one subscription's Subscriber: what Spark's driver does, and the ranges that executors load."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

import pyarrow as pa
import sqlalchemy as sa

from tranrepl.errors import ConfigurationError
from tranrepl.failpoint import Failpoint, reach
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.settings.publication import PreCreation
from tranrepl.subscriber.applier_options import ApplierOptions
from tranrepl.subscriber.base.database import SqlDatabase
from tranrepl.subscriber.base.destination import find_destinations
from tranrepl.subscriber.base.execution import execute_ddl
from tranrepl.subscriber.base.identifiers import table_clause
from tranrepl.subscriber.base.snapshot_rows import SnapshotRows
from tranrepl.subscriber.base.subscriber import Subscriber
from tranrepl.subscriber.capabilities import ForeignKeyCheck
from tranrepl.subscriber.foreign_keys import ForeignKey
from tranrepl.subscriber.row_filter_translation import columns_read, translated_filter
from tranrepl.subscriber.snapshot import (
    CopiedArticle,
    DeletedRows,
    ExpectedRanges,
    LoadedRange,
    LoadOrder,
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
    """The tables that a snapshot empties, as they are in the session: of the article's rows, in the open
    transaction."""

    def __init__(self, subscriber: Subscriber) -> None:
        self._session, self._database = subscriber.session, subscriber.database

    def parents(self, articles: Iterable[SnapshotArticle]) -> dict[str, list[str]]:
        """Return by article those of the articles that its rows refer to."""
        names = {self._database.place(it.article.destination): it.name for it in articles}
        able = self._database.capabilities.foreign_keys is not ForeignKeyCheck.NONE
        found = self._database.catalogue(self._session).foreign_keys(list(names)) if able else {}
        return {
            name: [names[key.referenced] for key in found.get(place, ()) if key.acts and key.referenced in names]
            for place, name in names.items()
        }

    def holds_rows(self, it: SnapshotArticle) -> bool:
        query = sa.select(sa.literal(1)).select_from(self._table(it)).limit(1)
        return self._session.execute(query).first() is not None

    def _table(self, it: SnapshotArticle) -> sa.TableClause:
        return table_clause(self._database.place(it.article.destination))

    def lacking(self, rows: Sequence[OwnedRows]) -> Iterator[tuple[OwnedRows, frozenset[str]]]:
        """Yield those whose tables are there, each with the columns that its condition reads and the table lacks."""
        tables = find_destinations(self._session, self._database, [it.article.article.destination for it in rows])
        for it in (it for it in rows if it.article.article.destination in tables):
            read = columns_read(it.condition) if it.condition is not None else frozenset()
            there = tables[it.article.article.destination].spelled_as(sorted(read)).columns
            yield it, read - there.keys()

    def delete_all(self, rows: Collection[OwnedRows], parents: Mapping[str, Collection[str]]) -> None:
        """Delete the rows of articles, which may refer to `parents`, by name. Raises ConfigurationError where these
        make a circle that the database cannot delete."""
        by_name = {it.name: it for it in rows}
        order = load_order({name: by_name.keys() & set(parents.get(name, ())) for name in by_name})
        for name in [name for level in reversed(order.levels) for name in level]:
            self.delete(by_name[name])

    def delete(self, rows: OwnedRows) -> None:
        """Delete the rows. Nothing is deleted of an empty table."""
        deletion = sa.delete(self._table(rows.article))
        if rows.condition is not None:
            condition = translated_filter(rows.condition, self._database.sql_name, rows.name)
            deletion = deletion.where(sa.text(condition))
        self._session.execute(deletion)


class Snapshot:
    """It is one transaction up to the load where DDL is part of a transaction. Elsewhere the database commits by itself
    at a CREATE or DROP: what an earlier snapshot has begun is known before any of that is done."""

    def __init__(self, subscriber: Subscriber, tables: EmptiedTables | None = None) -> None:
        self.where = subscriber.where
        self._session, self._database = subscriber.session, subscriber.database
        self._model = subscriber
        self._emptied = EmptiedTables(subscriber) if tables is None else tables
        self._rows = SnapshotRows(subscriber.session, subscriber.database, subscriber.key)

    def _transaction(self) -> AbstractContextManager[None]:
        return self._database.transaction(self._session, self.where)

    def problems(self, articles: Sequence[SnapshotArticle]) -> Iterator[ConfigurationError]:
        """Yield an error for the destinations that hold rows, which `pre_creation_cmd: none` leaves alone."""
        untouched = [it for it in articles if it.settings.pre_creation_cmd is PreCreation.NONE]
        interrupted = self._interrupted(untouched)
        with self._model.reading_together([(it.settings, it.source) for it in untouched]):
            in_the_way = [it for it in untouched if it.name not in interrupted and self._is_in_the_way(it)]
        if in_the_way:
            yield not_empty(self.where, in_the_way)

    def _is_in_the_way(self, article: SnapshotArticle) -> bool:
        if not self._model.has_destination(article.article.destination):
            return False
        with self._transaction():
            return self._emptied.holds_rows(article)

    def _interrupted(self, articles: Sequence[SnapshotArticle]) -> set[str]:
        """Return the articles whose rows are an earlier snapshot's, which found the table empty."""
        if not articles or not self._model.has_snapshots():
            return set()
        with self._transaction():
            return self._rows.interrupted([it.name for it in articles])

    def copied(self, articles: Iterable[SnapshotArticle]) -> dict[str, CopiedArticle]:
        """Return those of the articles whose rows an earlier snapshot, which did not end, has copied, all or ranges of
        keys, to tables that are still there, and not empty since: as by hand, or after a crash where they are
        unlogged."""
        if not self._model.has_snapshots():
            return {}
        with self._transaction():
            copied = self._rows.copied()
            places = {it.article.destination: it for it in articles if it.name in copied}
            there = find_destinations(self._session, self._database, list(places)) if places else {}
            found = [it for place, it in places.items() if place in there]
            return {
                it.name: copied[it.name] for it in found if not copied[it.name].rows or self._emptied.holds_rows(it)
            }

    def tied(self, articles: Sequence[SnapshotArticle], foreign_keys: Iterable[ForeignKey]) -> dict[str, set[str]]:
        """Return by article those that it refers to, or that refer to it, by foreign keys of the destinations: by those
        that act, that were left for after the load, and the given ones."""
        names = {it.article.destination: it.name for it in articles}
        pairs = [(it.table, it.referenced) for it in foreign_keys]
        with self._transaction():
            named = [(name, it) for name, parents in self._emptied.parents(articles).items() for it in parents]
            pairs += self._left_foreign_keys(articles)
        named += [(names[one], names[other]) for one, other in pairs if one in names and other in names]
        found: dict[str, set[str]] = {it.name: set() for it in articles}
        for one, other in named:
            found[one].add(other)
            found[other].add(one)
        return found

    def _left_foreign_keys(self, articles: Sequence[SnapshotArticle]) -> list[tuple[TableName, TableName]]:
        """Return the foreign keys that an earlier snapshot left for after the load: table and referenced table."""
        del articles
        return []

    def keep(self, snapshot: str, kept: Mapping[str, bytes]) -> None:
        """Let articles that are `copied` be of this snapshot, which does not copy those rows again, and give up ranges
        of all others. `kept`: by article, the last transaction that its rows show. Raises FencedError where another
        snapshot has taken them meanwhile."""
        if self._model.has_snapshots():
            with self._transaction():
                self._rows.keep(snapshot, kept, self.where)

    def delete_before_changes(
        self,
        snapshot: str,
        rows: Sequence[OwnedRows],
        chosen: Collection[str],
        position: SubscriptionPosition,
        *,
        not_for_replication: bool,
    ) -> DeletedRows:
        """Delete those of the rows that are of the chosen articles, by name, and of articles that refer to them, while
        the tables stand as the conditions say: once they are altered, no condition may tell these rows from others'.

        Ranges of earlier snapshots do not load them any more. An article is left out whose table is not there, or
        lacks what its condition reads: the result says so of a chosen one.

        Raises FencedError where the subscription is not at `position` any more, ConfigurationError where a destination
        is not empty.
        """
        with self._database.together(self._session, self.where):
            for problem in self.problems([it.article for it in rows]):
                raise problem
            if position.applied_before is not None and not position.is_half_delivered:
                # A snapshot that was killed while it altered a table had deleted its rows before.
                done = self._interrupted([it.article for it in rows])
                rows = [it for it in rows if it.name not in done]
            self._configure(not_for_replication=not_for_replication)
            with self._transaction():
                self._model.hold(position)
                there = list(self._emptied.lacking(rows))
                found = {it.name: it for it, columns in there if not columns}
                parents = {} if not_for_replication else self._emptied.parents(it.article for it in found.values())
                deleted = found.keys() & referring(parents, chosen)
                self._rows.announce(snapshot, sorted(deleted))
                self._emptied.delete_all([found[it] for it in sorted(deleted)], parents)
        left = [it.lacking(self.where, columns) for it, columns in there if columns and it.name in chosen]
        return DeletedRows(frozenset(deleted), tuple(left))

    def begin(
        self, snapshot: str, articles: Sequence[SnapshotArticle], *, whole: bool, not_for_replication: bool
    ) -> bytes:
        """Fence off deliveries that are on their way and ranges of earlier snapshots, and make the destinations ready.
        Returns the watermark that stands for this snapshot from now on.

        Raises ConfigurationError where a destination is not empty, TransientError where a commit batch is half
        delivered and the subscription as such goes on (not `whole`).
        """
        with self._database.together(self._session, self.where):
            for problem in self.problems(articles):
                raise problem
            position = self._model.position()
            if not whole and position.is_half_delivered:
                raise half_delivered(self.where)
            fence = fence_after(position.watermark)
            self._model.move_watermark(position.watermark, fence)
            # A delivery that was on its way may have filled a table meanwhile.
            for problem in self.problems(articles):
                raise problem
            interrupted = self._interrupted(articles)
            with self._transaction():
                # Ranges that still load hold these rows first, and the tables after.
                self._rows.announce(snapshot, [it.name for it in articles])
            self._make_ready(articles, interrupted, not_for_replication=not_for_replication)
        return fence

    def _configure(self, *, not_for_replication: bool) -> None:
        """Keep foreign keys from acting where they are not to."""
        if not_for_replication:
            self._database.configure_session(self._session, ApplierOptions(not_for_replication=True))
            self._session.rollback()

    def _make_ready(
        self, articles: Sequence[SnapshotArticle], interrupted: Collection[str], *, not_for_replication: bool
    ) -> None:
        """Create the destinations that lack, and empty the others; `interrupted` hold rows of an earlier snapshot that
        found them empty."""
        order = self.load_order(articles, not_for_replication=not_for_replication)
        self._configure(not_for_replication=not_for_replication)
        by_name = {it.name: it for it in articles}
        children_first = [by_name[name] for level in reversed(order.levels) for name in level]
        for it in children_first:
            if it.settings.pre_creation_cmd is PreCreation.DROP:
                with self._transaction():
                    table = self._database.qualified(it.article.destination)
                    execute_ddl(self._session, f"DROP TABLE IF EXISTS {table}")
        with self._model.reading_together([(it.settings, it.source) for it in articles]):
            for it in articles:
                self._model.set_up_destination(it.settings, it.source)
        for it in children_first:
            if it.settings.pre_creation_cmd is not PreCreation.NONE or it.name in interrupted:
                with self._transaction():
                    self._emptied.delete(it.owned)

    def load_order(self, articles: Sequence[SnapshotArticle], *, not_for_replication: bool) -> LoadOrder:
        """Return which destinations must be loaded before which, by the foreign keys that act there. Raises
        ConfigurationError where they have no order."""
        if not_for_replication:
            return load_order(dict.fromkeys((it.name for it in articles), ()))
        with self._transaction():
            return load_order(self._emptied.parents(articles))

    def expect(self, snapshot: str, xact_seqno: bytes, ranges: Sequence[ExpectedRanges]) -> None:
        """Record which ranges will be all of each article, and which transaction is the last that they show."""
        with self._transaction():
            self._rows.expect(snapshot, xact_seqno, ranges)

    def loaded(self, snapshot: str) -> list[LoadedRange]:
        """Return the ranges that are committed of this snapshot."""
        with self._transaction():
            return self._rows.loaded(snapshot)

    def build(self, article: SnapshotArticle) -> None:
        """Build the indexes of one destination that were left for after the load, where the database leaves any.
        Several sessions may, each another one's."""
        del article

    def finish(self, articles: Sequence[SnapshotArticle], foreign_keys: Sequence[ForeignKey]) -> None:
        """Make the foreign keys that were left for after the load."""
        dropped = {it.article.destination for it in articles if it.settings.pre_creation_cmd is PreCreation.DROP}
        again = [it for it in foreign_keys if it.table in dropped or it.referenced in dropped]
        self._model.set_up_foreign_keys(again, {it.table for it in again})

    def end(self, snapshot: str, began: Mapping[str, bytes], fence: bytes, watermark: bytes | None) -> None:
        """Record that the load is complete; `began`: by article, the last transaction that its rows show. Where the
        subscription as such begins, it does so with a watermark. Raises FencedError where another snapshot or delivery
        was here since `begin`."""
        with self._transaction():
            self._rows.require_held(snapshot, began.keys(), self.where)
            # It raises FencedError where the watermark is another one.
            self._model.move_in_transaction(fence, fence_after(fence) if watermark is None else watermark)
            for xact_seqno in set(began.values()):
                self._rows.end([name for name, it in began.items() if it == xact_seqno], xact_seqno)


class Loader(ABC):
    """Loads ranges over one connection of an executor, each in a transaction of its own."""

    def __init__(self, session: sa.Connection, database: SqlDatabase, key: SubscriptionKey, snapshot: str) -> None:
        self._session, self._database = session, database
        self._rows = SnapshotRows(session, database, key)
        self._snapshot = snapshot
        self._where = f"Subscriber {key.subscription}"

    def load(self, article: RegisteredArticle, number: int, chunks: Iterable[bytes]) -> LoadedRange:
        """Load one range, whole rows in PostgreSQL's COPY text form, and commit it with its row of
        `MSreplication_snapshots`. Where `chunks` can be read again, an error names the row that it is of. Raises
        FencedError where another snapshot has begun."""
        with self._transaction(f"{self._where}, table {article.destination}"):
            self._rows.require_registered(self._snapshot, str(article.source), self._where)
            loaded = LoadedRange(str(article.source), number, *self._insert(article, chunks))
            reach(Failpoint.RANGE_LOADED)
            self._rows.add_range(self._snapshot, loaded)
        reach(Failpoint.RANGE_COMMITTED)
        return loaded

    def replace(
        self, article: RegisteredArticle, xact_seqno: bytes, keys: pa.StringArray, chunks: Iterable[bytes]
    ) -> None:
        """Delete rows that are loaded by these keys (lines of the key's values), load others in their place as `load`
        does, and commit that what is loaded shows all up to a transaction."""
        with self._transaction(f"{self._where}, table {article.destination}"):
            self._rows.require_registered(self._snapshot, str(article.source), self._where)
            self._delete(article, keys)
            self._insert(article, chunks)
            reach(Failpoint.RANGES_BROUGHT_FORWARD)
            self._rows.move(str(article.source), xact_seqno)

    def _transaction(self, where: str) -> AbstractContextManager[None]:
        return self._database.transaction(self._session, where)

    @abstractmethod
    def _insert(self, article: RegisteredArticle, chunks: Iterable[bytes]) -> tuple[int, int]:
        """Insert the rows; return how many there were, and how many bytes."""

    @abstractmethod
    def _delete(self, article: RegisteredArticle, keys: pa.StringArray) -> None:
        """Delete the rows with these keys, as far as they are there."""
