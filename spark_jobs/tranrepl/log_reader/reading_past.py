"""Reading the log until all that a snapshot shows is registered."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tranrepl.distributor.database import DistributionDatabase
from tranrepl.errors import ARTICLE_DOES_NOT_EXIST, ErrorKind, TransientError
from tranrepl.jobs.requests import LogReaderRequest
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.retry import attempt, may_pass
from tranrepl.log_reader import job, without_spark
from tranrepl.model.position import FIRST_POSITION, Position
from tranrepl.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG_SECONDS = 300.0
_PAUSE = 1.0


def read_log_past(spark: SparkSession, topology: Topology, database: DistributionDatabase, position: Position) -> None:
    """Read the log until all before a position is registered, by this log reader or another one."""
    publication, deadline = topology.publication, time.monotonic() + _LOG_SECONDS

    def registered_to() -> Position:
        return database.publications.get(publication.publication).registered_to or FIRST_POSITION

    while (before := registered_to()) < position:
        error = attempt(lambda: _read_log(spark, topology)).error
        if error is not None and error.number == ARTICLE_DOES_NOT_EXIST:
            # The log was read to its end all the same.
            error = None
        passing = error is None or error.kind is ErrorKind.FENCED or may_pass(error)
        late = time.monotonic() >= deadline
        if error is not None and (late or not passing):
            raise error.to_exception()
        if late:
            raise TransientError(
                f"publication {publication.publication}: the log is not read up to the snapshot after "
                f"{_LOG_SECONDS:.0f} seconds",
                remedy="`tranrepl status FILE` says what the log reader waits for",
            )
        if registered_to() == before:
            time.sleep(_PAUSE)


def _read_log(spark: SparkSession, topology: Topology) -> JobResult:
    request = LogReaderRequest(publication=topology.publication)
    return without_spark.run_without_spark(request, topology) or job.run(spark, request, topology.connections)
