"""The distribution job: stored commands to one Subscriber, once up to a bound, or continuously."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from tranrepl.agent_loop import AGAIN_SECONDS, LOOK_SECONDS, AgentRun
from tranrepl.connections import Connection
from tranrepl.distribution.draining import DeliveryDraining
from tranrepl.distribution.following import BatchFollowing
from tranrepl.distribution.opening import OpenDistribution, open_distribution
from tranrepl.distribution.sequences import follow_sequences
from tranrepl.distribution.without_spark import is_deliverable
from tranrepl.distributor.database import DeliveryState, DistributionDatabase, StateAfter
from tranrepl.distributor.notifications import Listener
from tranrepl.errors import SNAPSHOT_NOT_AVAILABLE, ConfigurationError
from tranrepl.jobs.requests import DistributionRequest
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.shutdown import Shutdown, shutdown_at
from tranrepl.spark.lasting_task import Ending, LastingTask
from tranrepl.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SNAPSHOT_AWAITED_SECONDS = 60.0
"""For so long, somebody may begin the snapshot that a subscription waits for."""
_LOG_READER_SILENT = timedelta(seconds=2 * AGAIN_SECONDS)
"""A log reader that has recorded nothing for so long has died."""
_LOG_READER_AWAITED_SECONDS = 600.0
"""The longest that any is waited for."""

log = logging.getLogger(__name__)


def run(spark: SparkSession, request: DistributionRequest, connections: Mapping[str, Connection]) -> JobResult:
    """Deliver what is registered, up to the request's bound; where the request is continuous, until its shutdown. The
    result, error or not, is in the history."""
    topology, shutdown = Topology(request.publication, connections), shutdown_at(request.continuous_until)
    with topology.distributor() as database:
        delivery = DeliveryRun(spark, request, topology, database, shutdown)
        result = delivery.run()
        delivery.record_undelivered(result)
    if result.skipped:
        log.warning("%d commands were skipped, as skip_errors says", result.skipped)
    return result


class DeliveryRun(AgentRun):
    """One run of a delivery: it delivers what is registered, and follows what the log reader registers."""

    shutdown_grace_seconds = 0.0
    verb = "delivered"

    def __init__(
        self,
        spark: SparkSession,
        request: DistributionRequest,
        topology: Topology,
        database: DistributionDatabase,
        shutdown: Shutdown,
    ) -> None:
        super().__init__(spark, topology, database, shutdown)
        self._request = request
        self._record = database.publications.get(request.publication.publication)
        self._subscription = database.subscriptions.get(self._record, request.subscription)
        self._snapshot_awaited_since: float | None = None
        self._over_since: float | None = None
        """Since when it waits, after its time, for the log reader."""
        self._looked_after_at = time.monotonic()
        self._looked_after_commands = 0

    def is_last(self) -> bool:
        """Return whether what is registered by now is the end: it is time, and no log reader runs beside this that may
        register more."""
        if not self.shutdown.is_continuous:
            return True
        if not self.shutdown.is_at_its_time():
            return False
        now = time.monotonic()
        self._over_since = self._over_since or now
        return now - self._over_since > _LOG_READER_AWAITED_SECONDS or not self.database.history.log_reader_runs(
            self._record, _LOG_READER_SILENT
        )

    def _awaits_snapshot(self) -> bool:
        """Return whether it may still wait for a snapshot that somebody is about to begin."""
        now = time.monotonic()
        self._snapshot_awaited_since = self._snapshot_awaited_since or now
        return now - self._snapshot_awaited_since <= _SNAPSHOT_AWAITED_SECONDS

    # Deliveries as each run makes them

    def drain(self, *, last: bool) -> LastingTask | None:
        """Deliver what is registered by now. Return what goes on with what will be; None where no task can, once
        something is."""
        try:
            return self._delivered(last=last)
        except ConfigurationError as error:
            if last or error.report.number != SNAPSHOT_NOT_AVAILABLE or not self._awaits_snapshot():
                raise
        self.shutdown.request.wait(self._request.publication.polling_interval)
        return None

    def _delivered(self, *, last: bool) -> LastingTask | None:
        # Before all that depends on it.
        after = self._state_when_free() if self.shutdown.is_continuous else None
        # A Subscriber that cannot be reached is an error of this run.
        self.begin(self._record, self._subscription)
        with open_distribution(self.topology, self._request.subscription, self.database) as opened:
            before = self.total
            job = DeliveryDraining(
                self.spark,
                self._request,
                opened,
                self.row,
                lambda so_far: self.progress(before.plus(so_far)),
                self.is_cut_short,
            )
            done = job.run()
            done = self._with_sequences(done, opened)
            self.total = before.plus(done)
            for notice in done.notices:
                log.warning("%s", notice)
            done.raise_error()
            self._snapshot_awaited_since = None
            if last or self.is_cut_short():
                return None
            self.progress(self.total)
            if after is not None and self._may_be_followed():
                return self._following(job, opened, after.state)
        self._wait_for_batches()
        return None

    def _with_sequences(self, result: JobResult, opened: OpenDistribution) -> JobResult:
        """Let the Subscriber's sequences follow where commands were delivered."""
        if not result.commands:
            return result
        settings = self._request.publication.subscription(self._request.subscription)
        return result.noticing(
            follow_sequences(
                opened.subscriber,
                settings,
                lambda: opened.database.articles.registered(opened.record, settings.name),
                lambda: self.topology.publisher("tranrepl distribution"),
            )
        )

    def _state_when_free(self) -> StateAfter | None:
        """Return the state once nobody holds the delivery back: a validation, or, before its time is over, a
        snapshot."""
        after, said = self._state(), False
        while after is not None and not self.shutdown.request.is_asked():
            snapshot = after.takes_snapshot and not self.shutdown.is_due()
            if not (after.is_paused or snapshot):
                break
            if snapshot and not said:
                said = True
                log.info("the snapshot of subscription %s is being taken: waiting for it", self._request.subscription)
            time.sleep(LOOK_SECONDS)
            after = self._state()
        return after

    def _state(self) -> StateAfter | None:
        return self.database.delivery_states.after(self._record, self._subscription, b"")

    def _wait_for_batches(self) -> None:
        """Wait until something is registered that may be delivered, or until the run ends."""
        interval, watermark = (
            self._request.publication.polling_interval,
            bytes.fromhex(self.total.last_xact_seqno or ""),
        )
        looked: float | None = None
        with Listener(self.topology.distributor_connection, self._record.publication_id) as listener:
            while not (self.is_cut_short() or self.is_last()):
                now = time.monotonic()
                if looked is None or now - looked >= interval:
                    looked = now
                    found = self.database.batches.after(self._record, watermark, 1)
                    if any(is_deliverable(self._request, it) for it in found):
                        return
                if listener.wait(min(interval, LOOK_SECONDS)):
                    looked = None

    # What is registered, followed in a lasting task

    def _may_be_followed(self) -> bool:
        request = self._request
        return request.committed_before is None and request.last_xact_seqno is None and not request.deliver_stopped

    def _following(self, job: DeliveryDraining, opened: OpenDistribution, state: DeliveryState) -> BatchFollowing:
        watermark = bytes.fromhex(self.total.last_xact_seqno or "")
        return BatchFollowing(
            job.over_one_connection(watermark),
            opened.distributor,
            replace(self.row, record=opened.record, subscription=opened.subscription),
            opened.subscription,
            job.left_out_after(watermark),
            state,
            self.timed(self.total),
            self._request.publication.polling_interval,
        )

    def meanwhile(self) -> None:
        """Do now and then, too, what other runs do at their end."""
        super().meanwhile()
        now = time.monotonic()
        if now - self._looked_after_at < AGAIN_SECONDS:
            return
        self._looked_after_at, recorded = now, self.database.history.counted(self.row)
        if recorded.commands == self._looked_after_commands:
            return
        self._looked_after_commands = recorded.commands
        self.record_undelivered(recorded)
        with open_distribution(self.topology, self._request.subscription, self.database) as opened:
            for notice in self._with_sequences(recorded, opened).notices:
                log.warning("%s", notice)

    def record_ending(self, ending: Ending) -> JobResult:
        self.database.deliveries.record(self._record, self._subscription, ending.result.minutes)
        return ending.result.recorded()

    def record_undelivered(self, result: JobResult) -> None:
        """Record how many commands the Subscriber lacks, once it has what the result says."""
        if result.last_xact_seqno is not None:
            watermark = bytes.fromhex(result.last_xact_seqno)
            self.database.deliveries.record_undelivered(self._record, self._subscription, watermark)
