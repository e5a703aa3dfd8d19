"""The log reader job: the Publisher's log into the store, once up to its end, or for as long as the job stays up."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tranrepl.connections import Connection
from tranrepl.errors import ReplicationError
from tranrepl.jobs.requests import LogReaderRequest
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.staying import staying
from tranrepl.log_reader.draining import LogReader
from tranrepl.log_reader.opening import open_log_reader
from tranrepl.log_reader.resident import ResidentLogReader
from tranrepl.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


def run(spark: SparkSession, request: LogReaderRequest, connections: Mapping[str, Connection]) -> JobResult:
    """Read all that was committed before now, or until the job's time is over. The result, error or not, is in the
    history."""
    topology = Topology(request.publication, connections)
    if request.stay_until is None:
        result = _drain(spark, request, topology)
    else:
        result = ResidentLogReader(spark, request, topology, staying(request.stay_until)).run()
    for notice in result.notices:
        log.warning("%s", notice)
    return result


def _drain(spark: SparkSession, request: LogReaderRequest, topology: Topology) -> JobResult:
    clock = time.perf_counter()
    with open_log_reader(topology) as opened:
        reader = LogReader(spark, request, opened)
        row = opened.database.history.begin_run(opened.record)
        reader.record_progress = lambda so_far: opened.database.history.record_progress(row, so_far)
        error: ReplicationError | None = None
        try:
            reader.drain()
        except ReplicationError as problem:
            error = problem
        result = reader.result.model_copy(
            update={"seconds": time.perf_counter() - clock, "error": error.report if error else None}
        )
        opened.database.history.end_run(row, result)
    return result
