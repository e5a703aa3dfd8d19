"""Registered batches, followed by a delivery: applied in one lasting Spark task, over one connection.

Whatever is out of the ordinary (a schema change, a script, many commands, changed settings, an error) ends it after
what is committed: the delivery drains what is registered from there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from types import TracebackType
from typing import Self

from tranrepl.agent_loop import AGAIN_SECONDS, LOOK_SECONDS, RECORD_SECONDS
from tranrepl.connections import Connection
from tranrepl.distribution.delivery import Delivery, deliver_few
from tranrepl.distribution.latency import RegisteredBatches
from tranrepl.distribution.recording import TracerArrivals, watermark_behind
from tranrepl.distribution.stored_range import LeftOut, StoredRange
from tranrepl.distributor.batch_files import is_small, require_all_commands
from tranrepl.distributor.database import (
    Batch,
    DeliveryState,
    DistributionDatabase,
    PendingToken,
    RunRow,
    StateAfter,
    SubscriptionRecord,
)
from tranrepl.distributor.database.batches import definitions_of
from tranrepl.distributor.notifications import TRIED, Listener, notify
from tranrepl.errors import ReplicationError
from tranrepl.jobs.results import JobResult, latency_ms
from tranrepl.model.article import RegisteredArticle
from tranrepl.spark.lasting_task import DriverConnection, Ending, LastingTask, Why
from tranrepl.subscriber.base.applier import Applier
from tranrepl.subscriber.registry import dialect_of

_MOST_TOGETHER = 50_000
"""Commands of batches that are delivered together."""
_MOST_BYTES_TOGETHER = 64 * 1024 * 1024
_BACKLOG = 100_000
"""So many commands are worth a job of their own: it plans some while others are applied, and has the streams."""
_MOST_BATCHES = 500
_CATALOGUE_HOLDS_SECONDS = 2.0
"""For so long, what the Subscriber's catalogue said of its tables and procedures is taken for true."""
_FEW_ARTICLES = 100
"""So many are known to an applier within a tenth of a second."""


@dataclass(frozen=True, slots=True)
class BatchFollowing(LastingTask):
    """What the task begins with."""

    delivery: Delivery
    distributor: Connection
    row: RunRow
    subscription: SubscriptionRecord
    left_out: tuple[LeftOut, ...]
    state: DeliveryState
    """Read before all else that is here."""
    so_far: JobResult
    polling_interval: float

    def work(self, driver: DriverConnection) -> Ending:
        """Deliver until something ends it."""
        with (
            DistributionDatabase(self.distributor) as database,
            Listener(self.distributor, self.row.record.publication_id) as listener,
            _CachedApplier(self.delivery) as applier,
        ):
            return _Follower(self, driver, database, listener, applier).follow()


class _CachedApplier:
    """An applier that is opened when there is something to apply, and kept for what comes later. It knows the articles
    that have come: of thousands, few change."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._opened = ExitStack()
        self._applier: Applier | None = None
        self._articles: dict[int, RegisteredArticle] = {}
        self._looked = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drop()

    def get(self, batches: Iterable[Batch]) -> Applier:
        """Return one for commands of these batches, with what the catalogue says now, or said a moment ago."""
        now, it = time.monotonic(), self._delivery
        present = definitions_of(batches)
        new = [number for number in (it.articles if present is None else present) if number not in self._articles]
        if new:
            self.drop()
            self._articles |= {number: it.articles[number] for number in (*new, *self._others(new))}
        if self._applier is None:
            applier = dialect_of(it.connection).applier(it.connection, it.key, self._articles, it.options)
            self._applier, self._looked = self._opened.enter_context(applier), now
        elif now - self._looked > _CATALOGUE_HOLDS_SECONDS:
            self._applier.look_again()
            self._looked = now
        return self._applier

    def _others(self, new: Sequence[int]) -> Iterable[int]:
        """Return articles to know beside new ones, as many as are known where these are not few: opened again for each
        of thousands that change now and then, it would read of all that are known each time."""
        most = len(self._articles) if len(self._articles) >= _FEW_ARTICLES else 0
        known = self._articles.keys() | new
        return islice((it for it in self._delivery.articles if it not in known), most)

    def flush(self) -> None:
        if self._applier is not None:
            self._applier.flush()

    def drop(self) -> None:
        """Close it, whatever state it is in: what is open is rolled back."""
        self._applier = None
        self._opened.close()


class _Follower:
    def __init__(
        self,
        following: BatchFollowing,
        driver: DriverConnection,
        database: DistributionDatabase,
        listener: Listener,
        applier: _CachedApplier,
    ) -> None:
        self._following = following
        self._driver = driver
        self._database = database
        self._listener = listener
        self._applier = applier
        self._record = following.row.record
        self._watermark = following.delivery.watermark
        self._total = following.so_far
        self._began = self._reported = self._state_seen = time.monotonic()
        self._unreported = self._notified = False
        self._try_at = 0.0
        self._can_be_notified = False
        """Whether notifications come through to the listener's session."""

    def follow(self) -> Ending:
        try:
            while (why := self._round()) is None:
                pass
            self._applier.flush()
        except ReplicationError as error:
            self._applier.drop()
            return Ending(why=Why.ERROR, result=self._timed().model_copy(update={"error": error.report}))
        return Ending(why=why, result=self._timed())

    def _round(self) -> Why | None:
        """Deliver what is registered, or wait for something to be. Return why nothing more is delivered here."""
        if self._driver.is_cut():
            return Why.ASKED
        batches = self._database.batches.after(self._record, self._watermark, _MOST_BATCHES)
        if not batches:
            return Why.CHANGED if self._is_state_old() and self._state_after() is None else self._rest()
        chosen = _together(batches)
        if not chosen or sum(it.commands for it in batches) >= _BACKLOG:
            return Why.BACKLOG
        after = self._state_after()
        if after is None:
            return Why.CHANGED
        if after.is_paused:
            self._driver.wait(LOOK_SECONDS)
            return None
        if after.changes_schema:
            return Why.SCHEMA_CHANGE
        self._deliver(chosen, after)
        if time.monotonic() - self._reported > RECORD_SECONDS:
            self._report()
        return None

    def _rest(self) -> Why | None:
        now, seconds = time.monotonic(), self._following.polling_interval
        if self._can_be_notified:
            seconds = max(seconds, RECORD_SECONDS)
        elif now >= self._try_at and self._listener.fileno() is not None:
            self._try_notifications(now)
        if self._notified:
            seconds = min(seconds, LOOK_SECONDS)
        if self._unreported:
            seconds = min(seconds, max(0.0, self._reported + RECORD_SECONDS - now))
        if self._driver.wait(seconds, self._listener.fileno()):
            return Why.ASKED
        if self._listener.received():
            self._notified = self._can_be_notified = True
        elif self._listener.fileno() is None:
            self._can_be_notified = False
        if self._unreported and time.monotonic() - self._reported > RECORD_SECONDS:
            self._report()
        return None

    def _try_notifications(self, now: float) -> None:
        """Send a notification, to see whether it comes: while nothing is registered, nobody else sends one."""
        with self._database.transaction() as connection:
            notify(connection, self._record.publication_id, TRIED)
        self._try_at = now + AGAIN_SECONDS

    def _is_state_old(self) -> bool:
        """Return whether to look at it again though nothing is registered: an administrator may have changed it."""
        holds = LOOK_SECONDS if self._notified else RECORD_SECONDS
        return time.monotonic() - self._state_seen > holds

    def _state_after(self) -> StateAfter | None:
        """Return what is registered after the watermark; None where it is not as it was when the task began."""
        after = self._database.delivery_states.after(self._record, self._following.subscription, self._watermark)
        self._state_seen, self._notified = time.monotonic(), False
        if after is None or after.state != self._following.state:
            return None
        is_gone = after.removed_xact_seqno is not None and after.removed_xact_seqno > self._watermark
        return None if is_gone else after

    def _deliver(self, batches: Sequence[Batch], after: StateAfter) -> None:
        """Deliver batches. Raises what keeps one from it; what is committed is counted."""
        for it in batches:
            if not is_small(it):
                require_all_commands(self._record, it)
        tokens: tuple[PendingToken, ...] = ()
        if after.has_tokens:
            tokens = self._database.tracer_tokens.pending(self._record, self._following.subscription)
        last, distributor = batches[-1].last_xact_seqno, self._following.distributor
        left_out = tuple(it for it in self._following.left_out if it.last is None or it.last > self._watermark)
        delivery = replace(
            self._following.delivery,
            watermark=self._watermark,
            registered=RegisteredBatches.of(distributor, batches),
            tracers=TracerArrivals(distributor, self._following.subscription.subscription_id, tokens)
            if tokens
            else None,
        )
        stored = StoredRange(self._record, tuple(batches), self._watermark, last, None, left_out)
        result = deliver_few(delivery, self._applier.get(batches), stored.commands())
        self._unreported = True
        self._total = self._total.plus(result.model_copy(update={"error": None}))
        self._watermark = bytes.fromhex(result.last_xact_seqno or "")
        result.raise_error()
        if batches[-1].log_bytes:
            self._total = self._total.model_copy(update={"latency_ms": latency_ms(batches[-1].last_commit_time)})
        self._move_watermark(tokens, last, leaves_out=bool(left_out))

    def _move_watermark(self, tokens: Sequence[PendingToken], last: bytes, *, leaves_out: bool) -> None:
        """Set the watermark where the batches ended in commands that were left out, or in tracer tokens."""
        to = watermark_behind(tokens, self._watermark, last, None, leaves_out=leaves_out)
        if to is not None:
            it = self._following.delivery
            with dialect_of(it.connection).subscriber(it.connection, it.key, "tranrepl distribution") as subscriber:
                subscriber.move_watermark(self._watermark, to)
            self._watermark = to
            self._total = self._total.model_copy(update={"last_xact_seqno": to.hex()})
        if tokens:
            self._database.tracer_tokens.record_arrivals(self._record, self._following.subscription, self._watermark)

    def _report(self) -> None:
        """Record what was delivered: it outlives a crash of the Subscriber by then."""
        self._applier.flush()
        self._database.deliveries.record(self._record, self._following.subscription, self._total.minutes)
        self._total = self._total.recorded()
        self._database.history.record_progress(self._following.row, self._timed())
        self._reported, self._unreported = time.monotonic(), False

    def _timed(self) -> JobResult:
        seconds = self._following.so_far.seconds + time.monotonic() - self._began
        return self._total.model_copy(update={"seconds": seconds})


def _together(batches: Sequence[Batch]) -> list[Batch]:
    """Return the first batches, as many as are delivered together; none where the first one is too large."""
    chosen: list[Batch] = []
    commands = log_bytes = 0
    for it in batches:
        commands, log_bytes = commands + it.commands, log_bytes + it.log_bytes
        if commands > _MOST_TOGETHER or log_bytes > _MOST_BYTES_TOGETHER:
            break
        chosen.append(it)
    return chosen
