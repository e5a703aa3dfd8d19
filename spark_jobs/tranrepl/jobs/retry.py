"""When a job that failed is tried again, and how: one policy for the shell, for validation and for Airflow's tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

from tranrepl.errors import ErrorKind, ErrorReport, ReplicationError
from tranrepl.jobs.requests import ApplyMode
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.staying import Stay

PAUSES_SECONDS = (1.0, 4.0)
"""Seconds before each retry of what may pass by itself; as many retries as there are pauses."""
_LONGEST_PAUSE_SECONDS = 30.0
"""Between two tries of an agent that stays up, which gives up no sooner than its time is over."""
_SHORTEST_SECONDS = 1.0
_MENDED_SECONDS = 60.0
"""Until an agent that stays up tries again what does not pass by itself."""

Failed = Callable[[ErrorReport], None]
"""Is told each error after which there is another try."""


def may_pass(error: ErrorReport | ReplicationError) -> bool:
    """Return whether the same job may succeed when it is tried again, with nothing changed."""
    return error.kind is ErrorKind.TRANSIENT


def may_succeed_serially(error: ErrorReport | ReplicationError) -> bool:
    """Return whether a delivery that failed may succeed over a single connection, in the order of the commands."""
    return error.kind in (ErrorKind.DATA, ErrorKind.TRANSIENT)


def is_final(error: ErrorReport | ReplicationError) -> bool:
    """Return whether another try of the same job would meet the same error."""
    return error.kind in (ErrorKind.DATA, ErrorKind.CONFIGURATION)


def passes_while_staying(error: ErrorReport | ReplicationError) -> bool:
    """Return whether an agent that stays up waits and goes on: also where another job was faster, which may end."""
    return error.kind in (ErrorKind.TRANSIENT, ErrorKind.FENCED)


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


def read_while_staying(read: Callable[[], JobResult], stay: Stay, failed: Failed, *, gives_up: bool) -> JobResult:
    """Read the log by a job that stays up, again where it ended by an error, until the time is over. Return what all of
    them did; the error is the last one's.

    After an error that does not pass by itself it gives up, or tries again a minute later: somebody may have mended it.
    """
    total, pauses = JobResult(), _pauses()
    while True:
        began = time.monotonic()
        result = attempt(read)
        total, over = total.plus(result), stay.is_over()
        if result.error is None and over:
            break
        if result.error is None:
            pauses = _pauses()
            _rest(stay, began)
            continue
        passes = passes_while_staying(result.error)
        if over or (gives_up and not passes):
            break
        failed(result.error)
        pauses = _after(began, pauses)
        stay.wait(next(pauses) if passes else _MENDED_SECONDS)
    return total


def deliver_while_staying(
    deliver: Callable[[ApplyMode, bool], JobResult],
    stay: Stay,
    failed: Failed,
    *,
    first: ApplyMode = ApplyMode.STREAMS,
    gives_up: bool,
) -> JobResult:
    """Deliver over the streams by a job that stays up; where a batch fails, over a single connection by one that ends
    when it has delivered what is stored, and then over the streams again, until the time is over.

    `deliver` is told how, and whether to stay up. Return what all tries did; the error is the last one's. After one
    that a single connection met, and that does not pass by itself, it gives up, or tries again a minute later.
    """
    total, mode, pauses = JobResult(), first, _pauses()
    while True:
        stays, began = mode is ApplyMode.STREAMS, time.monotonic()
        result = attempt(partial(deliver, mode, stays))
        total, error = total.plus(result), result.error
        if error is None and stay.is_over():
            break
        if error is None:
            mode, pauses = ApplyMode.STREAMS, _pauses()
            if stays:
                _rest(stay, began)
            continue
        passes, serially = passes_while_staying(error), may_succeed_serially(error)
        last_try = stay.is_over() and not (stays and serially)
        if last_try or (gives_up and not passes and not (stays and serially)):
            break
        failed(error)
        pauses = _after(began, pauses)
        mode = ApplyMode.SINGLE_CONNECTION if serially else ApplyMode.STREAMS
        if passes:
            stay.wait(next(pauses))
        elif not (stays and serially):
            stay.wait(_MENDED_SECONDS)
    return total


def _rest(stay: Stay, began: float) -> None:
    """Wait where a job that stays up has ended as soon as it began: whatever it is, it is not to go round and round."""
    stay.wait(max(0.0, _SHORTEST_SECONDS - (time.monotonic() - began)))


def _after(began: float, pauses: Iterator[float]) -> Iterator[float]:
    """Return the pauses after a try that failed: short ones again where it lasted, so that it is another error."""
    return _pauses() if time.monotonic() - began > _LONGEST_PAUSE_SECONDS else pauses


def _pauses() -> Iterator[float]:
    pause = PAUSES_SECONDS[0]
    while True:
        yield pause
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
