"""Progress of the log reader and of a delivery at a shell: a line in a terminal that is rewritten,
elsewhere a line now and then."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from tranrepl.distributor.tables import RunStatus
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.model.position import Position, Positions
from tranrepl.printable import a_second, counted, duration

_LINE_EVERY_SECONDS = 10.0
_SHORTEST_MEASURED_SECONDS = 1.0
_BESIDE = 2
"""Columns that the spinner takes."""


class Backlog(Protocol):
    """What a run has before it."""

    least_share: ClassVar[float]
    """The part that must be done before the time for the rest is estimated."""

    def description(self, row: Mapping[str, Any]) -> str:
        """Describe in words how far the run is, by its history row."""
        ...

    def share(self, row: Mapping[str, Any]) -> float:
        """Return the part that is done, from 0 to 1."""
        ...


@dataclass(frozen=True, slots=True)
class UndeliveredCommands:
    commands: int
    """At most: of the first batch, some may be delivered, of the last, some may be after the run's bound."""
    least_share: ClassVar[float] = 0.0

    def description(self, row: Mapping[str, Any]) -> str:
        done = row["delivered_commands"]
        return f"{done:,} of {max(done, self.commands):,} commands"

    def share(self, row: Mapping[str, Any]) -> float:
        return min(1.0, row["delivered_commands"] / self.commands) if self.commands else 1.0


@dataclass(frozen=True, slots=True)
class UnreadLog:
    """From one position of the Publisher's log to another."""

    positions: Positions
    start: Position
    end: Position
    # The rest may be log of other databases.
    least_share: ClassVar[float] = 0.1

    def description(self, row: Mapping[str, Any]) -> str:
        return f"{counted(row['delivered_commands'], 'command')} in {self.share(row):.0%} of the log"

    def share(self, row: Mapping[str, Any]) -> float:
        return self.positions.share(self.start, self.end, row["xact_seqno"] or FIRST_XACT_SEQNO)


@dataclass(slots=True)
class RunDisplay:
    """What is known of the run by now; `line` says it."""

    name: str
    backlog: Backlog | None = None
    row: Mapping[str, Any] | None = None
    began: float = 0.0
    changed: float = 0.0

    def expect(self, backlog: Backlog) -> None:
        """Take what is to be done, once it is known."""
        self.backlog = backlog

    def show(self, row: Mapping[str, Any]) -> None:
        """Show the run's history row as it is now."""
        now = time.monotonic()
        if self.row is None:
            self.began = self.changed = now
        elif row["delivered_commands"] != self.row["delivered_commands"]:
            self.changed = now
        self.row = row

    def parts(self) -> list[str]:
        """Return what there is to show, the most important first."""
        row, backlog = self.row, self.backlog
        if backlog is None:
            return ["checking for work"]
        if row is None:
            return ["starting Spark"]
        if not row["delivered_commands"] or row["runstatus"] != RunStatus.IN_PROGRESS:
            return [backlog.description(row)]
        return [backlog.description(row), *self._pace(row, backlog)]

    def _pace(self, row: Mapping[str, Any], backlog: Backlog) -> list[str]:
        elapsed, share = self.changed - self.began, backlog.share(row)
        if elapsed < _SHORTEST_MEASURED_SECONDS or not share:
            return []
        rate = f"{a_second(_rounded(row['delivered_commands'] / elapsed))}/s"
        if share < backlog.least_share:
            return [rate]
        left = max(0.0, elapsed / share - (time.monotonic() - self.began))
        return [rate, f"{duration(left)} left"]


def line(display: RunDisplay, width: int, between: str = "  ") -> str:
    """Return as much of it as there is room for: the name may be cut, whole parts may be left out."""
    parts = display.parts()
    while len(parts) > 1 and len(between.join([display.name, *parts])) > width:
        parts.pop(1)
    numbers = between.join(parts)
    room = max(1, width - len(between) - len(numbers))
    name = display.name if len(display.name) <= room else display.name[: room - 1] + "…"
    return f"{name}{between}{numbers}"[: max(1, width)]


def _rounded(rate: float) -> float:
    """Round to two significant digits: the row is read once a second, so that more would mean nothing."""
    return float(f"{rate:.1e}")


@contextmanager
def showing_run(console: Console, name: str) -> Iterator[RunDisplay]:
    """Show a line that follows the run and is gone when it is over; without a terminal, print a line every ten
    seconds."""
    display = RunDisplay(name) if console.is_terminal else _LoggedDisplay(name, console=console)
    if not console.is_terminal:
        yield display
        return
    spinner = Spinner("dots", style="status.spinner")

    def shown() -> Spinner:
        # One column less than there are: some terminals begin a new line after the last.
        text = line(display, console.width - _BESIDE - 1)
        spinner.update(text=Text(text, no_wrap=True, overflow="crop", end=""))
        return spinner

    with Live(console=console, get_renderable=shown, refresh_per_second=4, transient=True):
        yield display


@dataclass(slots=True)
class _LoggedDisplay(RunDisplay):
    console: Console = field(kw_only=True)
    shown: float = field(default_factory=lambda: time.monotonic())

    def show(self, row: Mapping[str, Any]) -> None:
        RunDisplay.show(self, row)
        if row["delivered_commands"] and time.monotonic() - self.shown >= _LINE_EVERY_SECONDS:
            self.shown = time.monotonic()
            text = ", ".join(self.parts())
            self.console.print(f"{self.name}: {text}", highlight=False, markup=False, soft_wrap=True)
