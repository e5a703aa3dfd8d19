"""Charts as the geometry of an SVG: places in a drawing of `WIDTH` by `HEIGHT`, axes with their labels, and what each
part of the time had in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

WIDTH, HEIGHT = 720, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 8, 10, 24
_DECIMAL_STEPS = tuple(it * 10**power for power in range(-3, 13) for it in (1, 2, 5))
_WHOLE_STEPS = tuple(it for it in _DECIMAL_STEPS if it >= 1)
_TIME_STEPS = (1, 2, 5, 15, 30, 60, 120, 300, 900, 1800, 3600, 7200, 21_600, 43_200, 86_400)
_MOST_TICKS = 5
_FEW_POINTS = 12
"""So many values of a line are also shown as points."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of one part of the time; `kind` is a class of the style sheet."""

    kind: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Line:
    kind: str
    points: str


@dataclass(frozen=True, slots=True)
class Dot:
    """One value of a line."""

    kind: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Mark:
    """One event, as a tracer token."""

    kind: str
    x: float
    y: float
    time: datetime
    text: str


@dataclass(frozen=True, slots=True)
class Hover:
    """What a part had, shown where the pointer is."""

    x: float
    width: float
    time: datetime
    text: str


@dataclass(frozen=True, slots=True)
class Legend:
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Plot:
    """A chart. `empty`: why it has nothing; None where it has something."""

    name: str
    title: str
    unit: str
    y_ticks: Sequence[tuple[float, str]]
    x_ticks: Sequence[tuple[float, datetime]]
    legend: Sequence[Legend]
    hovers: Sequence[Hover]
    bars: Sequence[Bar] = ()
    lines: Sequence[Line] = ()
    dots: Sequence[Dot] = ()
    marks: Sequence[Mark] = ()
    empty: str | None = None


@dataclass(frozen=True, slots=True)
class Scale:
    """Where times and values are. `highest` is the value at the top."""

    first: datetime
    part_seconds: float
    parts: int
    highest: float
    label: Callable[[float], str]
    steps: Sequence[float] = field(default=_DECIMAL_STEPS)

    @property
    def part_width(self) -> float:
        return (WIDTH - _LEFT - _RIGHT) / self.parts

    def x(self, part: float) -> float:
        """Return where a part begins."""
        return round(_LEFT + part * self.part_width, 1)

    def x_of(self, time: datetime) -> float:
        """Return where a time is, at the edge where it lies outside."""
        part = (time - self.first).total_seconds() / self.part_seconds
        return self.x(min(max(part, 0.0), self.parts))

    def y(self, value: float) -> float:
        """Return where a value is."""
        share = min(value / self.top, 1.0)
        return round(HEIGHT - _BOTTOM - share * (HEIGHT - _BOTTOM - _TOP), 1)

    @property
    def _step(self) -> float:
        return next((it for it in self.steps if self.highest <= it * _MOST_TICKS), self.highest / _MOST_TICKS)

    @property
    def top(self) -> float:
        """The value at the top: a whole number of steps."""
        return self._step * max(1, -(-self.highest // self._step))

    def y_ticks(self) -> Sequence[tuple[float, str]]:
        """Return where the labels of values are."""
        values = [self._step * at for at in range(round(self.top / self._step) + 1)]
        return [(self.y(it), self.label(it)) for it in values]

    def x_ticks(self, starts: Sequence[datetime], every_seconds: int) -> Sequence[tuple[float, datetime]]:
        """Return where the labels of times are."""
        return [(self.x(at), it) for at, it in enumerate(starts) if it.timestamp() % every_seconds == 0]

    def bar(self, kind: str, part: int, low: float, high: float) -> Bar:
        """Return a bar of a part, from one value to another."""
        top = self.y(high)
        return Bar(kind, self.x(part + 0.1), top, round(self.part_width * 0.8, 1), round(self.y(low) - top, 1))

    def line(self, kind: str, values: Iterable[float | None]) -> Sequence[Line]:
        """Return a line through the middle of the parts: several where values are missing between them. A value by
        itself is a line through half of its part."""
        stretches: list[list[tuple[float, float]]] = [[]]
        for at, value in enumerate(values):
            if value is not None:
                stretches[-1].append((at + 0.5, self.y(value)))
            elif stretches[-1]:
                stretches.append([])
        return [Line(kind, self._points(it)) for it in stretches if it]

    def dots(self, kind: str, values: Sequence[float | None]) -> Sequence[Dot]:
        """Return a line's values as points, where they are few."""
        known = [(at, it) for at, it in enumerate(values) if it is not None]
        return [Dot(kind, self.x(at + 0.5), self.y(it)) for at, it in known] if len(known) <= _FEW_POINTS else []

    def _points(self, stretch: Sequence[tuple[float, float]]) -> str:
        if len(stretch) == 1:
            ((part, y),) = stretch
            stretch = [(part - 0.25, y), (part + 0.25, y)]
        return " ".join(f"{self.x(part)},{y}" for part, y in stretch)


def time_scale(
    first: datetime, part_seconds: float, parts: int, highest: float, label: Callable[[float], str]
) -> Scale:
    """Return a scale of seconds, whose labels are at whole seconds, minutes and hours where it is long."""
    steps = (*(it for it in _DECIMAL_STEPS if it < _TIME_STEPS[0]), *_TIME_STEPS)
    return Scale(first, part_seconds, parts, highest, label, steps)


def count_scale(
    first: datetime, part_seconds: float, parts: int, highest: float, label: Callable[[float], str]
) -> Scale:
    """Return a scale of what is counted: its labels are whole numbers."""
    return Scale(first, part_seconds, parts, highest, label, _WHOLE_STEPS)
