"""The time that charts are of, and its parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Period:
    """A time of whole parts, each `width` long, that begin at multiples of it; the last one has not ended."""

    width: timedelta
    parts: int
    now: datetime

    @property
    def first(self) -> datetime:
        """When the first part begins."""
        last = (self.now - _EPOCH) // self.width
        return _EPOCH + (last - self.parts + 1) * self.width

    @property
    def starts(self) -> Sequence[datetime]:
        """When each part begins."""
        first = self.first
        return [first + at * self.width for at in range(self.parts)]

    def seconds_of(self, at: int) -> float:
        """Return how long a part has been: the last one is no whole one."""
        if at < self.parts - 1:
            return self.width.total_seconds()
        return max(1.0, (self.now - self.starts[-1]).total_seconds())

    def part_of(self, time: datetime) -> int:
        """Return the part that a time is in: -1 before all of them. A clock that is ahead of ours has times that are
        still to come: they are in the last part."""
        return max(-1, min((time - self.first) // self.width, self.parts - 1))

    def part_of_column(self, time: sa.ColumnElement[datetime]) -> sa.ColumnElement[int]:
        """Return the same of a column."""
        seconds = sa.func.extract("epoch", time) - self.first.timestamp()
        part = sa.cast(sa.func.floor(seconds / self.width.total_seconds()), sa.Integer)
        return sa.func.greatest(-1, sa.func.least(part, self.parts - 1))

    def shares(self, begin: datetime, length: timedelta) -> Iterator[tuple[int, float]]:
        """Yield each part that a span of time is in, and how much of the span is there."""
        at, first = begin, self.first
        while at < begin + length:
            part = (at - first) // self.width
            end = min(begin + length, first + (part + 1) * self.width)
            if part >= 0:
                yield min(part, self.parts - 1), (end - at) / length
            at = end
