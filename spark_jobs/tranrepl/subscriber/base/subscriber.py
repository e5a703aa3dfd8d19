"""One subscription's end in one database: what is the same for every kind of database."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import sqlalchemy as sa

from tranrepl.errors import ConfigurationError, TransientError
from tranrepl.model.article import RegisteredArticle
from tranrepl.subscriber.base.definitions import Definitions
from tranrepl.subscriber.base.model_database import ModelDatabase
from tranrepl.subscriber.base.model_tables import create_tables, find_version
from tranrepl.subscriber.base.snapshot_rows import SnapshotRows
from tranrepl.subscriber.base.watermark import Watermark, position_of
from tranrepl.subscriber.foreign_keys import ForeignKey
from tranrepl.subscriber.replication_tables import ARTICLES, MODEL_TABLES
from tranrepl.subscriber.shared_tables import Claim
from tranrepl.subscriber.subscription import SubscriptionKey, SubscriptionPosition, fenced, not_set_up
from tranrepl.subscriber.tables_version import TablesVersion

_LOCK_SECONDS = 300


class ModelSubscriber(ABC):
    """A subscription's rows of the model's tables, as setup and jobs use them."""

    def __init__(self, core: sa.Connection, database: ModelDatabase, key: SubscriptionKey) -> None:
        self.where = f"Subscriber {key.subscription}"
        self._core = core
        self._kind = database
        self._key = key
        self._watermark = Watermark(core, database, key, self.where)
        self._definitions = Definitions(core, key)
        self._snapshots = SnapshotRows(core, database, key)

    def _transaction(self) -> AbstractContextManager[None]:
        return self._kind.transaction(self._core, self.where)

    def _reading(self) -> AbstractContextManager[None]:
        return self._kind.reading(self._core, self.where)

    # Setup

    def tables_version(self) -> TablesVersion | None:
        with self._reading():
            return find_version(self._core, self._kind)

    def set_up_tables(self) -> None:
        with self._transaction():
            self._kind.require_fit_tables(self._core, self.where, MODEL_TABLES)
            found = find_version(self._core, self._kind)
            if found is not None:
                found.require_not_newer(self.where)
            create_tables(self._core, self._kind, self.where)

    def set_up_watermark(self) -> list[str]:
        with self._transaction():
            created = self._watermark.start()
        return [f"created subscription {self._key.subscription} at {self._kind.name(self._core)}"] if created else []

    @abstractmethod
    def set_up_foreign_key(self, key: ForeignKey, *, new: bool) -> list[str]:
        """Create a foreign key of a table that this setup made (`new`); of another, say that it is missing."""

    # Deliveries

    def set_up_streams(self, streams: int) -> None:
        with self._transaction():
            self._watermark.start_streams(streams)

    def position(self) -> SubscriptionPosition:
        with self._fencing(), self._transaction():
            if not self._watermark.exists():
                raise self._not_set_up()
            self._kind.wait_for_lock(self._core, _LOCK_SECONDS)
            return position_of(self._watermark.locked())

    @contextmanager
    def _fencing(self) -> Iterator[None]:
        try:
            yield
        except TransientError as error:
            if error.report.code in self._kind.lock_timeouts:
                raise fenced(self.where) from error
            raise

    def _not_set_up(self) -> ConfigurationError:
        return not_set_up(self.where, self._key, self._kind.name(self._core))

    def watermark(self) -> bytes:
        found = self.find_watermark()
        if found is None:
            raise self._not_set_up()
        return found

    def find_watermark(self) -> bytes | None:
        with self._reading():
            return self._watermark.find() if self._watermark.exists() else None

    def find_durable_watermark(self) -> bytes | None:
        """Return the last transaction applied: every commit is durable by itself."""
        return self.find_watermark()

    def move_watermark(self, expected: bytes, xact_seqno: bytes) -> None:
        with self._transaction():
            self.move_in_transaction(expected, xact_seqno)

    def move_in_transaction(self, expected: bytes, xact_seqno: bytes) -> None:
        """Move the watermark as `move_watermark` does, in the transaction that is open."""
        if bytes(self._watermark.locked()[0].xact_seqno) != expected:
            raise fenced(self.where)
        self._watermark.forget_streams()
        self._watermark.advance(xact_seqno)

    def hold(self, position: SubscriptionPosition) -> None:
        """Lock the watermark in the transaction that is open. Raises FencedError where another job was here since."""
        self._watermark.fence(position.watermark, finishing=position.unfinished)

    # Definitions

    def definitions(self) -> dict[str, int]:
        with self._reading():
            return self._definitions.recorded() if self._kind.has_table(self._core, ARTICLES) else {}

    def record_definitions(self, articles: Sequence[RegisteredArticle]) -> None:
        with self._transaction():
            self._definitions.record(articles)

    def release_tables(self, kept: Sequence[str]) -> None:
        with self._transaction():
            self._definitions.release(kept)

    def claims(self) -> list[Claim]:
        with self._reading():
            return self._definitions.claims() if self._kind.has_table(self._core, ARTICLES) else []

    # Snapshots

    def has_snapshots(self) -> bool:
        """Return whether `MSreplication_snapshots` is there."""
        with self._reading():
            return self._snapshots.exist()

    def initialized_articles(self) -> dict[str, bytes]:
        with self._reading():
            return self._snapshots.initialized()
