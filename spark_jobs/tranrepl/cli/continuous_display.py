"""Progress of continuous agents at a shell: a table in a terminal, elsewhere lines now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Lock
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from tranrepl.admin.run import LOG_READER
from tranrepl.cli.followed_history import FollowedHistory, following
from tranrepl.cli.output import table_of
from tranrepl.distributor.database import SubscriptionRecord
from tranrepl.distributor.tables import RunStatus
from tranrepl.printable import a_second, counted
from tranrepl.topology import Topology

_LINE_EVERY_SECONDS = 10.0
_LOOKED_EVERY_SECONDS = 1.0
_RATE_OVER_SECONDS = 10.0
_GETS_ON = (RunStatus.IN_PROGRESS, RunStatus.SUCCEED, RunStatus.IDLE)
NOT_KNOWN = "-"


@dataclass(slots=True)
class AgentDisplay:
    """What is known of one agent by now."""

    name: str
    state: str = "starting Spark"
    commands: int = 0
    """Since the display began."""
    latency_ms: int | None = None
    backlog: int | None = None
    """None for the log reader, which does not know it without reading."""
    failed_at: datetime | None = None
    """When the error came that it has not got over yet."""
    error: str = ""
    """That error, or the last one."""
    _run: int | None = None
    _commands_of_run: int = 0
    _counts: list[tuple[float, int]] = field(default_factory=list)

    def show(self, row: Mapping[str, Any], now: float) -> None:
        """Take the newest history row of the agent, at a time in seconds."""
        delivered = int(row["delivered_commands"])
        self.commands += delivered - (self._commands_of_run if row["id"] == self._run else 0)
        self._run, self._commands_of_run = row["id"], delivered
        if row["delivery_latency"] is not None:
            self.latency_ms = row["delivery_latency"]
        self._counts.append((now, self.commands))
        while len(self._counts) > 2 and now - self._counts[1][0] >= _RATE_OVER_SECONDS:
            self._counts.pop(0)

    def fails(self, error: str) -> bool:
        """Note an error; return whether it is another one than before, or the first since the agent went on."""
        is_known = self.failed_at is not None and self.error == error
        self.failed_at, self.error = datetime.now(UTC), error
        return not is_known

    def goes_on(self, row: Mapping[str, Any]) -> bool:
        """Return whether a job that began after an error is the first to get on, as its history row says."""
        if self.failed_at is None or row["start_time"] < self.failed_at or row["runstatus"] not in _GETS_ON:
            return False
        self.failed_at = None
        return True

    @property
    def rate(self) -> float:
        """Commands a second, of the last seconds."""
        if len(self._counts) < 2:
            return 0.0
        (begun, before), (now, commands) = self._counts[0], self._counts[-1]
        return (commands - before) / (now - begun) if now > begun else 0.0

    def cells(self) -> list[str]:
        """Return what the table's row shows."""
        latency = NOT_KNOWN if self.latency_ms is None else f"{self.latency_ms / 1000:,.2f} s"
        backlog = NOT_KNOWN if self.backlog is None else f"{self.backlog:,}"
        return [self.name, self.state, f"{self.commands:,}", a_second(self.rate), latency, backlog]

    def line(self) -> str:
        """Return the same as a line."""
        latency = "" if self.latency_ms is None else f", latency {self.latency_ms / 1000:,.2f} s"
        backlog = "" if self.backlog is None else f", {self.backlog:,} undelivered"
        return (
            f"{self.name}: {self.state}, {counted(self.commands, 'command')}, {a_second(self.rate)}/s{latency}{backlog}"
        )


class ContinuousDisplay:
    """All agents, by name. A thread of its own reports each."""

    def __init__(self, names: list[str]) -> None:
        self.agents = {name: AgentDisplay(name) for name in names}
        self._lock = Lock()

    def say(self, name: str, state: str) -> None:
        """Say what an agent does."""
        with self._lock:
            self.agents[name].state = state

    def fails(self, name: str, state: str, error: str) -> bool:
        """Say that an agent met an error; return whether that is news."""
        with self._lock:
            self.agents[name].state = state
            return self.agents[name].fails(error)

    def show(self, name: str, row: Mapping[str, Any], backlog: int | None, now: float) -> bool:
        """Take an agent's newest history row and its backlog, at a time in seconds. Return whether it has just got over
        an error."""
        with self._lock:
            self.agents[name].show(row, now)
            self.agents[name].backlog = backlog
            return self.agents[name].goes_on(row)

    def table(self) -> Table:
        """Return the table as it is now."""
        table = table_of("agent", words=["state"], numbers=["commands", "commands/s", "latency", "undelivered"])
        with self._lock:
            for it in self.agents.values():
                table.add_row(*it.cells())
        return table

    def lines(self) -> list[str]:
        with self._lock:
            return [it.line() for it in self.agents.values()]


@contextmanager
def showing_agents(console: Console, names: list[str], topology: Topology) -> Iterator[ContinuousDisplay]:
    """Show how agents get on, as their history says, until it is over."""
    display = ContinuousDisplay(names)
    with ExitStack() as opened:
        if console.is_terminal:
            live = opened.enter_context(Live(console=console, get_renderable=display.table, auto_refresh=False))
            show: Callable[[], None] = live.refresh
        else:

            def show() -> None:
                for line in display.lines():
                    console.print(line, highlight=False, markup=False, soft_wrap=True)

        shown: list[str] = []

        def look(history: FollowedHistory) -> None:
            """Show what has changed: drawing is most of what it costs."""
            nonlocal shown
            for name in display.agents:
                _show(history, name, display, console)
            if (lines := display.lines()) != shown:
                shown = lines
                show()

        every = _LOOKED_EVERY_SECONDS if console.is_terminal else _LINE_EVERY_SECONDS
        opened.enter_context(following(topology, look, every))
        yield display


def _show(history: FollowedHistory, name: str, display: ContinuousDisplay, console: Console) -> None:
    """Show an agent, as soon as it has a row of a job that began after this."""
    subscription = None if name == LOG_READER else history.subscription(name)
    row = history.newest(subscription)
    if row is not None:
        backlog = None if subscription is None else _backlog(history, subscription, row)
        if display.show(name, row, backlog, time.monotonic()):
            console.print(f"{name}: goes on", highlight=False, markup=False)


def _backlog(history: FollowedHistory, subscription: SubscriptionRecord, row: Mapping[str, Any]) -> int:
    known = row["xact_seqno"] or history.database.history.last_known_watermark(history.record, subscription)
    watermark = known or subscription.subscription_seqno or b""
    return history.database.batches.commands_after(history.record, bytes(watermark))
