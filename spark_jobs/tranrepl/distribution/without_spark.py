"""A delivery that needs no Spark: there is nothing to deliver."""

from __future__ import annotations

import time
from collections.abc import Callable

from tranrepl.distribution.opening import recording_refusals
from tranrepl.distributor.database import Batch
from tranrepl.jobs.requests import DistributionRequest
from tranrepl.jobs.results import JobResult
from tranrepl.topology import Topology


def run_without_spark(
    request: DistributionRequest,
    topology: Topology,
    expect: Callable[[int], object] = lambda _: None,
) -> JobResult | None:
    """Return the finished result of a run that has nothing to deliver, recorded in the history; return None where there
    is something, which takes a Spark job. `expect` gets the number of commands to be delivered, at most.

    Raises ReplicationError; that the Subscriber cannot be opened is in the history, as where a Spark job meets it.
    """
    clock = time.perf_counter()
    with recording_refusals(topology, request.subscription) as opened:
        watermark = opened.subscriber.watermark()
        opened.refuse_incomplete(watermark)
        opened.record_arrivals(watermark)
        batches = opened.database.batches.after(opened.record, watermark)
        opened.left_out(deliver_stopped=request.deliver_stopped)
        if any(is_deliverable(request, batch) for batch in batches[:1]):
            expect(sum(batch.commands for batch in batches if is_deliverable(request, batch)))
            return None
        result = JobResult(last_xact_seqno=watermark.hex(), seconds=time.perf_counter() - clock)
        opened.database.history.record_distribution(opened.record, opened.subscription, result)
    return result


def is_deliverable(request: DistributionRequest, batch: Batch) -> bool:
    """Return whether a transaction of the batch may be before the request's bounds."""
    before, last = request.committed_before, request.last_xact_seqno
    in_time = before is None or batch.first_commit_time < before
    return in_time and (last is None or batch.first_xact_seqno <= bytes.fromhex(last))
