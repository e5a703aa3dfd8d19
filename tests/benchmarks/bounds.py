"""No measurement may run for ever, nor leave servers and folders behind when it is ended."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

MOST_SECONDS = 1800
"""For one backlog, built and drained by all."""


@contextmanager
def at_most(seconds: int, what: str) -> Iterator[None]:
    """Raise TimeoutError after so many seconds, in the main thread, by its alarm."""

    def too_late(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"{what}: not done within {seconds} s")

    before = signal.signal(signal.SIGALRM, too_late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def end_in_order() -> None:
    """Let SIGTERM end this process as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
