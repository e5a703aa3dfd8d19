"""Before a snapshot job is started: does the subscription wait for one, and is it worth a Spark job?"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from tranrepl.connections import Connection
from tranrepl.distributor.database import RunRow, snapshot_comments
from tranrepl.errors import ReplicationError
from tranrepl.jobs import JobResult, SnapshotRequest
from tranrepl.snapshot.copying import CopiedRange, RangeCopy
from tranrepl.snapshot.initialization import Runner, initialize
from tranrepl.snapshot.opening import OpenSnapshot, open_snapshot, open_waiting
from tranrepl.snapshot.ranges import TableRange

log = logging.getLogger(__name__)

SMALL_BYTES = 64 * 1024 * 1024
"""Tables of this size together are copied sooner than Spark has started."""


def idle_result(request: SnapshotRequest, connections: Mapping[str, Connection]) -> JobResult | None:
    """The finished result where no article waits for a snapshot, or all of them together were small and are copied now;
    None where it takes a Spark job.

    Raises ReplicationError for what stopped a copy.
    """
    clock = time.perf_counter()
    with open_waiting(request, connections) as (opened, waiting):
        if not waiting.articles:
            return JobResult(seconds=time.perf_counter() - clock)
        with open_snapshot(request, connections, opened, waiting) as plan:
            return None if plan.total_bytes > SMALL_BYTES else recorded(plan, Here())


def recorded(plan: OpenSnapshot, runner: Runner) -> JobResult:
    """Initialise, with a row of the history that tells how far it is and how it ended."""
    clock, opened = time.perf_counter(), plan.opened
    row = opened.database.start_run(opened.record, opened.subscription)

    def tell(so_far: JobResult) -> None:
        opened.database.tell_progress(row, _timed(so_far, clock))
        log.info("%s", snapshot_comments(so_far.snapshot))

    with _ending(plan, row, clock):
        result = _timed(initialize(plan, runner, tell), clock)
    opened.database.end_run(row, result)
    return result


@contextmanager
def _ending(plan: OpenSnapshot, row: RunRow, clock: float) -> Iterator[None]:
    try:
        yield
    except ReplicationError as error:
        plan.opened.database.end_run(row, _timed(JobResult(error=error.to_report()), clock))
        raise


def _timed(result: JobResult, clock: float) -> JobResult:
    return result.model_copy(update={"seconds": time.perf_counter() - clock})


class Here:
    """One range after the other in this process."""

    cores = 1

    def __call__(self, copy: RangeCopy, ranges: Sequence[TableRange]) -> list[CopiedRange]:
        return list(copy(ranges))
