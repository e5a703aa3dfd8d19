"""When a job that failed is tried again, and how: one policy for the shell, for validation and for Airflow's tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from tranrepl.errors import ErrorKind, ErrorReport, ReplicationError
from tranrepl.jobs.requests import ApplyMode
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.shutdown import Shutdown

PAUSES_SECONDS = (1.0, 4.0)
"""Seconds before each retry of what may pass by itself; as many retries as there are pauses."""
_LONGEST_PAUSE_SECONDS = 30.0
"""Between two tries of a continuous agent, which gives up no sooner than its time is over."""
_SHORTEST_SECONDS = 1.0
_MENDED_SECONDS = 60.0
"""Until a continuous agent tries again what does not pass by itself."""

Failed = Callable[[ErrorReport], None]
"""Called with each error after which there is another try."""


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


def deliver_with_retry(deliver: Callable[[ApplyMode], JobResult], failed: Failed) -> JobResult:
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


def keep_running(
    job: Callable[[], JobResult],
    shutdown: Shutdown,
    failed: Failed,
    *,
    serially: Callable[[], JobResult] | None = None,
    begins_serially: bool = False,
    gives_up: bool,
) -> JobResult:
    """Run an agent's continuous job, again where it ended by an error, until its shutdown. Return what all tries did;
    the error is the last one's.

    Where a delivery failed, `serially` delivers over a single connection what is stored, and ends; then the continuous
    job goes on. After an error that passes by itself there is a pause, longer each time; after another one it gives up,
    or tries again a minute later: somebody may have mended it. Where another job was faster, that one may end.
    """
    total, serial, pauses = JobResult(), begins_serially, _pauses()
    while True:
        began = time.monotonic()
        result = attempt(serially if serial and serially is not None else job)
        total, error = total.plus(result), result.error
        if error is None:
            if shutdown.is_due():
                break
            if not serial:
                _rest(shutdown, began)
            serial, pauses = False, _pauses()
            continue
        goes_serially = serially is not None and may_succeed_serially(error)
        is_other_way = goes_serially and not serial
        passes = error.kind in (ErrorKind.TRANSIENT, ErrorKind.FENCED)
        if not is_other_way and (shutdown.is_due() or (gives_up and not passes)):
            break
        failed(error)
        serial, pauses = goes_serially, _after(began, pauses)
        if passes:
            shutdown.wait(next(pauses))
        elif not is_other_way:
            shutdown.wait(_MENDED_SECONDS)
    return total


def _rest(shutdown: Shutdown, began: float) -> None:
    """Wait where a continuous job has ended as soon as it began: whatever it is, it is not to go round and round."""
    shutdown.wait(max(0.0, _SHORTEST_SECONDS - (time.monotonic() - began)))


def _after(began: float, pauses: Iterator[float]) -> Iterator[float]:
    """Return the pauses after a try that failed: short ones again where it lasted, so that it is another error."""
    return _pauses() if time.monotonic() - began > _LONGEST_PAUSE_SECONDS else pauses


def _pauses() -> Iterator[float]:
    pause = PAUSES_SECONDS[0]
    while True:
        yield pause
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
