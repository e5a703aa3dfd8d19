"""What a shell shows of agents that stay up."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from tranrepl.cli.continuous_display import ContinuousDisplay


def _row(run: int, commands: int, latency_ms: int | None) -> dict[str, object]:
    return {"id": run, "delivered_commands": commands, "delivery_latency": latency_ms}


def test_each_agent_has_its_commands_rate_latency_and_backlog_over_all_its_runs() -> None:
    display = ContinuousDisplay(["log reader", "reporting"])
    display.say("reporting", "running")
    display.show("reporting", _row(7, 0, None), 300, 100.0)
    display.show("reporting", _row(7, 1_000, 90), 200, 102.0)
    assert display.lines()[1] == "reporting: running, 1,000 commands, 500/s, latency 0.09 s, 200 undelivered"
    # Another job took its place.
    display.show("reporting", _row(8, 500, 120), 0, 104.0)
    assert display.lines() == [
        "log reader: starting Spark, 0 commands, 0/s",
        "reporting: running, 1,500 commands, 375/s, latency 0.12 s, 0 undelivered",
    ]
    shown = Console(file=StringIO(), width=80)
    shown.print(display.table())
    assert isinstance(shown.file, StringIO)
    (row,) = [line for line in shown.file.getvalue().splitlines() if "reporting" in line]
    assert row.replace("│", " ").split() == ["reporting", "running", "1,500", "375", "0.12", "s", "0"]


def test_the_rate_is_of_the_last_seconds() -> None:
    display = ContinuousDisplay(["reporting"])
    for second in range(60):
        display.show("reporting", _row(1, second * 1_000 if second <= 30 else 30_000, None), None, float(second))
    assert display.lines() == ["reporting: starting Spark, 30,000 commands, 0/s"]
