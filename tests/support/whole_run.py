"""`tranrepl run` in this process, without a JVM."""

from __future__ import annotations

from collections.abc import Callable

from support.site import Site
from tranrepl.admin.run import Steps, run
from tranrepl.errors import ReplicationError
from tranrepl.jobs.results import JobResult


def whole_run(site: Site) -> dict[str, JobResult]:
    """Return the results by step, with their errors."""
    steps = Steps(
        lambda: _attempt(site.read_log),
        lambda name: _attempt(lambda: site.take_snapshot(subscription=name)),
        lambda name: _attempt(lambda: site.deliver(name)),
    )
    return run([it.name for it in site.publication.subscriptions], steps)


def good_run(site: Site) -> dict[str, JobResult]:
    """Return the results by step. Raises the first error."""
    results = whole_run(site)
    for result in results.values():
        result.raise_error()
    return results


def _attempt(job: Callable[[], JobResult]) -> JobResult:
    try:
        return job()
    except ReplicationError as error:
        return JobResult(error=error.report)
