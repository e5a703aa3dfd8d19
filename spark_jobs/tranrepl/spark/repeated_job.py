"""A job that stays up by being done again and again, each time as it is done once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from tranrepl.connections import Connection
from tranrepl.jobs.requests import DistributionRequest, LogReaderRequest
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.retry import attempt
from tranrepl.jobs.staying import staying

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Request = TypeVar("Request", LogReaderRequest, DistributionRequest)
Run = Callable[["SparkSession", Request, Mapping[str, Connection]], JobResult]


def repeated(run: Run[Request]) -> Run[Request]:
    """Return the job, which does what it is asked once, or, where it is to stay up, again after each
    `polling_interval`, and a last time when its time is over."""

    def run_until(spark: SparkSession, request: Request, connections: Mapping[str, Connection]) -> JobResult:
        if request.stay_until is None:
            return run(spark, request, connections)
        stay, once = staying(request.stay_until), request.model_copy(update={"stay_until": None})
        total = JobResult()
        while True:
            over = stay.is_over()
            total = total.plus(attempt(lambda: run(spark, once, connections)))
            if over or total.error is not None:
                return total
            stay.wait(request.publication.polling_interval)

    return run_until
