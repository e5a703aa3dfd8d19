"""The charts of a publication's page: latency by leg, throughput and backlog."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from tranrepl.distributor.monitoring.charts import ChartPart, Charts, Period
from tranrepl.distributor.monitoring.tokens import TokenLegs
from tranrepl_airflow.monitor import display
from tranrepl_airflow.monitor.plot import Hover, Legend, Mark, Plot, Scale, time_scale

_NOTHING = "Nothing was read or delivered in this time. Run the DAG, or choose a longer one."


class ChartRange(StrEnum):
    """How long the time is that charts show."""

    HOUR = "1h"
    SIX_HOURS = "6h"
    DAY = "24h"
    WEEK = "7d"

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
        return {"1h": "1 hour", "6h": "6 hours", "24h": "24 hours", "7d": "7 days"}[self]


_PERIODS = {
    ChartRange.HOUR: (timedelta(minutes=1), 60, 600),
    ChartRange.SIX_HOURS: (timedelta(minutes=5), 72, 3600),
    ChartRange.DAY: (timedelta(minutes=15), 96, 14_400),
    ChartRange.WEEK: (timedelta(hours=2), 84, 86_400),
}


@dataclass(frozen=True, slots=True)
class PublicationCharts:
    """The drawings, and the parts of the time that had something, the latest first."""

    plots: Sequence[Plot]
    parts: Sequence[ChartPart]
    tokens: Sequence[TokenLegs]


def publication_charts(charts: Charts, chosen: ChartRange) -> PublicationCharts:
    """Return the charts of these values."""
    drawn = _Drawing(charts, chosen)
    parts = [it for it in charts.parts if it.stored_per_second or it.delivered_per_second or it.undelivered_commands]
    plots = [drawn.latency(), drawn.throughput(), drawn.backlog()]
    return PublicationCharts(plots, parts[::-1], charts.tokens[::-1])


@dataclass(frozen=True, slots=True)
class _Drawing:
    charts: Charts
    chosen: ChartRange

    @property
    def _starts(self) -> Sequence[datetime]:
        return [it.start for it in self.charts.parts]

    def latency(self) -> Plot:
        parts, tokens = self.charts.parts, self.charts.tokens
        each = [max(it.registered_ms or 0, it.delivered_ms or 0) / 1000 for it in parts]
        of_tokens = [(it.delivered_ms or it.registered_ms) / 1000 for it in tokens]
        highest = max([*each, *of_tokens], default=0.0)
        scale = time_scale(self._starts[0], self.charts.width_seconds, len(parts), highest or 1.0, display.duration)
        bars = []
        for at, (part, whole) in enumerate(zip(parts, each, strict=True)):
            registered = (part.registered_ms or 0) / 1000
            if registered:
                bars.append(scale.bar("leg-registered", at, 0.0, registered))
            if whole > registered:
                bars.append(scale.bar("leg-delivered", at, registered, whole))
        return Plot(
            name="latency",
            title="Latency by leg",
            unit="longest of each part",
            y_ticks=scale.y_ticks(),
            x_ticks=scale.x_ticks(self._starts, self.chosen.tick_seconds),
            legend=[
                Legend("leg-registered", "Publisher → Distributor"),
                Legend("leg-delivered", "Distributor → Subscriber"),
                Legend("token", "tracer token"),
            ],
            hovers=self._hovers(scale, map(_latency_in_words, parts)),
            bars=bars,
            marks=[_mark(scale, it) for it in tokens],
            empty=None if highest else _NOTHING,
        )

    def throughput(self) -> Plot:
        parts = self.charts.parts
        stored = [it.stored_per_second for it in parts]
        delivered = [it.delivered_per_second for it in parts]
        highest = max([*stored, *delivered], default=0.0)
        scale = self._scale(highest, display.rate)
        return Plot(
            name="throughput",
            title="Throughput",
            unit="commands a second",
            y_ticks=scale.y_ticks(),
            x_ticks=scale.x_ticks(self._starts, self.chosen.tick_seconds),
            legend=[Legend("stored", "stored by the log reader"), Legend("delivered", "delivered")],
            hovers=self._hovers(scale, map(_throughput_in_words, parts)),
            lines=[*scale.line("delivered", delivered), *scale.line("stored", stored)],
            empty=None if highest else _NOTHING,
        )

    def backlog(self) -> Plot:
        parts = self.charts.parts
        values = [it.undelivered_commands for it in parts]
        highest = max((it for it in values if it is not None), default=0)
        scale = self._scale(float(highest), display.number)
        return Plot(
            name="backlog",
            title="Backlog",
            unit="undelivered commands",
            y_ticks=scale.y_ticks(),
            x_ticks=scale.x_ticks(self._starts, self.chosen.tick_seconds),
            legend=[Legend("undelivered", "undelivered at the end of each part")],
            hovers=self._hovers(scale, map(_backlog_in_words, parts)),
            bars=[scale.bar("undelivered", at, 0.0, it) for at, it in enumerate(values) if it],
            empty=None if highest else "Whatever was stored in this time was delivered within its part.",
        )

    def _scale(self, highest: float, label: Callable[[float], str]) -> Scale:
        parts = len(self.charts.parts)
        return Scale(self._starts[0], self.charts.width_seconds, parts, highest or 1.0, label)

    def _hovers(self, scale: Scale, texts: Iterable[str]) -> Sequence[Hover]:
        width = round(scale.part_width, 1)
        return [
            Hover(scale.x(at), width, start, text)
            for at, (start, text) in enumerate(zip(self._starts, texts, strict=True))
        ]


def _mark(scale: Scale, token: TokenLegs) -> Mark:
    whole = token.delivered_ms if token.delivered_ms is not None else token.registered_ms
    registered = f"registered after {display.duration(token.registered_ms / 1000)}"
    arrived = (
        "on its way" if token.delivered_ms is None else f"delivered after {display.duration(token.delivered_ms / 1000)}"
    )
    return Mark("token", scale.x_of(token.time), scale.y(whole / 1000), token.time, f"{registered}, {arrived}")


def _latency_in_words(part: ChartPart) -> str:
    if part.registered_ms is None and part.delivered_ms is None:
        return "nothing"
    return f"registered after {_seconds(part.registered_ms)}, delivered after {_seconds(part.delivered_ms)}"


def _throughput_in_words(part: ChartPart) -> str:
    stored, delivered = display.rate(part.stored_per_second), display.rate(part.delivered_per_second)
    return f"{stored} commands a second stored, {delivered} delivered"


def _backlog_in_words(part: ChartPart) -> str:
    return f"{display.number(part.undelivered_commands)} commands undelivered"


def _seconds(milliseconds: int | None) -> str:
    return display.duration(None if milliseconds is None else milliseconds / 1000)
