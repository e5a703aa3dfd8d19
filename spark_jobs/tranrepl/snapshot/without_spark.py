"""A snapshot that needs no Spark: no article waits for one, or their tables are small."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from tranrepl.distribution.sequences import follow_sequences
from tranrepl.distributor.database import RunRow
from tranrepl.errors import ReplicationError
from tranrepl.jobs.requests import SnapshotRequest
from tranrepl.jobs.results import JobResult
from tranrepl.publisher.snapshot import TableRange
from tranrepl.snapshot.bringing_forward import ReadLogPast
from tranrepl.snapshot.copying import CopiedRange, RangeCopy
from tranrepl.snapshot.initialization import Runner, SnapshotHistory, initialize
from tranrepl.snapshot.opening import OpenSnapshot, open_snapshot, open_waiting
from tranrepl.topology import Topology

SMALL_BYTES = 64 * 1024 * 1024
"""Tables of this size together are copied sooner than Spark has started."""


def run_without_spark(request: SnapshotRequest, topology: Topology) -> JobResult | None:
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
        taken = initialize(plan, runner, SnapshotHistory(opened.database, row, clock))
        result = _timed(taken.noticing(_follow_sequences(plan)), clock)
    opened.database.history.end_run(row, result)
    return result


def _follow_sequences(plan: OpenSnapshot) -> tuple[str, ...]:
    """Set the sequences of the tables that were copied. The Publisher's session is open already."""
    settings = plan.request.publication.subscription(plan.request.subscription)
    articles = [it.article for it in plan.articles]
    return follow_sequences(plan.opened.subscriber, settings, lambda: articles, lambda: nullcontext(plan.publisher))


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
    read_log_past: ReadLogPast | None = None

    def __call__(self, copy: RangeCopy, ranges: Sequence[TableRange]) -> list[CopiedRange]:
        return list(copy(ranges))
