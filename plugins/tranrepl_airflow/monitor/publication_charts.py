"""The charts of a publication's page: latency, latency by leg, throughput and backlog."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from tranrepl.distributor.monitoring.charts import ChartPart, Charts
from tranrepl.distributor.monitoring.period import Period
from tranrepl.distributor.monitoring.tokens import TokenLegs
from tranrepl.model.latency import Leg, Quantiles
from tranrepl_airflow.monitor import display
from tranrepl_airflow.monitor.plot import Bar, Hover, Legend, Line, Mark, Plot, Scale, time_scale

_NOTHING = "Nothing was delivered in this time. Run the DAG, or choose a longer one."
_NO_RUN = "What was left is not known: no delivery ended in this time."
_NO_BACKLOG = "No delivery left anything behind in this time."
_QUANTILES = ("p50", "p95", "p99")
_LEGS = {Leg.REGISTERED: "Publisher → Distributor", Leg.DELIVERED: "Distributor → Subscriber"}


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
        width, parts, _ = _PERIODS[self]
        return Period(width, parts, datetime.now(UTC))

    @property
    def tick_seconds(self) -> int:
        """How far the labels of times are from one another."""
        return _PERIODS[self][2]

    @property
    def words(self) -> str:
        return {"1h": "1 hour", "6h": "6 hours", "24h": "24 hours", "7d": "7 days", "30d": "30 days"}[self]


_PERIODS = {
    ChartRange.HOUR: (timedelta(minutes=1), 60, 600),
    ChartRange.SIX_HOURS: (timedelta(minutes=5), 72, 3600),
    ChartRange.DAY: (timedelta(minutes=15), 96, 14_400),
    ChartRange.WEEK: (timedelta(hours=2), 84, 86_400),
    ChartRange.MONTH: (timedelta(hours=8), 90, 5 * 86_400),
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
    drawn = _Drawing(charts, chosen)
    parts = [it for it in charts.parts if it.stored_per_second or it.delivered_per_second or it.undelivered_commands]
    plots = [drawn.latency(), drawn.legs(), drawn.throughput(), drawn.backlog()]
    return PublicationCharts(plots, parts[::-1], charts.tokens[::-1], list(_gaps(charts)), _sample(charts))


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

    def latency(self) -> Plot:
        """Draw latency from commit to commit: a bar up to the median, and on it those up to the other quantiles."""
        each = self._quantiles(Leg.OVERALL)
        tokens = self.charts.tokens
        of_tokens = [_milliseconds_of(it) / 1000 for it in tokens]
        scale = self._time_scale([*(it.p99 for it in each if it), *of_tokens])
        bars = [it for at, of_part in enumerate(each) if of_part for it in _stacked(scale, at, of_part)]
        return self._plot(
            "latency",
            "Latency",
            "from commit to commit",
            scale,
            map(_latency_in_words, self._parts),
            legend=[
                Legend("p50", "half of the commands (p50)"),
                Legend("p95", "95 % (p95)"),
                Legend("p99", "99 % (p99)"),
                Legend("token", "tracer token"),
            ],
            bars=bars,
            marks=[_mark(scale, it) for it in tokens],
            empty=None if bars or tokens else _NOTHING,
        )

    def legs(self) -> Plot:
        """Draw how long each leg took."""
        each = {leg: self._quantiles(leg) for leg in _LEGS}
        scale = self._time_scale([it.p95 for of_leg in each.values() for it in of_leg if it])
        lines: list[Line] = []
        for leg, of_leg in each.items():
            lines += scale.line(f"leg-{leg} p95", [it.p95 if it else None for it in of_leg])
            lines += scale.line(f"leg-{leg}", [it.p50 if it else None for it in of_leg])
        named = [
            [Legend(f"leg-{leg}", f"{words}, p50"), Legend(f"leg-{leg} p95", f"{words}, p95")]
            for leg, words in _LEGS.items()
        ]
        return self._plot(
            "legs",
            "Latency by leg",
            "p50 and p95",
            scale,
            map(_legs_in_words, self._parts),
            legend=[it for of_leg in named for it in of_leg],
            lines=lines,
            empty=None if lines else _NOTHING,
        )

    def throughput(self) -> Plot:
        """Draw what was stored and delivered a second."""
        series = {
            "delivered": [it.delivered_per_second for it in self._parts],
            "transactions": [it.transactions_per_second for it in self._parts],
            "stored": [it.stored_per_second for it in self._parts],
        }
        highest = max((it for values in series.values() for it in values if it is not None), default=0.0)
        scale = self._scale(highest, display.rate)
        return self._plot(
            "throughput",
            "Throughput",
            "a second",
            scale,
            map(_throughput_in_words, self._parts),
            legend=[
                Legend("stored", "commands stored by the log reader"),
                Legend("delivered", "commands delivered"),
                Legend("transactions", "transactions delivered"),
            ],
            lines=[line for kind, values in series.items() for line in scale.line(kind, values)],
            empty=None if highest else _NOTHING,
        )

    def backlog(self) -> Plot:
        """Draw what was left undelivered."""
        values = [it.undelivered_commands for it in self._parts]
        known = [it for it in values if it is not None]
        scale = self._scale(float(max(known, default=0)), display.number)
        return self._plot(
            "backlog",
            "Backlog",
            "undelivered commands",
            scale,
            map(_backlog_in_words, self._parts),
            legend=[Legend("undelivered", "left by a run, or registered since the last one")],
            bars=[scale.bar("undelivered", at, 0.0, it) for at, it in enumerate(values) if it],
            empty=None if any(known) else _NO_BACKLOG if known else _NO_RUN,
        )

    def _quantiles(self, leg: Leg) -> Sequence[Quantiles | None]:
        return [it.latency.get(leg) for it in self._parts]

    def _plot(
        self,
        name: str,
        title: str,
        unit: str,
        scale: Scale,
        words: Iterable[str],
        *,
        legend: Sequence[Legend],
        empty: str | None,
        bars: Sequence[Bar] = (),
        lines: Sequence[Line] = (),
        marks: Sequence[Mark] = (),
    ) -> Plot:
        return Plot(
            name=name,
            title=title,
            unit=unit,
            y_ticks=scale.y_ticks(),
            x_ticks=scale.x_ticks(self._starts, self.chosen.tick_seconds),
            legend=legend,
            hovers=self._hovers(scale, words),
            bars=bars,
            lines=lines,
            marks=marks,
            empty=empty,
        )

    def _time_scale(self, seconds: Sequence[float]) -> Scale:
        highest = max(seconds, default=0.0) or 1.0
        return time_scale(self._parts[0].start, self.charts.width_seconds, len(self._parts), highest, display.duration)

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
    for kind in _QUANTILES:
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


def quantiles_in_words(quantiles: Quantiles | None) -> str:
    """Return as in "0.4 s, 1.2 s, 3.0 s"; a dash for None."""
    if quantiles is None:
        return display.UNKNOWN
    return ", ".join(display.duration(getattr(quantiles, it)) for it in _QUANTILES)


def _latency_in_words(part: ChartPart) -> str:
    found = part.latency.get(Leg.OVERALL)
    return f"p50, p95, p99: {quantiles_in_words(found)}" if found else "nothing was measured"


def _legs_in_words(part: ChartPart) -> str:
    if not part.latency:
        return "nothing was measured"
    each = [f"{words} {quantiles_in_words(part.latency.get(leg))}" for leg, words in _LEGS.items()]
    return f"p50, p95, p99: {'; '.join(each)}"


def _throughput_in_words(part: ChartPart) -> str:
    stored, delivered = display.rate(part.stored_per_second), display.rate(part.delivered_per_second)
    transactions = display.rate(part.transactions_per_second)
    return f"{stored} commands a second stored, {delivered} delivered, in {transactions} transactions"


def _backlog_in_words(part: ChartPart) -> str:
    if part.undelivered_commands is None:
        return "not known: no delivery ended"
    return f"{display.number(part.undelivered_commands)} commands undelivered"
