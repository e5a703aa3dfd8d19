"""`tranrepl run`: one run of a publication, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tranrepl.errors import INCONSISTENT_DISTRIBUTION_DATABASE, SNAPSHOT_NOT_AVAILABLE
from tranrepl.jobs.results import JobResult

LOG_READER = "log reader"
"""The log reader's step."""
SNAPSHOT = " snapshot"
"""What follows a subscription's name, for the step that takes its snapshot."""


@dataclass(frozen=True, slots=True)
class Steps:
    """How each is done; its result, with its error."""

    read_log: Callable[[], JobResult]
    take_snapshot: Callable[[str], JobResult]
    """Takes a subscription's snapshot, where it waits for one."""
    deliver: Callable[[str], JobResult]


def run(subscriptions: Iterable[str], steps: Steps) -> dict[str, JobResult]:
    """Read the log, then give each subscription its snapshot and what is stored. Results by step.

    None of them waits for another one's error to be mended: what is stored is delivered whatever stopped the log
    reader, and to whoever needs no snapshot whatever stopped that. Only where the log went back, what is stored is not
    what the Publisher has.
    """
    results = {LOG_READER: steps.read_log()}
    stopped = results[LOG_READER].error
    log_was_reset = stopped is not None and stopped.number == INCONSISTENT_DISTRIBUTION_DATABASE
    for name in () if log_was_reset else subscriptions:
        taken = steps.take_snapshot(name)
        if taken.snapshot or taken.error is not None:
            results[f"{name}{SNAPSHOT}"] = taken
        delivered = steps.deliver(name)
        if taken.error is None or not _waits_for_snapshot(delivered):
            results[name] = delivered
    return results


def _waits_for_snapshot(delivered: JobResult) -> bool:
    return delivered.error is not None and delivered.error.number == SNAPSHOT_NOT_AVAILABLE
