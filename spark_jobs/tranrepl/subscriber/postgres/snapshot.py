"""A snapshot at a PostgreSQL Subscriber: tables made ready, ranges loaded by COPY, indexes built after."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from psycopg import sql

from tranrepl.errors import ConfigurationError, DataError
from tranrepl.failpoint import Failpoint, reach
from tranrepl.model.article import RegisteredArticle
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.settings.publication import PreCreation
from tranrepl.subscriber.base.snapshot import ModelSnapshot
from tranrepl.subscriber.base.snapshot_rows import SnapshotRows
from tranrepl.subscriber.foreign_keys import ForeignKey
from tranrepl.subscriber.postgres.core import core
from tranrepl.subscriber.postgres.database import POSTGRES
from tranrepl.subscriber.postgres.deferred_indexes import (
    DeferredIndex,
    deferrable_indexes,
    is_referenced,
    read,
    readable,
    written,
)
from tranrepl.subscriber.postgres.emptied_tables import EmptiedTables
from tranrepl.subscriber.postgres.subscriber import PostgresSubscriber
from tranrepl.subscriber.postgres.users_code import leave_path
from tranrepl.subscriber.snapshot import (
    DeletedRows,
    LoadedRange,
    OwnedRows,
    SnapshotArticle,
    fence_after,
    half_delivered,
    not_empty,
)
from tranrepl.subscriber.subscription import SubscriptionKey, SubscriptionPosition

_OWN_TABLE = """
SELECT c.oid::bigint FROM pg_catalog.pg_class c
 WHERE c.oid = pg_catalog.to_regclass(%s) AND c.relkind = 'r'
   AND pg_catalog.pg_has_role(current_user, c.relowner, 'USAGE')
"""


class PostgresSnapshot(ModelSnapshot):
    """The driver's side. Everything up to the load is one transaction."""

    def __init__(self, session: Session, key: SubscriptionKey, subscriber: PostgresSubscriber) -> None:
        self._tables = EmptiedTables(session)
        super().__init__(core(session), POSTGRES, key, subscriber, self._tables)
        self._session = session
        self._subscriber = subscriber

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
        return self._rows.exist() and bool(self._rows.interrupted([it.name]))

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
            self._rows.announce(snapshot, [it.name for it in deleted])
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
            self._rows.announce(snapshot, [it.name for it in articles])
        return fence

    def _lock(self, *, not_for_replication: bool) -> None:
        # Ranges that still load hold these first, and the tables after.
        self._rows.lock()
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
        created, written_down = self._rows.created(), self._rows.deferred([it.name for it in articles])
        own = {it.name: table for it in articles if it.name in created and (table := self._own_table(it)) is not None}
        plain = {name: deferrable_indexes(self._session, table) for name, table in own.items()}
        dropped = [(own[name], it.name) for name, found in plain.items() for it in found if it.is_foreign_key]
        drops: list[tuple[bool, sql.Composed]] = []
        for it in (it for it in articles if it.name in own):
            there = plain[it.name]
            whole = it.large and not is_referenced(self._session, own[it.name], dropped)
            chosen = [index for index in there if index.is_foreign_key or whole]
            # A new snapshot is the remedy where nobody can read it.
            interrupted = set(readable(written_down.get(it.name)) or ()).difference(there)
            self._rows.defer(it.name, written([*chosen, *sorted(interrupted, key=lambda index: index.name)]))
            drops += [(index.is_foreign_key, index.drop(it.article.destination)) for index in chosen]
        # Foreign keys first: they need the keys that they refer to.
        for _, statement in sorted(drops, key=lambda drop: not drop[0]):
            self._session.execute(statement)

    def _own_table(self, it: SnapshotArticle) -> int | None:
        row = self._session.execute(_OWN_TABLE, [qualified(it.article.destination).as_string(self._session)]).fetchone()
        return None if row is None else int(row[0])

    def _deferred(self, article: SnapshotArticle) -> tuple[DeferredIndex, ...]:
        return read(self._rows.deferred([article.name]).get(article.name), self.where)

    def build(self, article: SnapshotArticle) -> None:
        with translated_errors(self.where):
            for it in self._deferred(article):
                if not it.is_foreign_key:
                    self._build(it.build(article.article.destination))
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
            for article in articles:
                for it in self._deferred(article):
                    if it.is_foreign_key:
                        self._build(it.build(article.article.destination))
        super().finish(articles, foreign_keys)

    def _build(self, statement: sql.Composed) -> None:
        try:
            with translated_errors(f"{self.where}: {statement.as_string(self._session)}"):
                self._session.execute(statement)
        except DataError as error:
            raise DataError(
                f"{error.message}: the rows of the snapshot violate it",
                number=error.report.number,
                database_code=error.report.database_code,
                remedy="foreign_keys: false, or publish what it refers to; where it is your own, drop it",
            ) from error


class PostgresLoader:
    """Loads ranges, each in a transaction of its own."""

    def __init__(self, session: Session, key: SubscriptionKey, snapshot: str) -> None:
        self._session = session
        self._rows = SnapshotRows(core(session), POSTGRES, key)
        self._snapshot = snapshot
        self._where = f"Subscriber {key.subscription}"

    def load(self, article: RegisteredArticle, number: int, chunks: Iterable[bytes]) -> LoadedRange:
        with translated_errors(f"{self._where}, table {article.destination}"), self._session.transaction():
            self._rows.require_announced(self._snapshot, str(article.source), self._where)
            # What follows names no operator.
            leave_path(self._session)
            loaded = self._copy(article, number, chunks)
            reach(Failpoint.RANGE_LOADED)
            self._rows.add_range(self._snapshot, loaded)
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
