"""When a job is tried again: by the error's kind, as often as the policy has pauses."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tranrepl.errors import CLASS_OF_KIND, ErrorKind, ErrorReport
from tranrepl.jobs import retry
from tranrepl.jobs.requests import ApplyMode
from tranrepl.jobs.results import JobResult


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "PAUSES_SECONDS", (0.0, 0.0))


def _ending(kinds: Iterable[ErrorKind | None]) -> Callable[[], JobResult]:
    """Return a job whose tries end with these errors in turn, None being success."""
    ends = iter(kinds)

    def job() -> JobResult:
        if (kind := next(ends)) is not None:
            raise CLASS_OF_KIND[kind]("it broke")
        return JobResult(transactions=1)

    return job


@pytest.mark.parametrize(
    ("ends", "final"),
    [
        ([None], None),
        ([ErrorKind.TRANSIENT, None], None),
        ([ErrorKind.TRANSIENT, ErrorKind.CONFIGURATION], ErrorKind.CONFIGURATION),
        ([ErrorKind.TRANSIENT] * 3, ErrorKind.TRANSIENT),
        ([ErrorKind.DATA], ErrorKind.DATA),
        ([ErrorKind.FENCED], ErrorKind.FENCED),
    ],
)
def test_a_job_is_repeated_while_its_error_may_pass(ends: list[ErrorKind | None], final: ErrorKind | None) -> None:
    error = retry.attempt_repeatedly(_ending(ends)).error
    assert (None if error is None else error.kind) is final


@pytest.mark.parametrize(
    ("ends", "final"),
    [
        ([None], None),
        ([ErrorKind.DATA, None], None),
        ([ErrorKind.TRANSIENT, ErrorKind.TRANSIENT, None], None),
        ([ErrorKind.DATA, ErrorKind.DATA], ErrorKind.DATA),
        ([ErrorKind.TRANSIENT] * 3, ErrorKind.TRANSIENT),
        ([ErrorKind.CONFIGURATION], ErrorKind.CONFIGURATION),
        ([ErrorKind.FENCED], ErrorKind.FENCED),
        ([ErrorKind.INTERNAL], ErrorKind.INTERNAL),
    ],
)
def test_a_failed_delivery_is_repeated_serially(ends: list[ErrorKind | None], final: ErrorKind | None) -> None:
    job, modes = _ending(ends), list[ApplyMode]()
    failures: list[ErrorReport] = []

    def deliver(mode: ApplyMode) -> JobResult:
        modes.append(mode)
        return job()

    result = retry.deliver_with_retry(deliver, failures.append)
    assert (None if result.error is None else result.error.kind) is final
    assert modes == [ApplyMode.STREAMS, *[ApplyMode.SINGLE_CONNECTION] * (len(ends) - 1)]
    assert [it.kind for it in failures] == ends[: len(ends) - 1]
