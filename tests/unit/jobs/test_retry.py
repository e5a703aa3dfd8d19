"""When a job is tried again: by the error's kind, as often as the policy has pauses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import ClassVar

import pytest

from tranrepl.errors import CLASS_OF_KIND, ErrorKind, ErrorReport
from tranrepl.jobs import retry
from tranrepl.jobs.requests import ApplyMode
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.shutdown import Shutdown, ShutdownRequest


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "PAUSES_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(retry, "_SHORTEST_SECONDS", 0.0)


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


class _Shutdown(Shutdown):
    """One that only notes how long is waited."""

    waits: ClassVar[list[float]] = []

    def wait(self, seconds: float) -> None:
        if seconds:
            self.waits.append(seconds)


@pytest.fixture
def shutdown() -> _Shutdown:
    _Shutdown.waits = []
    return _Shutdown(datetime.now(UTC) + timedelta(hours=1), ShutdownRequest())


def _continuous(ends: Iterable[ErrorKind | None], shutdown: Shutdown) -> Callable[[], JobResult]:
    """Return a job whose tries end with these errors in turn; with the last one, its time is over."""
    some = list(ends)
    job = _ending(list(some))

    def last() -> JobResult:
        some.pop(0)
        if not some:
            shutdown.request.ask()
        return job()

    return last


@pytest.mark.parametrize(
    ("ends", "gives_up", "final", "waits"),
    [
        ([None, None], True, None, []),
        ([ErrorKind.TRANSIENT, ErrorKind.FENCED, None], True, None, [1.0, 2.0]),
        ([ErrorKind.DATA, None], True, ErrorKind.DATA, []),
        ([ErrorKind.CONFIGURATION, None], False, None, [60.0]),
    ],
)
def test_a_continuous_log_reader_waits_for_what_passes_or_is_mended(
    ends: list[ErrorKind | None],
    gives_up: bool,
    final: ErrorKind | None,
    waits: list[float],
    shutdown: _Shutdown,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retry, "PAUSES_SECONDS", (1.0, 4.0))
    told: list[ErrorReport] = []
    result = retry.keep_running(_continuous(ends, shutdown), shutdown, told.append, gives_up=gives_up)
    assert (result.error and result.error.kind, shutdown.waits) == (final, waits)
    assert len(told) == len(waits)
    assert result.transactions == ends.count(None) - (final is not None)


@pytest.mark.parametrize(
    ("ends", "gives_up", "final", "how", "waits"),
    [
        # A batch that fails goes serially, and then the streams go on.
        ([ErrorKind.DATA, None, None], True, None, ["streams", "single_connection", "streams"], []),
        # The Subscriber is away for a while.
        (
            [ErrorKind.TRANSIENT, ErrorKind.TRANSIENT, None, None],
            True,
            None,
            ["streams", "single_connection", "single_connection", "streams"],
            [1.0, 2.0],
        ),
        ([ErrorKind.DATA, ErrorKind.DATA], True, ErrorKind.DATA, ["streams", "single_connection"], []),
        (
            [ErrorKind.DATA, ErrorKind.DATA, None, None],
            False,
            None,
            ["streams", "single_connection", "single_connection", "streams"],
            [60.0],
        ),
        ([ErrorKind.CONFIGURATION, None], True, ErrorKind.CONFIGURATION, ["streams"], []),
        # Its time is over with a batch that fails: the last word is the single connection's.
        ([ErrorKind.DATA], True, None, ["streams", "single_connection"], []),
    ],
)
def test_a_continuous_delivery_goes_on_after_a_single_connection(
    ends: list[ErrorKind | None],
    gives_up: bool,
    final: ErrorKind | None,
    how: list[str],
    waits: list[float],
    shutdown: _Shutdown,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retry, "PAUSES_SECONDS", (1.0, 4.0))
    job, after, modes = _continuous(ends, shutdown), _ending([None]), list[ApplyMode]()

    def deliver(mode: ApplyMode) -> JobResult:
        modes.append(mode)
        return job() if len(modes) <= len(ends) else after()

    result = retry.keep_running(
        lambda: deliver(ApplyMode.STREAMS),
        shutdown,
        lambda _: None,
        serially=lambda: deliver(ApplyMode.SINGLE_CONNECTION),
        gives_up=gives_up,
    )
    assert (result.error and result.error.kind, modes, shutdown.waits) == (final, how, waits)


def test_a_delivery_that_begins_over_a_single_connection_goes_on_over_the_streams(shutdown: _Shutdown) -> None:
    modes: list[str] = []

    def streams() -> JobResult:
        modes.append("streams")
        shutdown.request.ask()
        return JobResult()

    def serially() -> JobResult:
        modes.append("serially")
        return JobResult()

    retry.keep_running(streams, shutdown, lambda _: None, serially=serially, begins_serially=True, gives_up=True)
    assert modes == ["serially", "streams"]


def test_an_agent_that_failed_after_it_had_run_for_long_is_tried_again_soon(
    shutdown: _Shutdown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "PAUSES_SECONDS", (1.0, 4.0))
    clock = [0.0]
    monkeypatch.setattr(retry, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    job = _continuous([ErrorKind.TRANSIENT] * 4 + [None], shutdown)

    def read() -> JobResult:
        clock[0] += 3600.0 if len(shutdown.waits) == 2 else 1.0
        return job()

    assert retry.keep_running(read, shutdown, lambda _: None, gives_up=True).error is None
    assert shutdown.waits == [1.0, 2.0, 1.0, 2.0]
