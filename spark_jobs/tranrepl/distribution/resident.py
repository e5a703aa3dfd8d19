"""A distribution job that stays up: it delivers as other jobs do, and between that in one lasting Spark task."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tranrepl.distribution.agent import is_deliverable
from tranrepl.distribution.draining import DistributionJob, with_sequences
from tranrepl.distribution.driver_connection import DriverAddress, DriverConnectionServer
from tranrepl.distribution.opening import OpenDistribution, open_distribution
from tranrepl.distribution.resident_task import Ending, ResidentDelivery, Why
from tranrepl.distribution.spark_tasks import driver_addresses
from tranrepl.distribution.stored_batches import failed_job, is_read_in_order, of_lost_worker
from tranrepl.distributor.database import DeliveryState, DistributionDatabase, RunRow, StateAfter, SubscriptionRecord
from tranrepl.distributor.notifications import Listener
from tranrepl.errors import SNAPSHOT_NOT_AVAILABLE, ConfigurationError, ErrorKind, ErrorReport, ReplicationError
from tranrepl.jobs.requests import DistributionRequest
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.staying import Stay, staying
from tranrepl.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOKED_EVERY_SECONDS = 0.25
"""How soon a stop is heeded."""
_RECORDED_EVERY_SECONDS = 2.0
_TOLD_EVERY_SECONDS = 10.0
_FOLLOWED_EVERY_SECONDS = 60.0
_EVER = timedelta(days=36500)
_LOG_READER_SILENT = timedelta(seconds=60)
"""A log reader that has recorded nothing for so long has died."""
_LOG_READER_TRUSTED_SECONDS = 30.0
"""For so long after the end, one that is silent is waited for: it may have had nothing to record."""
_LOG_READER_AWAITED_SECONDS = 600.0
"""The longest that any is waited for."""
_FENCED_AGAIN_SECONDS = 60.0
_MOST_FAILURES = 3
_SNAPSHOT_AWAITED_SECONDS = 60.0
"""For so long, somebody may begin the snapshot that a subscription waits for."""

log = logging.getLogger(__name__)


def stay(spark: SparkSession, request: DistributionRequest, topology: Topology, until: datetime) -> JobResult:
    """Deliver what is registered until then, or until this process is asked to stop; and at that time what is
    registered by then. The result counts all of it, and has the error that ended it sooner, if one did."""
    with topology.distributor() as database:
        record = database.publications.get(request.publication.publication)
        row = database.history.begin_run(record, database.subscriptions.get(record, request.subscription))
        resident = _Resident(spark, request, topology, database, row, staying(until))
        try:
            resident.run()
        except ReplicationError as error:
            resident.fail(error.report)
        return resident.end()


@dataclass(slots=True)
class _Failures:
    """Errors of lasting tasks, which what other jobs do may have got over."""

    in_turn: int = 0
    fenced_at: float | None = None

    def lasts(self, error: ErrorReport, *, delivered: bool) -> bool:
        """Return whether another task would meet the same error."""
        if error.kind is ErrorKind.FENCED:
            before, self.fenced_at = self.fenced_at, time.monotonic()
            return before is not None and self.fenced_at - before < _FENCED_AGAIN_SECONDS
        self.in_turn = 1 if delivered else self.in_turn + 1
        return self.in_turn >= _MOST_FAILURES


@dataclass
class _Resident:
    _spark: SparkSession
    _request: DistributionRequest
    _topology: Topology
    _database: DistributionDatabase
    _row: RunRow
    _stay: Stay
    _total: JobResult = field(default_factory=JobResult)
    _began: float = field(default_factory=time.monotonic)
    _recorded: float = 0.0
    _told: float = field(default_factory=time.monotonic)
    _followed: float = field(default_factory=time.monotonic)
    _told_commands: int = 0
    _followed_commands: int = 0
    _over_since: float | None = None
    _without_snapshot_since: float | None = None
    _failures: _Failures = field(default_factory=_Failures)

    def run(self) -> None:
        """Deliver until the stay is over, or until an error, which is in the total or raised."""
        while not self._stay.asked_to_stop():
            last = self._is_over()
            try:
                task = self._deliver_registered()
            except ConfigurationError as error:
                if last or not self._may_come_soon(error):
                    raise
                self._stay.wait(self._request.publication.polling_interval)
                if self._stay.is_over():
                    # A stay that is over waits no more.
                    time.sleep(_LOOKED_EVERY_SECONDS)
                continue
            self._without_snapshot_since = None
            if self._total.error is not None or last:
                return
            if task is None:
                self._wait_for_batches()
            else:
                self._deliver_in_task(task)
            if self._total.error is not None:
                return

    def _may_come_soon(self, error: ConfigurationError) -> bool:
        """Return whether a snapshot is missing that somebody may be about to begin."""
        if error.report.number != SNAPSHOT_NOT_AVAILABLE:
            return False
        now = time.monotonic()
        since = self._without_snapshot_since = self._without_snapshot_since or now
        return now - since < _SNAPSHOT_AWAITED_SECONDS

    def fail(self, error: ErrorReport) -> None:
        self._total = self._total.model_copy(update={"error": error})

    def end(self) -> JobResult:
        """Record how the run ended, and return its result."""
        result = self._timed(self._total)
        self._database.history.end_run(self._row, result)
        if result.last_xact_seqno is not None and result.error is None:
            self._record_undelivered(result)
        return result

    def _record_undelivered(self, result: JobResult) -> None:
        record, subscription = self._row.record, self._subscription
        watermark = bytes.fromhex(result.last_xact_seqno or "")
        self._database.deliveries.record_undelivered(record, subscription, watermark)

    @cached_property
    def _subscription(self) -> SubscriptionRecord:
        return self._database.subscriptions.get(self._row.record, self._request.subscription)

    def _timed(self, result: JobResult) -> JobResult:
        return result.model_copy(update={"seconds": time.monotonic() - self._began})

    def _is_over(self) -> bool:
        """Return whether what is registered by now is the end: it is time, and no log reader runs beside this that may
        register more."""
        if not self._stay.is_at_its_time():
            return False
        now = time.monotonic()
        self._over_since = now if self._over_since is None else self._over_since
        waited = now - self._over_since
        if waited > _LOG_READER_AWAITED_SECONDS:
            return True
        silent = _EVER if waited < _LOG_READER_TRUSTED_SECONDS else _LOG_READER_SILENT
        return not self._database.history.log_reader_runs(self._row.record, silent)

    # Deliveries as other jobs make them

    def _deliver_registered(self) -> ResidentDelivery | None:
        """Deliver what is registered by now. Return what a lasting task goes on with; None where none can."""
        # Before all that depends on it.
        after = self._state_when_free()
        with open_distribution(self._topology, self._request.subscription) as opened:
            before = self._total
            job = DistributionJob(
                self._spark,
                self._request,
                opened,
                self._row,
                lambda so_far: self._record_progress(before.plus(so_far)),
                self._stay.asked_to_stop,
            )
            done = job.run()
            self._total = before.plus(with_sequences(done, self._topology, opened))
            self._record_progress(self._total)
            for notice in done.notices:
                log.warning("%s", notice)
            if after is None or not self._may_be_left_to_a_task(opened):
                return None
            return self._task(job, opened, after.state)

    def _state_when_free(self) -> StateAfter | None:
        """Return the state once nobody holds the delivery back: a validation, or, as long as this stays, a snapshot."""
        after, told = self._state(), False
        while after is not None and not self._stay.asked_to_stop():
            snapshot = after.takes_snapshot and not self._stay.is_over()
            if not (after.is_paused or snapshot):
                break
            if snapshot and not told:
                told = True
                log.info("the snapshot of subscription %s is being taken: waiting for it", self._request.subscription)
            time.sleep(_LOOKED_EVERY_SECONDS)
            after = self._state()
        return after

    def _state(self) -> StateAfter | None:
        return self._database.delivery_states.after(self._row.record, self._subscription, b"")

    def _record_progress(self, so_far: JobResult) -> None:
        now = time.monotonic()
        if now - self._recorded > _RECORDED_EVERY_SECONDS:
            self._recorded = now
            self._database.history.record_progress(self._row, self._timed(so_far))

    def _wait_for_batches(self) -> None:
        """Wait until something is registered that may be delivered, or until the stay is over."""
        record, interval = self._row.record, self._request.publication.polling_interval
        looked: float | None = None
        with Listener(self._topology.distributor_connection, record.publication_id) as listener:
            while not self._stay.asked_to_stop() and not self._is_over():
                now = time.monotonic()
                if looked is None or now - looked >= interval:
                    looked = now
                    found = self._database.batches.after(record, bytes.fromhex(self._total.last_xact_seqno or ""), 1)
                    if any(is_deliverable(self._request, it) for it in found):
                        return
                if listener.wait(min(interval, _LOOKED_EVERY_SECONDS)):
                    looked = None
                self._tell_progress(self._total)

    # The lasting task

    def _may_be_left_to_a_task(self, opened: OpenDistribution) -> bool:
        request = self._request
        bounded = request.committed_before is not None or request.up_to is not None or request.deliver_stopped
        return is_read_in_order(opened.record) and not bounded

    def _task(self, job: DistributionJob, opened: OpenDistribution, state: DeliveryState) -> ResidentDelivery:
        watermark = bytes.fromhex(self._total.last_xact_seqno or "")
        return ResidentDelivery(
            job.over_one_connection(watermark),
            opened.distribution,
            replace(self._row, record=opened.record, subscription=opened.subscription),
            opened.subscription,
            job.left_out_after(watermark),
            state,
            self._timed(self._total),
            self._request.publication.polling_interval,
            DriverAddress("", 0),
        )

    def _deliver_in_task(self, task: ResidentDelivery) -> None:
        """Deliver what is registered from now on, until something asks for another job, or for the end."""
        ending = self._ending_of(task)
        result, error = ending.result, ending.result.error
        delivered = result.transactions > self._total.transactions
        self._database.deliveries.record(self._row.record, self._subscription, result.minutes)
        self._total = result.recorded().model_copy(update={"error": None})
        if error is None:
            return
        if self._failures.lasts(error, delivered=delivered):
            self.fail(error)
        else:
            log.warning("what the error kept from being delivered is tried again: %s", error.message)

    def _ending_of(self, task: ResidentDelivery) -> Ending:
        """Let a task deliver until it ends, which it is asked to when the stay is over."""
        with (
            ThreadPoolExecutor(1, "tranrepl-task") as executor,
            DriverConnectionServer(*driver_addresses(self._spark)) as server,
        ):
            ending = executor.submit(self._run, replace(task, driver=server.address))
            with self._stay.woken_by(ending) as woken:
                while not ending.done():
                    over = self._stay.asked_to_stop() or self._is_over()
                    if over:
                        server.cut()
                    if over or self._stay.is_over():
                        wait([ending], _LOOKED_EVERY_SECONDS)
                    else:
                        woken.wait(max(_LOOKED_EVERY_SECONDS, min(_TOLD_EVERY_SECONDS, self._stay.seconds_left())))
                    self._look_at_progress()
            return ending.result()

    def _run(self, task: ResidentDelivery) -> Ending:
        one = self._spark.sparkContext.parallelize([0], 1)
        try:
            (answer,) = one.mapPartitions(task).collect()
        except (PySparkException, Py4JError) as problem:
            error = of_lost_worker(str(problem)) or failed_job(str(problem))
            return Ending(why=Why.ERROR, result=self._recorded_by(task).model_copy(update={"error": error.report}))
        return Ending.model_validate_json(answer)

    def _recorded_by(self, task: ResidentDelivery) -> JobResult:
        """Return what a task that answers nothing has recorded of the run."""
        known, recorded = task.so_far, self._database.history.counted(self._row)
        if recorded.transactions <= known.transactions:
            return known
        return known.model_copy(update={name: getattr(recorded, name) for name in recorded.model_fields_set})

    def _look_at_progress(self) -> None:
        """Tell of what the task has recorded, and do now and then what other jobs do at their end."""
        now = time.monotonic()
        if now - self._told < _TOLD_EVERY_SECONDS:
            return
        recorded = self._database.history.counted(self._row)
        self._tell_progress(recorded)
        if now - self._followed < _FOLLOWED_EVERY_SECONDS or recorded.commands == self._followed_commands:
            return
        self._followed, self._followed_commands = now, recorded.commands
        self._record_undelivered(recorded)
        with open_distribution(self._topology, self._request.subscription) as opened:
            for notice in with_sequences(recorded, self._topology, opened).notices:
                log.warning("%s", notice)

    def _tell_progress(self, so_far: JobResult) -> None:
        now = time.monotonic()
        if now - self._told < _TOLD_EVERY_SECONDS:
            return
        self._told = now
        if so_far.commands != self._told_commands:
            self._told_commands = so_far.commands
            log.info("delivered %d transactions with %d commands by now", so_far.transactions, so_far.commands)
