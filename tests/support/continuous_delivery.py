"""A continuous delivery, in a thread of the test's process, or in a child process that can be killed."""

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
from tranrepl.jobs.shutdown import ShutdownRequest, heeding_shutdown

_LONG = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class ContinuousDelivery:
    site: Site
    asked: ShutdownRequest
    job: Future[JobResult]
    subscription: str

    def wait_until_delivered(self) -> None:
        """Wait until the Subscriber has all that is registered."""
        wait_until(lambda: is_delivered(self.site, self.subscription), lambda: not self.job.done())

    def result(self) -> JobResult:
        """Ask it to stop, and return its result with its error."""
        self.asked.ask()
        return self.job.result(60)


def is_delivered(site: Site, subscription: str = "reporting") -> bool:
    ((last,),) = distribution_rows(site, "SELECT max(last_xact_seqno) FROM msrepl_batches")
    return last is None or watermark(site, subscription) >= bytes(last)


@contextmanager
def delivering(
    site: Site, subscription: str = "reporting", lasts: timedelta = _LONG, spark: Any = None, **settings: Any
) -> Iterator[ContinuousDelivery]:
    """Run a continuous delivery beside what the test does."""
    request, session = _request(site, subscription, lasts, **settings), spark or _spark_here()
    with heeding_shutdown() as asked, ThreadPoolExecutor(1) as executor:
        job = executor.submit(distribution_job.run, session, request, site.connections)
        try:
            yield ContinuousDelivery(site, asked, job, subscription)
        finally:
            asked.ask()


def deliver_continuously(site: Site) -> JobResult:
    """Deliver for a long time: a job for `ChildJob`, which is killed."""
    return distribution_job.run(_spark_here(), _request(site, "reporting", _LONG), site.connections)


def _spark_here() -> Any:
    return SparkHere()


def _request(site: Site, subscription: str, lasts: timedelta, **settings: Any) -> DistributionRequest:
    until = datetime.now(UTC) + lasts
    named: dict[str, Any] = {"publication": site.publication, "subscription": subscription}
    return DistributionRequest(**named, continuous_until=until, **settings)
