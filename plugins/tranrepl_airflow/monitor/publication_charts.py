"""The charts of a publication's page: latency, latency by leg, throughput and backlog."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from tranrepl.distributor.monitoring.charts import ChartPart, Charts, TokenLegs
from tranrepl.distributor.monitoring.period import Period
from tranrepl.model.latency import Leg, Quantiles
from tranrepl_airflow.monitor import display
from tranrepl_airflow.monitor.chart_words import (
    BACKLOG,
    LATENCY,
    LATENCY_BY_LEG,
    LEGS,
    QUANTILES,
    THROUGHPUT,
    ChartWords,
)
from tranrepl_airflow.monitor.plot import Bar, Dot, Hover, Line, Mark, Plot, Scale, count_scale, time_scale

_NOTHING = "Nothing was delivered in this time. Run the DAG, or choose a longer time."
_NO_RUN = "The backlog is unknown: no delivery ended in this time."
_NO_BACKLOG = "No delivery left anything behind in this time."


_FEWEST_PARTS = 12
_TICK_SECONDS = (300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400, 5 * 86_400)
_MOST_TICKS = 7


class ChartRange(StrEnum):
    """How long the time is that charts show."""

    HOUR = "1h"
    SIX_HOURS = "6h"
    DAY = "24h"
    WEEK = "7d"
    MONTH = "30d"

    @property
    def period(self) -> Period:
        """The time until now."""
        width, parts = _PERIODS[self]
        return Period(width, parts, datetime.now(UTC))

    @property
    def words(self) -> str:
        return {"1h": "1 hour", "6h": "6 hours", "24h": "24 hours", "7d": "7 days", "30d": "30 days"}[self]

    def tick(self, time: datetime) -> str:
        """Return a label of the axis: days where hours are no context enough."""
        return f"{time:{_TICKS.get(self, '%H:%M')}}"


_TICKS = {ChartRange.WEEK: "%m-%d %H:%M", ChartRange.MONTH: "%m-%d"}
_PERIODS = {
    ChartRange.HOUR: (timedelta(minutes=1), 60),
    ChartRange.SIX_HOURS: (timedelta(minutes=5), 72),
    ChartRange.DAY: (timedelta(minutes=15), 96),
    ChartRange.WEEK: (timedelta(hours=2), 84),
    ChartRange.MONTH: (timedelta(hours=8), 90),
}


@dataclass(frozen=True, slots=True)
class PublicationCharts:
    """The drawings, and the parts of the time that had something, the latest first."""

    plots: Sequence[Plot]
    parts: Sequence[ChartPart]
    tokens: Sequence[TokenLegs]
    gaps: Sequence[tuple[str, datetime]]
    """What is not known of the whole time, and from when on it is."""
    sample: str | None
    """What part of the measurements latency is of, in words; None where it is of all."""


def publication_charts(charts: Charts, chosen: ChartRange) -> PublicationCharts:
    """Return the charts of these values."""
    drawn = _Drawing(_begun(charts), chosen)
    parts = [it for it in charts.parts if it.stored_per_second or it.delivered_per_second or it.undelivered_commands]
    plots = [drawn.latency(), drawn.legs(), drawn.throughput(), drawn.backlog()]
    return PublicationCharts(plots, parts[::-1], charts.tokens[::-1], list(_gaps(charts)), _sample(charts))


def _begun(charts: Charts) -> Charts:
    """Return the charts from their first measurement on, but not so short a time that nothing can be compared."""
    tokens = min((it.time for it in charts.tokens), default=None)
    width = timedelta(seconds=charts.width_seconds)
    had = [
        bool(it.latency or it.stored_per_second or it.delivered_per_second or it.undelivered_commands is not None)
        or (tokens is not None and tokens < it.start + width)
        for it in charts.parts
    ]
    first = had.index(True) if True in had else 0
    return replace(charts, parts=charts.parts[min(first, max(0, len(had) - _FEWEST_PARTS)) :])


def _sample(charts: Charts) -> str | None:
    some, every = charts.measurements_of_latency, charts.measurements
    if some == every:
        return None
    return f"Latency is of {display.number(some)} of {display.number(every)} measurements, evenly chosen."


def _gaps(charts: Charts) -> Iterable[tuple[str, datetime]]:
    known = (
        ("Latency, and what was delivered, are measured", charts.measured_since),
        ("What the log reader has stored is known", charts.stored_since),
    )
    first_end = charts.parts[0].start + timedelta(seconds=charts.width_seconds)
    return ((what, since) for what, since in known if since is not None and since >= first_end)


@dataclass(frozen=True, slots=True)
class _Drawing:
    charts: Charts
    chosen: ChartRange

    @property
    def _parts(self) -> Sequence[ChartPart]:
        return self.charts.parts

    @property
    def _starts(self) -> Sequence[datetime]:
        return [it.start for it in self._parts]

    @property
    def _tick_seconds(self) -> int:
        """How far the labels of times are from one another."""
        seconds = self.charts.width_seconds * len(self._parts)
        return next((it for it in _TICK_SECONDS if seconds <= it * _MOST_TICKS), _TICK_SECONDS[-1])

    def latency(self) -> Plot:
        """Draw latency from commit to commit: a bar up to the median, and on it those up to the other quantiles."""
        each = self._quantiles(Leg.OVERALL)
        tokens = self.charts.tokens
        of_tokens = [_milliseconds_of(it) / 1000 for it in tokens]
        scale = self._time_scale([*(it.p99 for it in each if it), *of_tokens])
        bars = [it for at, of_part in enumerate(each) if of_part for it in _stacked(scale, at, of_part)]
        marks = [_mark(scale, it) for it in tokens]
        words = LATENCY if tokens else replace(LATENCY, legend=LATENCY.legend[:-1])
        return self._plot(words, scale, None if bars or tokens else _NOTHING, bars=bars, marks=marks)

    def legs(self) -> Plot:
        """Draw how long each leg took."""
        each = {leg: self._quantiles(leg) for leg in LEGS}
        scale = self._time_scale([it.p95 for of_leg in each.values() for it in of_leg if it])
        lines: list[Line] = []
        dots: list[Dot] = []
        for leg, of_leg in each.items():
            dots += scale.dots(f"leg-{leg}", [it.p50 if it else None for it in of_leg])
            lines += scale.line(f"leg-{leg} p95", [it.p95 if it else None for it in of_leg])
            lines += scale.line(f"leg-{leg}", [it.p50 if it else None for it in of_leg])
        return self._plot(LATENCY_BY_LEG, scale, None if lines else _NOTHING, lines=lines, dots=dots)

    def throughput(self) -> Plot:
        """Draw what was stored and delivered a second."""
        series = {
            "delivered": [it.delivered_per_second for it in self._parts],
            "transactions": [it.transactions_per_second for it in self._parts],
            "stored": [it.stored_per_second for it in self._parts],
        }
        highest = max((it for values in series.values() for it in values if it is not None), default=0.0)
        scale = self._scale(highest, display.rate)
        lines = [line for kind, values in series.items() for line in scale.line(kind, values)]
        dots = [dot for kind, values in series.items() for dot in scale.dots(kind, values)]
        return self._plot(THROUGHPUT, scale, None if highest else _NOTHING, lines=lines, dots=dots)

    def backlog(self) -> Plot:
        """Draw what was left undelivered."""
        values = [it.undelivered_commands for it in self._parts]
        known = [it for it in values if it is not None]
        highest = float(max(known, default=0)) or 1.0
        scale = count_scale(self._parts[0].start, self.charts.width_seconds, len(self._parts), highest, display.number)
        bars = [scale.bar("undelivered", at, 0.0, it) for at, it in enumerate(values) if it]
        return self._plot(BACKLOG, scale, None if bars else _NO_BACKLOG if known else _NO_RUN, bars=bars)

    def _quantiles(self, leg: Leg) -> Sequence[Quantiles | None]:
        return [it.latency.get(leg) for it in self._parts]

    def _plot(
        self,
        words: ChartWords,
        scale: Scale,
        empty: str | None,
        *,
        bars: Sequence[Bar] = (),
        lines: Sequence[Line] = (),
        dots: Sequence[Dot] = (),
        marks: Sequence[Mark] = (),
    ) -> Plot:
        return Plot(
            name=words.name,
            title=words.title,
            unit=words.unit,
            y_ticks=scale.y_ticks(),
            x_ticks=scale.x_ticks(self._starts, self._tick_seconds),
            legend=words.legend,
            hovers=self._hovers(scale, map(words.of_part, self._parts)),
            bars=bars,
            lines=lines,
            dots=dots,
            marks=marks,
            empty=empty,
        )

    def _time_scale(self, seconds: Sequence[float]) -> Scale:
        highest = max(seconds, default=0.0) or 1.0
        return time_scale(
            self._parts[0].start, self.charts.width_seconds, len(self._parts), highest, display.exact_duration
        )

    def _scale(self, highest: float, label: Callable[[float], str]) -> Scale:
        return Scale(self._parts[0].start, self.charts.width_seconds, len(self._parts), highest or 1.0, label)

    def _hovers(self, scale: Scale, texts: Iterable[str]) -> Sequence[Hover]:
        width = round(scale.part_width, 1)
        return [
            Hover(scale.x(at), width, start, text)
            for at, (start, text) in enumerate(zip(self._starts, texts, strict=True))
        ]


def _stacked(scale: Scale, part: int, quantiles: Quantiles) -> Iterable[Bar]:
    low = 0.0
    for kind in QUANTILES:
        high = getattr(quantiles, kind)
        if high > low:
            yield scale.bar(kind, part, low, high)
        low = high


def _milliseconds_of(token: TokenLegs) -> int:
    return token.registered_ms if token.delivered_ms is None else token.delivered_ms


def _mark(scale: Scale, token: TokenLegs) -> Mark:
    registered = f"registered after {display.duration(token.registered_ms / 1000)}"
    arrived = (
        "on its way" if token.delivered_ms is None else f"delivered after {display.duration(token.delivered_ms / 1000)}"
    )
    y = scale.y(_milliseconds_of(token) / 1000)
    return Mark("token", scale.x_of(token.time), y, token.time, f"{registered}, {arrived}")
