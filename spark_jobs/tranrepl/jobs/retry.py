"""When a job that failed is tried again, and how: one policy for the shell, for validation and for Airflow's tasks."""

from __future__ import annotations

import time
from collections.abc import Callable

from tranrepl.errors import ErrorKind, ErrorReport, ReplicationError
from tranrepl.jobs.requests import ApplyMode
from tranrepl.jobs.results import JobResult

PAUSES_SECONDS = (1.0, 4.0)
"""Seconds before each retry of what may pass by itself; as many retries as there are pauses."""


def may_pass(error: ErrorReport | ReplicationError) -> bool:
    """Return whether the same job may succeed when it is tried again, with nothing changed."""
    return error.kind is ErrorKind.TRANSIENT


def may_succeed_serially(error: ErrorReport | ReplicationError) -> bool:
    """Return whether a delivery that failed may succeed over a single connection, in the order of the commands."""
    return error.kind in (ErrorKind.DATA, ErrorKind.TRANSIENT)


def is_final(error: ErrorReport | ReplicationError) -> bool:
    """Return whether another try of the same job would meet the same error."""
    return error.kind in (ErrorKind.DATA, ErrorKind.CONFIGURATION)


def attempt(job: Callable[[], JobResult]) -> JobResult:
    """Run a job and return its result, with what it raised as the result's error."""
    try:
        return job()
    except ReplicationError as error:
        return JobResult(error=error.report)


def attempt_repeatedly(job: Callable[[], JobResult]) -> JobResult:
    """Run a job, and again after each pause while its error may pass by itself. Return the last result."""
    result = attempt(job)
    for pause in PAUSES_SECONDS:
        if result.error is None or not may_pass(result.error):
            break
        time.sleep(pause)
        result = attempt(job)
    return result


def deliver_with_retry(deliver: Callable[[ApplyMode], JobResult], failed: Callable[[ErrorReport], None]) -> JobResult:
    """Deliver over the streams, then over a single connection where a batch failed. Return what all tries did.

    `failed` is called with each error after which the delivery is tried again. An error of the data that a single
    connection meets is the last word; one that may pass is met again after a pause.
    """
    result = attempt(lambda: deliver(ApplyMode.STREAMS))
    for pause in PAUSES_SECONDS:
        if result.error is None or not may_succeed_serially(result.error):
            break
        failed(result.error)
        time.sleep(pause if may_pass(result.error) else 0)
        again = attempt(lambda: deliver(ApplyMode.SINGLE_CONNECTION))
        result = result.plus(again)
        if again.error is not None and not may_pass(again.error):
            break
    return result
