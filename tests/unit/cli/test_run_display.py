"""What a shell shows of a log reader and of a delivery that go on."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from tranrepl.cli import run_display
from tranrepl.cli.run_display import RunDisplay, UndeliveredCommands, UnreadLog, line, showing_run
from tranrepl.distributor.tables import RunStatus
from tranrepl.publisher.postgres.lsn import LsnPositions, position_of


class _Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    clock = _Clock()
    monkeypatch.setattr(run_display, "time", clock)
    return clock


def _row(commands: int, xact_seqno: int = 0) -> dict[str, Any]:
    status = RunStatus.IN_PROGRESS if commands else RunStatus.START
    return {"runstatus": status, "delivered_commands": commands, "xact_seqno": xact_seqno.to_bytes(8, "big")}


def test_a_line_tells_commands_rate_and_what_is_left(clock: _Clock) -> None:
    display = RunDisplay("reporting")
    assert line(display, 80) == "reporting  checking for work"
    display.expect(UndeliveredCommands(3_000_000))
    assert line(display, 80) == "reporting  starting Spark"
    display.show(_row(0))
    assert line(display, 80) == "reporting  0 of 3,000,000 commands"
    clock.now += 14
    display.show(_row(1_204_000))
    assert line(display, 80) == "reporting  1,204,000 of 3,000,000 commands  86,000/s  21 s left"
    clock.now += 1
    display.show(_row(1_204_000))
    assert line(display, 80).endswith("86,000/s  20 s left")


def test_what_is_left_of_the_log_is_a_share_of_it(clock: _Clock) -> None:
    display = RunDisplay("log reader")
    display.expect(UnreadLog(LsnPositions(), position_of(1_000), position_of(5_000)))
    display.show(_row(0, 500))
    clock.now += 100
    display.show(_row(300, 1_100))
    assert line(display, 80) == "log reader  300 commands in 2% of the log  3/s", "the rest may be others' log"
    display.show(_row(50_000, 2_000))
    assert line(display, 80) == "log reader  50,000 commands in 25% of the log  500/s  5 min left"
    display.show(_row(1, 4_000))
    assert line(display, 80).startswith("log reader  1 command in 75% of the log  0.01/s  ")


def test_more_commands_than_were_expected_are_no_more_than_all(clock: _Clock) -> None:
    display = RunDisplay("reporting")
    display.expect(UndeliveredCommands(10))
    display.show(_row(0))
    clock.now += 2
    display.show(_row(12))
    assert line(display, 80) == "reporting  12 of 12 commands  6/s  0 s left"


@pytest.mark.parametrize("width", [1, 10, 30, 40, 50, 60, 80])
def test_a_line_is_never_wider_than_its_terminal(clock: _Clock, width: int) -> None:
    display = RunDisplay("a_subscription_with_a_long_name")
    display.expect(UndeliveredCommands(3_000_000))
    display.show(_row(0))
    clock.now += 14
    display.show(_row(1_204_000))
    shown = line(display, width)
    assert len(shown) <= width
    assert width < 50 or "1,204,000 of 3,000,000 commands" in shown


def test_without_a_terminal_there_is_a_line_every_ten_seconds(clock: _Clock) -> None:
    out = StringIO()
    with showing_run(Console(file=out, width=40), "reporting") as display:
        display.expect(UndeliveredCommands(300_000))
        for second in range(25):
            display.show(_row(second * 1_000))
            clock.now += 1
    assert out.getvalue().splitlines() == [
        "reporting: 10,000 of 300,000 commands, 1,000/s, 5 min left",
        "reporting: 20,000 of 300,000 commands, 1,000/s, 5 min left",
    ]
