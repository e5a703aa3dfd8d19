"""`tranrepl run` in this process, without a JVM."""

from __future__ import annotations

from support.site import Site
from tranrepl.admin.run import Steps, read_log, run
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.retry import attempt


def whole_run(site: Site) -> dict[str, JobResult]:
    """Return the results by step, with their errors."""
    steps = Steps(
        lambda: read_log(site.publication, lambda: site.topology, site.read_log),
        lambda name: attempt(lambda: site.take_snapshot(subscription=name)),
        lambda name: attempt(lambda: site.deliver(name)),
    )
    return run([it.name for it in site.publication.subscriptions], steps)


def good_run(site: Site) -> dict[str, JobResult]:
    """Return the results by step. Raises the first error."""
    results = whole_run(site)
    for result in results.values():
        result.raise_error()
    return results
