"""The distribution job: stored commands to one Subscriber, once up to a bound, or for as long as the job stays up."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tranrepl.connections import Connection
from tranrepl.distribution.draining import DistributionJob, with_sequences
from tranrepl.distribution.opening import open_distribution
from tranrepl.errors import ReplicationError
from tranrepl.jobs.requests import DistributionRequest
from tranrepl.jobs.results import JobResult
from tranrepl.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


def run(spark: SparkSession, request: DistributionRequest, connections: Mapping[str, Connection]) -> JobResult:
    """Deliver what is registered, up to the request's bound. The result, error or not, is in the history."""
    topology = Topology(request.publication, connections)
    if request.stay_until is not None:
        # Most jobs end by themselves, and start sooner without it.
        from tranrepl.distribution.resident import stay

        return stay(spark, request, topology, request.stay_until)
    clock = time.perf_counter()
    with open_distribution(topology, request.subscription) as opened:
        row = opened.database.history.begin_run(opened.record, opened.subscription)

        def record_progress(so_far: JobResult) -> None:
            opened.database.history.record_progress(row, _timed(so_far, clock))

        try:
            delivered = DistributionJob(spark, request, opened, row, record_progress).run()
            _tell(delivered)
            result = _timed(with_sequences(delivered, topology, opened), clock)
        except ReplicationError as error:
            opened.database.history.end_run(row, _timed(JobResult(error=error.report), clock))
            raise
        opened.database.history.end_run(row, result)
        if result.last_xact_seqno is not None:
            watermark = bytes.fromhex(result.last_xact_seqno)
            opened.database.deliveries.record_undelivered(opened.record, opened.subscription, watermark)
    return result


def _timed(result: JobResult, clock: float) -> JobResult:
    return result.model_copy(update={"seconds": time.perf_counter() - clock})


def _tell(total: JobResult) -> None:
    for notice in total.notices:
        log.warning("%s", notice)
    if total.skipped:
        log.warning("%d commands were skipped, as skip_errors says", total.skipped)
    log.info("delivered %d transactions with %d commands", total.transactions, total.commands)
