"""How long jobs stay up: until a time, or until their process is asked to stop."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from tranrepl.jobs import staying as jobs_staying
from tranrepl.jobs.staying import heeding_stops, staying, stopped_by_signals


def test_a_job_stays_until_its_time() -> None:
    stay = staying(datetime.now(UTC) + timedelta(seconds=0.2))
    assert not stay.is_over()
    stay.wait(60)
    assert stay.is_over()
    assert not stay.asked_to_stop()


def test_who_waits_for_work_is_woken_by_its_end_and_by_a_stop() -> None:
    with heeding_stops() as stop_request:
        stay = staying(datetime.now(UTC) + timedelta(hours=1))
        work = Future[None]()
        with stay.woken_by(work) as woken:
            assert not woken.wait(0.01)
            work.set_result(None)
            assert woken.wait(0)
        with stay.woken_by(Future[None]()) as woken:
            stop_request.stop()
            assert woken.wait(0)
        # Asked before it waits.
        with stay.woken_by(Future[None]()) as woken:
            assert woken.wait(0)


def test_a_stop_counts_from_when_it_was_first_asked_for() -> None:
    with heeding_stops() as stop_request:
        stay = staying(datetime.now(UTC) + timedelta(hours=1))
        assert stay.asked_at() is None
        before = time.monotonic()
        stop_request.stop()
        asked_at = stay.asked_at()
        assert asked_at is not None
        assert before <= asked_at <= time.monotonic()
        stop_request.stop()
        assert stay.asked_at() == asked_at


@pytest.mark.parametrize("jump", [timedelta(days=-1), timedelta(days=1)])
def test_a_clock_that_jumps_changes_nothing(jump: timedelta, monkeypatch: pytest.MonkeyPatch) -> None:
    stay = staying(datetime.now(UTC) + timedelta(hours=1))
    monkeypatch.setattr(jobs_staying, "datetime", SimpleNamespace(now=lambda zone: datetime.now(zone) + jump))
    assert 3590 < stay.seconds_left() <= 3600
    assert not stay.is_at_its_time()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_asks_for_a_stop_and_the_second_is_as_ever(number: signal.Signals) -> None:
    came: list[int] = []
    before = signal.signal(number, lambda it, _: came.append(it))
    try:
        with heeding_stops() as stop_request, stopped_by_signals(stop_request):
            stay = staying(datetime.now(UTC) + timedelta(hours=1))
            os.kill(os.getpid(), number)
            started = time.monotonic()
            stay.wait(60)
            assert stay.asked_to_stop()
            assert time.monotonic() - started < 30
            assert came == []
            os.kill(os.getpid(), number)
            assert came == [number]
        assert not staying(stay.until).asked_to_stop()
    finally:
        signal.signal(number, before)
