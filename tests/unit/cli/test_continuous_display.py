"""What a shell shows of continuous agents."""

from __future__ import annotations

from datetime import UTC, datetime
from io import StringIO

from rich.console import Console

from tranrepl.cli.continuous_display import ContinuousDisplay
from tranrepl.distributor.tables import RunStatus


def _row(
    run: int, commands: int, latency_ms: int | None, status: RunStatus = RunStatus.IN_PROGRESS
) -> dict[str, object]:
    return {
        "id": run,
        "delivered_commands": commands,
        "delivery_latency": latency_ms,
        "start_time": datetime.now(UTC),
        "runstatus": status,
    }


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


def test_an_error_is_said_once_until_the_agent_goes_on() -> None:
    display = ContinuousDisplay(["reporting"])
    assert not display.show("reporting", _row(1, 0, None), None, 0.0)
    before = _row(1, 0, None)
    said = [display.fails("reporting", "transient error", it) for it in ("cut", "refused", "refused", "refused")]
    assert said == [True, True, False, False]
    # The row of the job that failed, and one that has only begun.
    assert not display.show("reporting", before, None, 1.0)
    assert not display.show("reporting", _row(2, 0, None, RunStatus.START), None, 2.0)
    assert not display.fails("reporting", "transient error", "refused")
    goes_on = [display.show("reporting", _row(3, 0, None), None, second) for second in (3.0, 4.0)]
    assert goes_on == [True, False]
    assert display.fails("reporting", "transient error", "refused")
