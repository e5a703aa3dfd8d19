"""A subscription's rows of `MSreplication_snapshots`: which snapshot loads an article, and what of it is loaded."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from tranrepl.subscriber.base.database import RowLock, SqlDatabase
from tranrepl.subscriber.replication_tables import SNAPSHOTS, of_subscription
from tranrepl.subscriber.snapshot import CopiedArticle, ExpectedRanges, LoadedRange, another_snapshot
from tranrepl.subscriber.subscription import SubscriptionKey


class SnapshotRows:
    """Read and written in whatever transaction is open."""

    def __init__(self, session: sa.Connection, database: SqlDatabase, key: SubscriptionKey) -> None:
        self._session = session
        self._database = database
        self._key = key
        self._mine = of_subscription(SNAPSHOTS, key)
        self._of_articles = sa.and_(self._mine, SNAPSHOTS.c.range_number == 0)

    def exist(self) -> bool:
        """Return whether the table is there."""
        return self._database.has_table(self._session, SNAPSHOTS)

    def interrupted(self, names: Collection[str]) -> set[str]:
        """Return those of the articles whose rows are an earlier snapshot's, which found the table empty."""
        columns = SNAPSHOTS.c
        query = sa.select(columns.article).where(self._of_articles, columns.article.in_(names), columns.snapshot != "")
        return set(self._session.scalars(query)) if names else set()

    def initialized(self) -> dict[str, bytes]:
        """Return by article the last transaction that is in the snapshot which its table began with."""
        columns = SNAPSHOTS.c
        query = sa.select(columns.article, columns.xact_seqno).where(self._of_articles, columns.xact_seqno.is_not(None))
        return {row.article: bytes(row.xact_seqno) for row in self._session.execute(query)}

    def _locked(self, names: Collection[str], *conditions: sa.ColumnElement[bool]) -> Sequence[Any]:
        query = sa.select(SNAPSHOTS.c.article).where(self._of_articles, SNAPSHOTS.c.article.in_(names), *conditions)
        return self._database.locked_rows(self._session, SNAPSHOTS, query)

    def announce(self, snapshot: str, names: Collection[str]) -> None:
        """Announce a snapshot: from here on, no other one loads these articles."""
        columns = SNAPSHOTS.c
        of_names = sa.and_(self._mine, columns.article.in_(names))
        self._locked(names)
        self._session.execute(sa.delete(SNAPSHOTS).where(of_names, columns.range_number != 0))
        self._session.execute(
            sa.update(SNAPSHOTS)
            .where(of_names)
            .values(snapshot=snapshot, range_count=None, range_bounds=None, time=sa.func.current_timestamp())
        )
        known = set(self._session.scalars(sa.select(columns.article).where(of_names)))
        new = [self._row(name, 0, snapshot) for name in names if name not in known]
        if new:
            self._session.execute(sa.insert(SNAPSHOTS), new)

    def expect(self, snapshot: str, xact_seqno: bytes, ranges: Sequence[ExpectedRanges]) -> None:
        """Record by which ranges a snapshot that is announced loads articles, and the last transaction that they
        show."""
        columns = SNAPSHOTS.c
        update = (
            sa.update(SNAPSHOTS)
            .where(self._of_articles, columns.article == sa.bindparam("of_article"), columns.snapshot == snapshot)
            .values(
                loading_seqno=xact_seqno,
                article_id=sa.bindparam("definition"),
                range_count=sa.bindparam("ranges"),
                range_bounds=sa.bindparam("bounds"),
            )
        )
        if ranges:
            each = [
                {
                    "of_article": str(it.article.source),
                    "definition": it.article.article_id,
                    "ranges": it.count,
                    "bounds": None if it.bounds is None else ",".join(map(str, it.bounds)),
                }
                for it in ranges
            ]
            self._session.execute(update, each)

    def move(self, name: str, xact_seqno: bytes) -> None:
        """Record that the rows of an article that are loaded show all up to another transaction."""
        of_name = sa.and_(self._of_articles, SNAPSHOTS.c.article == name)
        self._session.execute(sa.update(SNAPSHOTS).where(of_name).values(loading_seqno=xact_seqno))

    def copied(self) -> dict[str, CopiedArticle]:
        """Return the articles of which all ranges are loaded, or some that another snapshot can go on with, by a
        snapshot that has not ended."""
        columns = SNAPSHOTS.c
        ranges = (
            sa.select(
                columns.article,
                columns.snapshot,
                sa.func.count().label("loaded"),
                sa.func.sum(columns.row_count).label("row_count"),
            )
            .where(self._mine, columns.range_number != 0)
            .group_by(columns.article, columns.snapshot)
            .subquery()
        )
        of_one = sa.and_(ranges.c.article == columns.article, ranges.c.snapshot == columns.snapshot)
        query = (
            sa.select(
                columns.article,
                columns.article_id,
                columns.loading_seqno,
                columns.range_bounds,
                columns.range_count,
                ranges.c.row_count,
                ranges.c.loaded,
            )
            .join(ranges, of_one)
            .where(self._of_articles, columns.range_count.is_not(None))
        )
        found = {
            row.article: CopiedArticle(
                row.article_id,
                bytes(row.loading_seqno),
                int(row.row_count),
                row.range_count == row.loaded,
                None if row.range_bounds is None else tuple(map(int, filter(None, row.range_bounds.split(",")))),
            )
            for row in self._session.execute(query)
        }
        return {name: it for name, it in found.items() if it.is_whole or it.bounds is not None}

    def keep(self, snapshot: str, kept: Mapping[str, bytes], where: str) -> None:
        """Let articles of which rows are copied be this snapshot's, and give up the ranges of all others: neither is
        loaded by the snapshot of before any more. `kept`: by article, the last transaction that its rows show. Raises
        FencedError where another snapshot has taken them since they were looked at."""
        columns = SNAPSHOTS.c
        begun = set(self._session.scalars(sa.select(columns.article).where(self._mine, columns.range_number != 0)))
        given_up = sorted(begun.difference(kept))
        if given_up:
            self.announce(snapshot, given_up)
        if kept:
            self._locked(kept)
            copied = self.copied()
            if any(name not in copied or copied[name].xact_seqno != xact_seqno for name, xact_seqno in kept.items()):
                raise another_snapshot(where)
            self._session.execute(
                sa.update(SNAPSHOTS).where(self._mine, columns.article.in_(kept)).values(snapshot=snapshot)
            )

    def require_registered(self, snapshot: str, name: str, where: str) -> None:
        """Keep other snapshots from beginning while a range of the article is loaded. Raises FencedError where one
        has."""
        query = sa.select(SNAPSHOTS.c.snapshot).where(self._of_articles, SNAPSHOTS.c.article == name)
        registered = self._database.locked_rows(self._session, SNAPSHOTS, query, RowLock.SHARED)
        if [row.snapshot for row in registered] != [snapshot]:
            raise another_snapshot(where)

    def add_range(self, snapshot: str, loaded: LoadedRange) -> None:
        """Record that a range is loaded."""
        row = self._row(loaded.article, loaded.number, snapshot)
        self._session.execute(sa.insert(SNAPSHOTS).values(**row, row_count=loaded.rows, byte_count=loaded.bytes))

    def loaded(self, snapshot: str) -> list[LoadedRange]:
        """Return the ranges that are loaded of a snapshot."""
        columns = SNAPSHOTS.c
        query = sa.select(columns.article, columns.range_number, columns.row_count, columns.byte_count)
        found = self._session.execute(query.where(self._mine, columns.snapshot == snapshot, columns.range_number != 0))
        return [LoadedRange(*row) for row in found]

    def require_held(self, snapshot: str, names: Collection[str], where: str) -> None:
        """Lock the articles' rows. Raises FencedError where another snapshot loads one of them."""
        if len(self._locked(names, SNAPSHOTS.c.snapshot == snapshot)) != len(names):
            raise another_snapshot(where)

    def end(self, names: Collection[str], xact_seqno: bytes) -> None:
        """Record that the articles are complete, and show all up to `xact_seqno`."""
        columns = SNAPSHOTS.c
        of_names = sa.and_(self._mine, columns.article.in_(names))
        self._session.execute(sa.delete(SNAPSHOTS).where(of_names, columns.range_number != 0))
        self._session.execute(
            sa.update(SNAPSHOTS).where(of_names).values(snapshot="", deferred=None, xact_seqno=xact_seqno)
        )

    def add_created(self, name: str) -> None:
        """Record that setup made the article's table. It has no rows that were copied."""
        of_name = sa.and_(self._of_articles, SNAPSHOTS.c.article == name)
        update = sa.update(SNAPSHOTS).where(of_name).values(created=True, range_count=None)
        if not self._session.execute(update).rowcount:
            self._session.execute(sa.insert(SNAPSHOTS).values(**self._row(name, 0, ""), created=True))

    def created(self) -> set[str]:
        """Return the articles whose tables setup made."""
        return set(self._session.scalars(sa.select(SNAPSHOTS.c.article).where(self._of_articles, SNAPSHOTS.c.created)))

    def defer(self, name: str, deferred: str | None) -> None:
        """Write down what is built of the article's table after the load."""
        of_name = sa.and_(self._of_articles, SNAPSHOTS.c.article == name)
        self._session.execute(sa.update(SNAPSHOTS).where(of_name).values(deferred=deferred))

    def deferred(self, names: Collection[str]) -> Mapping[str, str]:
        """Return by article what is to be built after the load, where there is anything."""
        columns = SNAPSHOTS.c
        query = sa.select(columns.article, columns.deferred).where(
            self._of_articles, columns.article.in_(names), columns.deferred.is_not(None)
        )
        return {row.article: row.deferred for row in self._session.execute(query)}

    def _row(self, article: str, number: int, snapshot: str) -> dict[str, object]:
        key = self._key
        return {
            "publisher": key.publisher,
            "publisher_system": key.publisher_system,
            "publisher_db": key.publisher_db,
            "publication": key.publication,
            "subscription": key.subscription,
            "article": article,
            "range_number": number,
            "snapshot": snapshot,
        }
