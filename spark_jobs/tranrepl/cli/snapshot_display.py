"""The progress of a snapshot at a shell: a bar for each table, or lines where it is no terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tranrepl.distributor.tables import RunStatus
from tranrepl.jobs.results import TableProgress
from tranrepl.printable import duration, size

_LINE_EVERY_SECONDS = 10.0
_LINES_BESIDE = 5
_NUMBERS_WIDTH = 49
"""The width of all columns but the name and the bar, at their widest."""
_NARROWEST_NAME = 24
_WIDEST_BAR = 24


class Display(Protocol):
    def show(self, tables: Sequence[TableProgress], doing: str | None = None) -> None:
        """Show how far the tables are; `doing` is what goes on while nothing is copied."""
        ...


@contextmanager
def showing(console: Console, subscription: str) -> Iterator[Display]:
    """Show bars in a terminal and lines elsewhere; nothing where nothing is copied."""
    if not console.is_terminal:
        yield _Lines(console, subscription)
        return
    bars = _Bars(console, subscription)
    with Live(console=console, get_renderable=bars.renderable, refresh_per_second=4, transient=True):
        yield bars
    if bars.tables:
        console.print(table_bars(subscription, bars.tables, console.width, len(bars.tables)))


def show_row(display: Display, row: Mapping[str, Any]) -> None:
    """Show what a snapshot's history row says."""
    if row["runstatus"] == RunStatus.IN_PROGRESS:
        said = row["comments"]
        tables = [TableProgress.model_validate(it) for it in row["snapshot"] or ()]
        display.show(tables, None if said.startswith("Snapshot: ") else said)


@dataclass(slots=True)
class _Bars:
    console: Console
    subscription: str
    tables: Sequence[TableProgress] = ()
    doing: str | None = None
    spinner: Spinner = field(default_factory=lambda: Spinner("dots", style="status.spinner"))

    def show(self, tables: Sequence[TableProgress], doing: str | None = None) -> None:
        self.tables, self.doing = tables, doing

    def renderable(self) -> RenderableType:
        whole = sum(it.share >= 1 for it in self.tables)
        how_far = f": {whole} of {len(self.tables)} tables" if self.tables else ""
        doing = f". {self.doing}" if self.doing else ""
        self.spinner.update(text=Text(f"snapshot for {self.subscription}{how_far}{doing}"))
        if not self.tables:
            return self.spinner
        most = max(1, self.console.height - _LINES_BESIDE)
        return Group(self.spinner, table_bars(self.subscription, self.tables, self.console.width, most))


def table_bars(subscription: str, tables: Sequence[TableProgress], width: int, most: int) -> Table:
    """Return a line for each table, and one for all of several; where there are more than fit, those in progress come
    first."""
    shown, hidden = list(tables), 0
    if len(shown) > most:
        shown = sorted(shown, key=lambda it: (not 0 < it.share < 1, it.share >= 1))
        hidden, shown = len(shown) - most + 1, shown[: most - 1]
    longest = max((len(it.article) for it in shown), default=0)
    bar = max(4, min(_WIDEST_BAR, width - _NUMBERS_WIDTH - min(longest, _NARROWEST_NAME)))
    name = max(_NARROWEST_NAME, width - _NUMBERS_WIDTH - bar)
    grid = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    grid.add_column(Text(subscription), no_wrap=True, overflow="ellipsis", max_width=name)
    grid.add_column(width=bar)
    for heading in ("", "rows", "size", "rate", "left"):
        grid.add_column(heading, justify="right", no_wrap=True)
    for it in shown:
        grid.add_row(Text(it.article), ProgressBar(total=1.0, completed=it.share, width=bar), *_numbers(it))
    if hidden:
        grid.add_row(Text(f"and {hidden} more", style="dim"))
    if len(tables) > 1:
        rows, taken = sum(it.rows for it in tables), size(sum(it.bytes for it in tables))
        grid.add_row(Text(f"{len(tables)} tables"), "", "", f"{rows:,}", taken)
    return grid


def _numbers(table: TableProgress) -> list[Text]:
    if not table.share:
        return [Text("waits", style="dim")]
    left = "done" if table.share >= 1 else duration(table.seconds_left or 0)
    styles = ("progress.percentage", "", "progress.filesize", "progress.data.speed", "progress.remaining")
    texts = (f"{table.share:.0%}", f"{table.rows:,}", size(table.bytes), _rate(table), left)
    return [Text(text, style=style) for text, style in zip(texts, styles, strict=True)]


def _line(table: TableProgress) -> str:
    time_ = f"in {duration(table.seconds)}" if table.share >= 1 else f"{duration(table.seconds_left or 0)} left"
    numbers = (f"{table.rows:,} rows", size(table.bytes), _rate(table), time_)
    return f"{table.article}: {table.share:.0%}, {', '.join(numbers)}"


def _rate(table: TableProgress) -> str:
    return f"{size(int(table.rate))}/s"


@dataclass(slots=True)
class _Lines:
    """For a log: a table's line when it is whole, and now and then on its way."""

    console: Console
    subscription: str
    doing: str | None = None
    whole: set[str] = field(default_factory=set)
    shown: float = field(default_factory=time.monotonic)

    def show(self, tables: Sequence[TableProgress], doing: str | None = None) -> None:
        if doing is not None and doing != self.doing:
            self.doing = doing
            self._print(doing)
        due = time.monotonic() - self.shown >= _LINE_EVERY_SECONDS
        for it in tables:
            is_whole = it.share >= 1
            if it.article not in self.whole and (is_whole or (due and it.share > 0)):
                self._print(_line(it))
            if is_whole:
                self.whole.add(it.article)
        if due:
            self.shown = time.monotonic()

    def _print(self, text: str) -> None:
        self.console.print(f"snapshot for {self.subscription}: {escape(text)}", highlight=False, soft_wrap=True)
