"""When jobs shut down: at a time, or as soon as their process is asked to."""

from __future__ import annotations

import os
import signal
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from tranrepl.jobs import shutdown as jobs_shutdown
from tranrepl.jobs.shutdown import heeding_shutdown, shut_down_by_signals, shutdown_at


def test_a_continuous_job_goes_on_until_its_time() -> None:
    shutdown = shutdown_at(datetime.now(UTC) + timedelta(seconds=0.2))
    assert shutdown.is_continuous
    assert not shutdown.is_due()
    shutdown.wait(60)
    assert shutdown.is_due()
    assert not shutdown.request.is_asked()


def test_the_time_of_another_job_is_over_from_the_beginning() -> None:
    shutdown = shutdown_at(None)
    assert not shutdown.is_continuous
    assert shutdown.is_at_its_time()
    assert shutdown.is_due()


def test_a_request_counts_from_when_it_was_first_made() -> None:
    with heeding_shutdown() as asked:
        shutdown = shutdown_at(datetime.now(UTC) + timedelta(hours=1))
        assert shutdown.request.asked_at() is None
        before = time.monotonic()
        asked.ask()
        asked_at = shutdown.request.asked_at()
        assert asked_at is not None
        assert before <= asked_at <= time.monotonic()
        asked.ask()
        assert shutdown.request.asked_at() == asked_at
        assert shutdown.is_due()
        assert not shutdown.is_at_its_time()


@pytest.mark.parametrize("jump", [timedelta(days=-1), timedelta(days=1)])
def test_a_clock_that_jumps_changes_nothing(jump: timedelta, monkeypatch: pytest.MonkeyPatch) -> None:
    shutdown = shutdown_at(datetime.now(UTC) + timedelta(hours=1))
    monkeypatch.setattr(jobs_shutdown, "datetime", SimpleNamespace(now=lambda zone: datetime.now(zone) + jump))
    assert 3590 < shutdown.seconds_left() <= 3600
    assert not shutdown.is_at_its_time()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_asks_for_a_shutdown_and_the_second_is_as_ever(number: signal.Signals) -> None:
    came: list[int] = []
    before = signal.signal(number, lambda it, _: came.append(it))
    try:
        with heeding_shutdown() as asked, shut_down_by_signals(asked):
            shutdown = shutdown_at(datetime.now(UTC) + timedelta(hours=1))
            os.kill(os.getpid(), number)
            started = time.monotonic()
            shutdown.wait(60)
            assert shutdown.request.is_asked()
            assert time.monotonic() - started < 30
            assert came == []
            os.kill(os.getpid(), number)
            assert came == [number]
        assert not shutdown_at(shutdown.until).request.is_asked()
    finally:
        signal.signal(number, before)
