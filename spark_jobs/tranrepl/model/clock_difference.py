"""By how much the clocks of two servers differ: without it, a latency between them is their difference too."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from pydantic import BaseModel, ConfigDict

_READINGS = 3
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class ClockDifference(BaseModel):
    """How far one clock is ahead of another, in µs, and by how many µs that may be wrong."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    microseconds: int = 0
    uncertainty: int = 0

    def minus(self, other: ClockDifference) -> ClockDifference:
        """Return how far a clock is ahead of another, where both were compared with the same third one."""
        return ClockDifference(
            microseconds=self.microseconds - other.microseconds, uncertainty=self.uncertainty + other.uncertainty
        )


def measure(read_clock: Callable[[], datetime]) -> ClockDifference:
    """Return how far a server's clock is ahead of this machine's.

    The server read its clock between question and answer: in the middle, give or take half of the round trip. The
    shortest of a few round trips counts.
    """
    return min((_reading(read_clock) for _ in range(_READINGS)), key=lambda it: it.uncertainty)


def _reading(read_clock: Callable[[], datetime]) -> ClockDifference:
    asked = now_microseconds()
    theirs = microseconds_of(read_clock())
    answered = now_microseconds()
    return ClockDifference(microseconds=theirs - (asked + answered) // 2, uncertainty=max(0, answered - asked + 1) // 2)


def now_microseconds() -> int:
    """Return the time by this machine's clock, in µs since 1970 UTC."""
    return time.time_ns() // 1000


def microseconds_of(moment: datetime) -> int:
    """Return a time in µs since 1970 UTC."""
    return (moment - _EPOCH) // _MICROSECOND


def moment_of(microseconds: int) -> datetime:
    """Return the time that is so many µs after 1970 UTC."""
    return _EPOCH + timedelta(microseconds=microseconds)
