"""When a continuous agent shuts down: at its time, or sooner, where its process is asked to.

A whole process is asked: `heeding_shutdown` gives the request, whose `ask` a signal or a line of a pipe calls, and
`shutdown_at` gives each job in the process its own time.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Event, Thread, current_thread, main_thread
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class ShutdownRequest:
    """Whether the jobs of this process are asked to shut down."""

    _asked: Event = field(default_factory=Event)
    _times: list[float] = field(default_factory=list)

    def ask(self) -> None:
        """Ask for it, once and for all."""
        self._times.append(time.monotonic())
        self._asked.set()

    def is_asked(self) -> bool:
        return self._asked.is_set()

    def asked_at(self) -> float | None:
        """Return when it was asked for first, by `time.monotonic`."""
        return self._times[0] if self.is_asked() else None

    def wait(self, seconds: float) -> bool:
        """Wait until it is asked for, so long at most. Return whether it is."""
        return self._asked.wait(max(0.0, seconds))


@dataclass(frozen=True, slots=True)
class Shutdown:
    """When one job shuts down: at a time, or when it is asked to. The clock is looked at once, and may jump later."""

    until: datetime | None
    """None: the job is no continuous one, and its time is over from the beginning."""
    request: ShutdownRequest
    _ends_at: float = field(init=False)

    def __post_init__(self) -> None:
        left = 0.0 if self.until is None else (self.until - datetime.now(UTC)).total_seconds()
        object.__setattr__(self, "_ends_at", time.monotonic() + left)

    @property
    def is_continuous(self) -> bool:
        return self.until is not None

    def seconds_left(self) -> float:
        """Return how long the job goes on; 0 once its shutdown is due."""
        return 0.0 if self.request.is_asked() else max(0.0, self._ends_at - time.monotonic())

    def is_at_its_time(self) -> bool:
        """Return whether the job's time is over, asked to shut down or not."""
        return time.monotonic() >= self._ends_at

    def is_due(self) -> bool:
        return self.seconds_left() == 0.0

    def wait(self, seconds: float) -> None:
        """Wait so long, and no longer than until the shutdown is due."""
        self.request.wait(min(seconds, self.seconds_left()))


_current = ShutdownRequest()


def shutdown_at(until: datetime | None) -> Shutdown:
    """Return the shutdown of a job of this process that is continuous until then; None: that is not continuous."""
    return Shutdown(until, _current)


@contextmanager
def heeding_shutdown() -> Iterator[ShutdownRequest]:
    """Open this process's jobs to a request, which was not made yet. Not for several threads at once."""
    global _current
    before, _current = _current, ShutdownRequest()
    try:
        yield _current
    finally:
        _current = before


@contextmanager
def shut_down_by_signals(request: ShutdownRequest) -> Iterator[None]:
    """Let SIGTERM and SIGINT ask for a shutdown, the first of them; the second one does what it would have done.
    Without effect outside of the main thread, where Python takes no signals."""
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
        Thread(target=request.ask, name="tranrepl-shutdown").start()

    for number in _SIGNALS:
        signal.signal(number, asked)
    try:
        yield
    finally:
        restore()
