"""How long a job that stays up stays, and who asks it to stop sooner.

A stop is asked of a whole process: whoever runs jobs in one opens it to stops (`heeding_stops`), and calls `stop` of
what that gives, from a signal or from whatever else tells it. A job asks `staying` how long it stays.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Event, Thread, current_thread, main_thread
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class StopRequest:
    """Whether the jobs of this process are asked to stop."""

    _asked: Event = field(default_factory=Event)
    _woken: set[Event] = field(default_factory=set)
    _times: list[float] = field(default_factory=list)

    def stop(self) -> None:
        """Ask for it, once and for all."""
        self._times.append(time.monotonic())
        self._asked.set()
        for event in list(self._woken):
            event.set()

    def is_asked(self) -> bool:
        return self._asked.is_set()

    def asked_at(self) -> float | None:
        """Return when it was asked for first, by `time.monotonic`."""
        return self._times[0] if self.is_asked() else None

    def wait(self, seconds: float) -> bool:
        """Wait until it is asked for, so long at most. Return whether it is."""
        return self._asked.wait(max(0.0, seconds))

    @contextmanager
    def waking(self, event: Event) -> Iterator[None]:
        """Set another event too, as soon as a stop is asked for."""
        self._woken.add(event)
        try:
            # Whoever asked for it before knows nothing of the event.
            if self.is_asked():
                event.set()
            yield
        finally:
            self._woken.discard(event)


@dataclass(frozen=True, slots=True)
class Stay:
    """How long one job stays up: until a time, or until it is asked to stop. The clock is looked at once, and may jump
    later."""

    until: datetime
    stop_request: StopRequest
    _ends_at: float = field(init=False)

    def __post_init__(self) -> None:
        left = (self.until - datetime.now(UTC)).total_seconds()
        object.__setattr__(self, "_ends_at", time.monotonic() + left)

    def asked_to_stop(self) -> bool:
        """Return whether to stop before the time: after what is at hand."""
        return self.stop_request.is_asked()

    def asked_at(self) -> float | None:
        """Return when it was asked to stop, by `time.monotonic`."""
        return self.stop_request.asked_at()

    def seconds_left(self) -> float:
        """Return how long to stay; 0 once it is over."""
        return 0.0 if self.asked_to_stop() else max(0.0, self._ends_at - time.monotonic())

    def is_at_its_time(self) -> bool:
        """Return whether it has stayed until its time, asked to stop or not."""
        return time.monotonic() >= self._ends_at

    def is_over(self) -> bool:
        return self.seconds_left() == 0.0

    def wait(self, seconds: float) -> None:
        """Wait so long, and no longer than it stays."""
        self.stop_request.wait(min(seconds, self.seconds_left()))

    @contextmanager
    def woken_by(self, work: Future[Any]) -> Iterator[Event]:
        """Yield what is set as soon as the work is done, or a stop is asked for: who waits need not look at times."""
        woken = Event()
        with self.stop_request.waking(woken):
            work.add_done_callback(lambda _: woken.set())
            yield woken


_current = StopRequest()


def staying(until: datetime) -> Stay:
    """Return how long a job stays that stays until then."""
    return Stay(until, _current)


@contextmanager
def heeding_stops() -> Iterator[StopRequest]:
    """Open this process's jobs to a stop, which was not asked for yet. Not for several threads at once."""
    global _current
    before, _current = _current, StopRequest()
    try:
        yield _current
    finally:
        _current = before


@contextmanager
def stopped_by_signals(stop_request: StopRequest) -> Iterator[None]:
    """Let SIGTERM and SIGINT ask for a stop, the first of them; the second one does what it would have done. Without
    effect outside of the main thread, where Python takes no signals."""
    if current_thread() is not main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def asked(_number: int, _frame: FrameType | None) -> None:
        restore()
        # In a thread: this one may hold the event's lock.
        Thread(target=stop_request.stop, name="tranrepl-stop").start()

    for number in _SIGNALS:
        signal.signal(number, asked)
    try:
        yield
    finally:
        restore()
