"""Latencies in words, and what the clocks say that they were measured by."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tranrepl.admin.status.report import MeasuredLatency
from tranrepl.cli.output import counted
from tranrepl.model.latency import Quantiles


def latency_lines(latency: MeasuredLatency) -> Iterator[str]:
    """Yield how long the last minutes' commands took, a line for each leg."""
    commands = counted(latency.commands, "command")
    yield f"50 %, 95 % and 99 % of the last {latency.within_minutes} minutes' {commands} were, within so many seconds,"
    for leg, it in latency.legs.items():
        yield f"  {leg:<10}  {_seconds(it)}"
    if latency.clock_difference is not None:
        yield clocks(latency.clock_difference)


def clocks(difference: float) -> str:
    """Say how the clocks differ, to the millisecond."""
    if abs(difference) < 0.0005:
        return "Publisher's and distribution database's clocks show the same time."
    ahead = "ahead of" if difference > 0 else "behind"
    return (
        f"The Publisher's clock is {abs(difference):,.3f} s {ahead} the distribution database's; latencies are without "
        "it."
    )


def _seconds(quantiles: Quantiles) -> str:
    return "  ".join(f"{_in_two_digits(it):>8}" for it in (quantiles.p50, quantiles.p95, quantiles.p99))


def _in_two_digits(seconds: float) -> str:
    """Write as much of it as is known."""
    places = 1 - math.floor(math.log10(seconds))
    return f"{round(seconds, places):,.{max(0, places)}f}"
