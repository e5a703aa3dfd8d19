"""Before a snapshot job is started: does the subscription wait for one, and is it worth a Spark job?"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

from tranrepl.distribution.sequences import follow_sequences
from tranrepl.distributor.database import DistributionDatabase, RunRow
from tranrepl.distributor.database.history_rows import snapshot_comments
from tranrepl.errors import ReplicationError
from tranrepl.jobs.requests import SnapshotRequest
from tranrepl.jobs.results import JobResult, TableProgress
from tranrepl.publisher.snapshot import TableRange
from tranrepl.snapshot.copying import CopiedRange, RangeCopy
from tranrepl.snapshot.initialization import Runner, initialize
from tranrepl.snapshot.opening import OpenSnapshot, open_snapshot, open_waiting
from tranrepl.topology import Topology

log = logging.getLogger(__name__)

_LOGGED_EVERY_SECONDS = 10.0
SMALL_BYTES = 64 * 1024 * 1024
"""Tables of this size together are copied sooner than Spark has started."""


def idle_result(request: SnapshotRequest, topology: Topology) -> JobResult | None:
    """Return the finished result where no article waits for a snapshot, or all of them together were small and are
    copied now; return None where a Spark job is needed.

    Raises ReplicationError for what stopped a copy.
    """
    clock = time.perf_counter()
    with open_waiting(request, topology) as (opened, waiting):
        if not waiting.articles:
            return JobResult(seconds=time.perf_counter() - clock)
        with open_snapshot(request, topology, opened, waiting) as plan:
            return None if plan.total_bytes > SMALL_BYTES else recorded(plan, InThisProcess())


def recorded(plan: OpenSnapshot, runner: Runner) -> JobResult:
    """Take the snapshot, with a row of the history that says how far it is and how it ended."""
    clock, opened = time.perf_counter(), plan.opened
    row = opened.database.history.begin_run(opened.record, opened.subscription, snapshot=True)
    with _ending(plan, row, clock), opened.database.delivery_states.taking_snapshot(opened.subscription):
        taken = initialize(plan, runner, _History(opened.database, row, clock))
        result = _timed(taken.noticing(_follow_sequences(plan)), clock)
    opened.database.history.end_run(row, result)
    return result


def _follow_sequences(plan: OpenSnapshot) -> tuple[str, ...]:
    """Set the sequences of the tables that were copied. The Publisher's session is open already."""
    settings = plan.request.publication.subscription(plan.request.subscription)
    articles = [it.article for it in plan.articles]
    return follow_sequences(plan.opened.subscriber, settings, articles, lambda: nullcontext(plan.publisher))


@dataclass(slots=True)
class _History:
    """The run's row, which follows every look, and the log: a line for each table that is whole, and now and then what
    is on its way."""

    database: DistributionDatabase
    row: RunRow
    clock: float
    logged: float = field(default_factory=time.monotonic)
    whole: set[str] = field(default_factory=set)

    def report(self, tables: tuple[TableProgress, ...]) -> None:
        self.database.history.record_progress(self.row, _timed(JobResult(snapshot=tables), self.clock))
        for it in tables:
            if it.share >= 1 and it.article not in self.whole:
                self.whole.add(it.article)
                log.info(
                    "%s: %d rows, %d bytes in %.1f s, %.0f bytes/s", it.article, it.rows, it.bytes, it.seconds, it.rate
                )
        if time.monotonic() - self.logged >= _LOGGED_EVERY_SECONDS:
            self.logged = time.monotonic()
            log.info("%s", snapshot_comments(tables))

    def say(self, what: str) -> None:
        self.database.history.record_comments(self.row, what)
        log.info("%s", what)


@contextmanager
def _ending(plan: OpenSnapshot, row: RunRow, clock: float) -> Iterator[None]:
    try:
        yield
    except ReplicationError as error:
        plan.opened.database.history.end_run(row, _timed(JobResult(error=error.report), clock))
        raise


def _timed(result: JobResult, clock: float) -> JobResult:
    return result.model_copy(update={"seconds": time.perf_counter() - clock})


class InThisProcess:
    """One range after the other in this process."""

    cores = 1

    def __call__(self, copy: RangeCopy, ranges: Sequence[TableRange]) -> list[CopiedRange]:
        return list(copy(ranges))
