"""Titles of a publication's charts, meanings of their colours, and measurements in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tranrepl.distributor.monitoring.charts import ChartPart
from tranrepl.model.latency import Leg, Quantiles
from tranrepl_airflow.monitor import display
from tranrepl_airflow.monitor.plot import Legend

QUANTILES = ("p50", "p95", "p99")
LEGS = {it: it.in_words for it in (Leg.REGISTERED, Leg.DELIVERED)}


@dataclass(frozen=True, slots=True)
class ChartWords:
    """The words of one chart."""

    name: str
    """Within the page's identifiers."""
    title: str
    unit: str
    of_part: Callable[[ChartPart], str]
    legend: Sequence[Legend]


def quantiles_in_words(quantiles: Quantiles | None) -> str:
    """Return as in "0.4 s, 1.2 s, 3.0 s"; a dash for None."""
    if quantiles is None:
        return display.UNKNOWN
    return ", ".join(display.duration(getattr(quantiles, it)) for it in QUANTILES)


def _latency(part: ChartPart) -> str:
    found = part.latency.get(Leg.OVERALL)
    return f"p50, p95, p99: {quantiles_in_words(found)}" if found else "nothing was measured"


def _legs(part: ChartPart) -> str:
    if not part.latency:
        return "nothing was measured"
    each = [f"{words} {quantiles_in_words(part.latency.get(leg))}" for leg, words in LEGS.items()]
    return f"p50, p95, p99: {'; '.join(each)}"


def _throughput(part: ChartPart) -> str:
    stored, delivered = display.rate(part.stored_per_second), display.rate(part.delivered_per_second)
    transactions = display.rate(part.transactions_per_second)
    return f"{stored} commands stored a second, {delivered} delivered, in {transactions} transactions"


def _backlog(part: ChartPart) -> str:
    if part.undelivered_commands is None:
        return "not known: no delivery ended"
    return f"{display.number(part.undelivered_commands)} commands undelivered"


LATENCY = ChartWords(
    "latency",
    "Latency",
    "from commit to commit",
    _latency,
    [
        Legend("p50", "half of the commands (p50)"),
        Legend("p95", "95 % (p95)"),
        Legend("p99", "99 % (p99)"),
        Legend("token", "tracer token"),
    ],
)
LATENCY_BY_LEG = ChartWords(
    "legs",
    "Latency by leg",
    "p50 and p95",
    _legs,
    [
        legend
        for leg, words in LEGS.items()
        for legend in (Legend(f"leg-{leg}", f"{words}, p50"), Legend(f"leg-{leg} p95", f"{words}, p95"))
    ],
)
THROUGHPUT = ChartWords(
    "throughput",
    "Throughput",
    "commands and transactions a second",
    _throughput,
    [
        Legend("stored", "commands stored by the log reader"),
        Legend("delivered", "commands delivered"),
        Legend("transactions", "transactions delivered"),
    ],
)
BACKLOG = ChartWords(
    "backlog",
    "Backlog",
    "undelivered commands",
    _backlog,
    [Legend("undelivered", "left by a run, or stored since the last one")],
)
