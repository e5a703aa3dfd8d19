"""A delivery that stays up, in a thread of the test's process, or in a child process that can be killed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from support.observed import distribution_rows, wait_until, watermark
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.distribution import job as distribution_job
from tranrepl.jobs.requests import DistributionRequest
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.staying import StopRequest, heeding_stops

_LONG = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class StayingDelivery:
    site: Site
    stop_request: StopRequest
    job: Future[JobResult]
    subscription: str

    def wait_until_delivered(self) -> None:
        """Wait until the Subscriber has all that is registered."""
        wait_until(lambda: is_delivered(self.site, self.subscription), lambda: not self.job.done())

    def result(self) -> JobResult:
        """Ask it to stop, and return its result with its error."""
        self.stop_request.stop()
        return self.job.result(60)


def is_delivered(site: Site, subscription: str = "reporting") -> bool:
    ((last,),) = distribution_rows(site, "SELECT max(last_xact_seqno) FROM msrepl_batches")
    return last is None or watermark(site, subscription) >= bytes(last)


@contextmanager
def delivering(
    site: Site, subscription: str = "reporting", stay: timedelta = _LONG, spark: Any = None, **asked: Any
) -> Iterator[StayingDelivery]:
    """Let a delivery stay up beside what the test does."""
    request, session = _request(site, subscription, stay, **asked), spark or _spark_here()
    with heeding_stops() as stop_request, ThreadPoolExecutor(1) as executor:
        job = executor.submit(distribution_job.run, session, request, site.connections)
        try:
            yield StayingDelivery(site, stop_request, job, subscription)
        finally:
            stop_request.stop()


def stay_up(site: Site) -> JobResult:
    """Deliver for a long time: a job for `ChildJob`, which is killed."""
    return distribution_job.run(_spark_here(), _request(site, "reporting", _LONG), site.connections)


def _spark_here() -> Any:
    return SparkHere()


def _request(site: Site, subscription: str, stay: timedelta, **asked: Any) -> DistributionRequest:
    until = datetime.now(UTC) + stay
    return DistributionRequest(publication=site.publication, subscription=subscription, stay_until=until, **asked)
