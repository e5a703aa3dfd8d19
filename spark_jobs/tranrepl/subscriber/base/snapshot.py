"""The driver's side of a snapshot at a Subscriber: what every kind of database does alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import sqlalchemy as sa

from tranrepl.settings.publication import PreCreation
from tranrepl.subscriber.base.model_database import ModelDatabase
from tranrepl.subscriber.base.snapshot_rows import SnapshotRows
from tranrepl.subscriber.base.subscriber import ModelSubscriber
from tranrepl.subscriber.foreign_keys import ForeignKey
from tranrepl.subscriber.snapshot import LoadedRange, LoadOrder, SnapshotArticle, fence_after, load_order
from tranrepl.subscriber.subscription import SubscriptionKey


class Tables(Protocol):
    """Tables that a snapshot empties."""

    def parents(self, articles: Iterable[SnapshotArticle]) -> Mapping[str, Iterable[str]]:
        """Return by article those of the articles that its rows refer to."""
        ...


class ModelSnapshot:
    """All of a snapshot but how its destinations are made ready."""

    def __init__(
        self,
        core: sa.Connection,
        database: ModelDatabase,
        key: SubscriptionKey,
        subscriber: ModelSubscriber,
        tables: Tables,
    ) -> None:
        self.where = subscriber.where
        self._core = core
        self._kind = database
        self._model = subscriber
        self._referring = tables
        self._rows = SnapshotRows(core, database, key)

    def _transaction(self) -> AbstractContextManager[None]:
        return self._kind.transaction(self._core, self.where)

    def load_order(self, articles: Sequence[SnapshotArticle], *, not_for_replication: bool) -> LoadOrder:
        if not_for_replication:
            return load_order(dict.fromkeys((it.name for it in articles), ()))
        with self._transaction():
            return load_order(self._referring.parents(articles))

    def loaded(self, snapshot: str) -> list[LoadedRange]:
        with self._transaction():
            return self._rows.loaded(snapshot)

    def build(self, article: SnapshotArticle) -> None:
        """Do nothing: tables are filled with their indexes."""

    def finish(self, articles: Sequence[SnapshotArticle], foreign_keys: Sequence[ForeignKey]) -> None:
        dropped = {it.article.destination for it in articles if it.settings.pre_creation_cmd is PreCreation.DROP}
        for key in foreign_keys:
            if key.table in dropped or key.referenced in dropped:
                self._model.set_up_foreign_key(key, new=True)

    def end(
        self, snapshot: str, articles: Sequence[SnapshotArticle], fence: bytes, xact_seqno: bytes, *, whole: bool
    ) -> None:
        names = [it.name for it in articles]
        with self._transaction():
            self._rows.require_held(snapshot, names, self.where)
            # It raises FencedError where the watermark is another one.
            self._model.move_in_transaction(fence, xact_seqno if whole else fence_after(fence))
            self._rows.end(names, xact_seqno)
