"""A snapshot at a PostgreSQL Subscriber: tables made ready, ranges loaded by COPY, indexes built after."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from psycopg import sql

from tranrepl.errors import ConfigurationError, DataError
from tranrepl.failpoint import Failpoint, reach
from tranrepl.model.article import RegisteredArticle
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.settings.publication import PreCreation
from tranrepl.subscriber.foreign_keys import ForeignKey
from tranrepl.subscriber.postgres.emptied_tables import EmptiedTables
from tranrepl.subscriber.postgres.procedures import trusted
from tranrepl.subscriber.postgres.replication_tables import SNAPSHOTS
from tranrepl.subscriber.postgres.subscriber import PostgresSubscriber
from tranrepl.subscriber.postgres.users_code import leave_path
from tranrepl.subscriber.snapshot import (
    DeletedRows,
    LoadedRange,
    LoadOrder,
    OwnedRows,
    SnapshotArticle,
    another_snapshot,
    fence_after,
    half_delivered,
    load_order,
    not_empty,
)
from tranrepl.subscriber.subscription import SubscriptionKey, SubscriptionPosition

_MINE = sql.SQL("publisher_system = %s AND publisher_db = %s AND publication = %s AND subscription = %s")

# What setup gave the table, to be built again after the load: foreign keys last, and dropped first.
_DEFERRABLE = """
SELECT found.rank, found.remove, found.create FROM (
    SELECT CASE c.contype WHEN 'f' THEN 2 ELSE 0 END AS rank,
           format('ALTER TABLE %%s DROP CONSTRAINT %%I', c.conrelid::regclass, c.conname) AS remove,
           format('ALTER TABLE %%s ADD CONSTRAINT %%I %%s', c.conrelid::regclass, c.conname,
                  pg_catalog.pg_get_constraintdef(c.oid)) AS create
      FROM pg_catalog.pg_constraint c
     WHERE c.conrelid = %(table)s AND c.contype IN ('f', 'p', 'u', 'x')
    UNION ALL
    SELECT 1, format('DROP INDEX %%s', i.indexrelid::regclass), pg_catalog.pg_get_indexdef(i.indexrelid)
      FROM pg_catalog.pg_index i
     WHERE i.indrelid = %(table)s AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint c
           WHERE c.conindid = i.indexrelid AND c.contype IN ('p', 'u', 'x'))) found
 ORDER BY found.rank
"""
_FOREIGN_KEY = 2
_BUILDS = re.compile(r"ALTER TABLE [^;]+? ADD CONSTRAINT |CREATE (UNIQUE )?INDEX ")
_REFERENCED_FROM = """
SELECT EXISTS (SELECT FROM pg_catalog.pg_constraint
                WHERE contype = 'f' AND confrelid = %(table)s AND conrelid <> ALL (%(ours)s::oid[]))
"""


class PostgresSnapshot:
    """The driver's side. Everything up to the load is one transaction."""

    def __init__(self, session: Session, key: SubscriptionKey, subscriber: PostgresSubscriber) -> None:
        self._session = session
        self._subscriber = subscriber
        self._tables = EmptiedTables(session)
        self._mine = [key.publisher_system, key.publisher_db, key.publication, key.subscription]
        self._key = key
        self.where = subscriber.where

    def problems(self, articles: Sequence[SnapshotArticle]) -> Iterator[ConfigurationError]:
        with translated_errors(self.where), self._session.transaction():
            for it in articles:
                if self._is_in_the_way(it):
                    yield not_empty(self.where, it)

    def _is_in_the_way(self, it: SnapshotArticle) -> bool:
        return (
            it.settings.pre_creation_cmd is PreCreation.NONE
            and self._subscriber.has_destination(it.article.destination)
            and not self._was_interrupted(it)
            and self._holds_rows(it)
        )

    def _holds_rows(self, it: SnapshotArticle) -> bool:
        statement = sql.SQL("SELECT EXISTS (SELECT FROM {})").format(qualified(it.article.destination))
        return self._session.execute(statement).fetchone() == (True,)

    def _was_interrupted(self, it: SnapshotArticle) -> bool:
        """Return whether the article's rows are an earlier snapshot's, which found the table empty."""
        if not self._subscriber.has_snapshots():
            return False
        row = self._session.execute(
            sql.SQL("SELECT FROM {} WHERE {} AND article = %s AND range_number = 0 AND snapshot <> ''").format(
                SNAPSHOTS, _MINE
            ),
            [*self._mine, it.name],
        ).fetchone()
        return row is not None

    def delete_before_changes(
        self,
        snapshot: str,
        rows: Sequence[OwnedRows],
        chosen: Collection[str],
        position: SubscriptionPosition,
        *,
        not_for_replication: bool,
    ) -> DeletedRows:
        with translated_errors(self.where), self._session.transaction():
            self._subscriber.hold(position)
            self._lock(not_for_replication=not_for_replication)
            for problem in self.problems([it.article for it in rows]):
                raise problem
            found = list(self._tables.lacking(rows))
            told = [it for it, columns in found if not columns]
            deleted = self._tables.delete_chosen(told, chosen, keys_act=not not_for_replication)
            for it in deleted:
                self._announce(snapshot, it.article)
        left = [it.lacking(self.where, columns) for it, columns in found if columns and it.name in chosen]
        return DeletedRows(frozenset(it.name for it in deleted), tuple(left))

    def begin(
        self, snapshot: str, articles: Sequence[SnapshotArticle], *, whole: bool, not_for_replication: bool
    ) -> bytes:
        with translated_errors(self.where), self._session.transaction():
            fence = self._fence_off(whole=whole)
            self._lock(not_for_replication=not_for_replication)
            for problem in self.problems(articles):
                raise problem
            self._drop([it for it in articles if it.settings.pre_creation_cmd is PreCreation.DROP])
            for it in articles:
                self._subscriber.set_up_destination(it.settings, it.source)
            self._defer_indexes(articles)
            self._empty(articles)
            for it in articles:
                self._announce(snapshot, it)
        return fence

    def _lock(self, *, not_for_replication: bool) -> None:
        # Ranges that still load hold these first, and the tables after.
        self._session.execute(
            sql.SQL("SELECT FROM {} WHERE {} AND range_number = 0 FOR UPDATE").format(SNAPSHOTS, _MINE), self._mine
        )
        if not_for_replication:
            self._session.execute("SET LOCAL session_replication_role = replica")

    def _fence_off(self, *, whole: bool) -> bytes:
        position = self._subscriber.position()
        if position.unfinished is not None and not whole:
            raise half_delivered(self.where)
        fence = fence_after(position.watermark)
        self._subscriber.move_watermark(position.watermark, fence)
        return fence

    def _drop(self, articles: Sequence[SnapshotArticle]) -> None:
        found = [it for it in articles if self._subscriber.has_destination(it.article.destination)]
        if found:
            tables = sql.SQL(", ").join(qualified(it.article.destination) for it in found)
            self._session.execute(sql.SQL("DROP TABLE {}").format(tables))

    def _empty(self, articles: Sequence[SnapshotArticle]) -> None:
        truncated: list[SnapshotArticle] = []
        deleted: list[OwnedRows] = []
        for it in articles:
            command = it.settings.pre_creation_cmd
            if command is PreCreation.DELETE:
                deleted.append(it.owned)
            elif command is PreCreation.TRUNCATE or (command is PreCreation.NONE and self._was_interrupted(it)):
                if command is PreCreation.TRUNCATE or self._tables.may_truncate(it):
                    truncated.append(it)
                else:
                    deleted.append(it.owned)
        if truncated:
            self._tables.truncate(truncated)
        if deleted:
            self._tables.delete(deleted)

    def _defer_indexes(self, articles: Sequence[SnapshotArticle]) -> None:
        """Drop the indexes of tables that setup made and that this login may alter, to build them after the load."""
        ours = {it.name: (it, table) for it in articles if (table := self._own_table(it)) is not None}
        found: list[tuple[int, str, str]] = []
        for name, (it, table) in ours.items():
            referenced = self._session.execute(
                _REFERENCED_FROM, {"table": table, "ours": [table for _, table in ours.values()]}
            ).fetchone() == (True,)
            there = self._session.execute(_DEFERRABLE, {"table": table}).fetchall()
            rows = [row for row in there if row[0] == _FOREIGN_KEY or (it.large and not referenced)]
            interrupted = set(self._deferred([name])) - {(rank, create) for rank, _, create in there}
            self._remember(name, sorted(interrupted | {(rank, create) for rank, _, create in rows}))
            found += rows
        for _, remove, _ in sorted(found, reverse=True):
            self._session.execute(trusted(remove))

    def _own_table(self, it: SnapshotArticle) -> int | None:
        row = self._session.execute(
            sql.SQL(
                "SELECT c.oid::bigint FROM {} s, pg_catalog.pg_class c WHERE s.created AND {} AND s.article = %s "
                "AND s.range_number = 0 AND c.oid = pg_catalog.to_regclass(%s) AND c.relkind = 'r' "
                "AND pg_catalog.pg_has_role(current_user, c.relowner, 'USAGE')"
            ).format(SNAPSHOTS, _MINE),
            [*self._mine, it.name, qualified(it.article.destination).as_string(self._session)],
        ).fetchone()
        return None if row is None else int(row[0])

    def _remember(self, name: str, left: Sequence[tuple[int, str]]) -> None:
        self._session.execute(
            sql.SQL("UPDATE {} SET deferred = %s WHERE {} AND article = %s AND range_number = 0").format(
                SNAPSHOTS, _MINE
            ),
            [json.dumps(left) if left else None, *self._mine, name],
        )

    def _deferred(self, names: Sequence[str]) -> list[tuple[int, str]]:
        rows = self._session.execute(
            sql.SQL(
                "SELECT deferred FROM {} WHERE {} AND article = ANY (%s) AND range_number = 0 AND deferred IS NOT NULL"
            ).format(SNAPSHOTS, _MINE),
            [*self._mine, list(names)],
        ).fetchall()
        return sorted((int(rank), str(create)) for (text,) in rows for rank, create in json.loads(text))

    def _announce(self, snapshot: str, it: SnapshotArticle) -> None:
        """Announce the snapshot: from here on, no other one loads this article."""
        self._session.execute(
            sql.SQL("DELETE FROM {} WHERE {} AND article = %s AND range_number <> 0").format(SNAPSHOTS, _MINE),
            [*self._mine, it.name],
        )
        self._session.execute(
            sql.SQL(
                "INSERT INTO {} AS s (publisher, publisher_system, publisher_db, publication, subscription, article, "
                "range_number, snapshot) VALUES (%s, %s, %s, %s, %s, %s, 0, %s) "
                "ON CONFLICT (publisher_system, publisher_db, publication, subscription, article, range_number) "
                "DO UPDATE SET snapshot = excluded.snapshot, time = now()"
            ).format(SNAPSHOTS),
            [self._key.publisher, *self._mine, it.name, snapshot],
        )

    def load_order(self, articles: Sequence[SnapshotArticle], *, not_for_replication: bool) -> LoadOrder:
        if not_for_replication:
            return load_order(dict.fromkeys((it.name for it in articles), ()))
        with translated_errors(self.where):
            parents = self._tables.parents(articles)
        return load_order(parents)

    def loaded(self, snapshot: str) -> list[LoadedRange]:
        with translated_errors(self.where):
            rows = self._session.execute(
                sql.SQL(
                    "SELECT article, range_number, row_count, byte_count FROM {} "
                    "WHERE {} AND snapshot = %s AND range_number <> 0"
                ).format(SNAPSHOTS, _MINE),
                [*self._mine, snapshot],
            ).fetchall()
        return [LoadedRange(*row) for row in rows]

    def build(self, article: SnapshotArticle) -> None:
        with translated_errors(self.where):
            for rank, create in self._deferred([article.name]):
                if rank != _FOREIGN_KEY:
                    self._build(create)
            if not self._analyses_by_itself():
                self._session.execute(sql.SQL("ANALYZE {}").format(qualified(article.article.destination)))

    def _analyses_by_itself(self) -> bool:
        """Return whether autovacuum analyses tables: it does so soon, and beside everything else."""
        row = self._session.execute(
            "SELECT current_setting('autovacuum')::boolean AND current_setting('track_counts')::boolean"
        ).fetchone()
        return row == (True,)

    def finish(self, articles: Sequence[SnapshotArticle], foreign_keys: Sequence[ForeignKey]) -> None:
        with translated_errors(self.where):
            for rank, create in self._deferred([it.name for it in articles]):
                if rank == _FOREIGN_KEY:
                    self._build(create)
        dropped = {it.article.destination for it in articles if it.settings.pre_creation_cmd is PreCreation.DROP}
        for key in foreign_keys:
            if key.table in dropped or key.referenced in dropped:
                self._subscriber.set_up_foreign_key(key, new=True)

    def _build(self, statement: str) -> None:
        try:
            with translated_errors(f"{self.where}: {statement}"):
                # Of what the table of snapshots holds, one statement of these two kinds alone is run.
                if not _BUILDS.match(statement):
                    raise ConfigurationError(
                        f"{self.where}: what a snapshot has to build is no index and no constraint: {statement}",
                        remedy="`tranrepl reinitialize FILE -s NAME` copies the rows of the article again",
                    )
                self._session.execute(trusted(statement), binary=True)
        except DataError as error:
            raise DataError(
                f"{error.message}: the rows of the snapshot violate it",
                number=error.report.number,
                database_code=error.report.database_code,
                remedy="foreign_keys: false, or publish what it refers to; where it is your own, drop it",
            ) from error

    def end(
        self, snapshot: str, articles: Sequence[SnapshotArticle], fence: bytes, xact_seqno: bytes, *, whole: bool
    ) -> None:
        names = [it.name for it in articles]
        with translated_errors(self.where), self._session.transaction():
            held = self._session.execute(
                sql.SQL(
                    "SELECT article FROM {} WHERE {} AND article = ANY (%s) AND range_number = 0 AND snapshot = %s "
                    "FOR UPDATE"
                ).format(SNAPSHOTS, _MINE),
                [*self._mine, names, snapshot],
            ).fetchall()
            if len(held) != len(names):
                raise another_snapshot(self.where)
            # It raises FencedError where the watermark is another one.
            self._subscriber.move_watermark(fence, xact_seqno if whole else fence_after(fence))
            self._session.execute(
                sql.SQL("DELETE FROM {} WHERE {} AND article = ANY (%s) AND range_number <> 0").format(
                    SNAPSHOTS, _MINE
                ),
                [*self._mine, names],
            )
            self._session.execute(
                sql.SQL(
                    "UPDATE {} SET snapshot = '', deferred = NULL, xact_seqno = %s WHERE {} AND article = ANY (%s)"
                ).format(SNAPSHOTS, _MINE),
                [xact_seqno, *self._mine, names],
            )


class PostgresLoader:
    """Loads ranges, each in a transaction of its own."""

    def __init__(self, session: Session, key: SubscriptionKey, snapshot: str) -> None:
        self._session = session
        self._key = key
        self._snapshot = snapshot
        self._where = f"Subscriber {key.subscription}"

    def load(self, article: RegisteredArticle, number: int, chunks: Iterable[bytes]) -> LoadedRange:
        name = str(article.source)
        with translated_errors(f"{self._where}, table {article.destination}"), self._session.transaction():
            self._require_announced(name)
            # What follows names no operator.
            leave_path(self._session)
            loaded = self._copy(article, number, chunks)
            reach(Failpoint.RANGE_LOADED)
            self._session.execute(
                sql.SQL(
                    "INSERT INTO {} (publisher, publisher_system, publisher_db, publication, subscription, article, "
                    "range_number, snapshot, row_count, byte_count) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
                ).format(SNAPSHOTS),
                [
                    self._key.publisher,
                    self._key.publisher_system,
                    self._key.publisher_db,
                    self._key.publication,
                    self._key.subscription,
                    name,
                    number,
                    self._snapshot,
                    loaded.rows,
                    loaded.bytes,
                ],
            )
        reach(Failpoint.RANGE_COMMITTED)
        return loaded

    def _copy(self, article: RegisteredArticle, number: int, chunks: Iterable[bytes]) -> LoadedRange:
        columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in article.columns)
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(qualified(article.destination), columns)
        size = 0
        with self._session.cursor() as cursor:
            with cursor.copy(statement) as copy:
                for chunk in chunks:
                    copy.write(chunk)
                    size += len(chunk)
            return LoadedRange(str(article.source), number, cursor.rowcount, size)

    def _require_announced(self, name: str) -> None:
        row = self._session.execute(
            sql.SQL("SELECT snapshot FROM {} WHERE {} AND article = %s AND range_number = 0 FOR SHARE").format(
                SNAPSHOTS, _MINE
            ),
            [
                self._key.publisher_system,
                self._key.publisher_db,
                self._key.publication,
                self._key.subscription,
                name,
            ],
        ).fetchone()
        if row is None or row[0] != self._snapshot:
            raise another_snapshot(self._where)
