"""Output at a shell: messages on stderr, results on stdout. An expected error has no traceback."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from tranrepl.errors import ReplicationError
from tranrepl.printable import printable
from tranrepl.remedies import Place, facts, named, step_lines, with_short_key


class EscapingConsole(Console):
    """Shows control characters of names and values: none of them reaches a terminal."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            shown = segment.text if segment.control else printable(segment.text)
            yield segment if shown == segment.text else Segment(shown, segment.style)


out = EscapingConsole(soft_wrap=not sys.stdout.isatty())
err = EscapingConsole(stderr=True, soft_wrap=True)

_settings_file: ContextVar[str] = ContextVar("settings_file", default="FILE")
"""The settings file of this call, for errors that do not name it."""


@contextmanager
def failing_clearly() -> Iterator[None]:
    """Print one message on stderr and exit with status 1 for every error that is foreseen."""
    try:
        yield
    except ReplicationError as error:
        print_error(error)
        raise typer.Exit(1) from None


def print_error(error: ReplicationError, subscription: str = "", *, checked: bool = False) -> None:
    """Print what happened, where, and the commands to go on with, which name the file that this call was given. What
    was only `checked` has nothing to go on with: its remedy says all."""
    report, place = error.report, Place(_settings_file.get(), subscription)
    message = named(with_short_key(report.message, report), place, report.article)
    err.print(f"[bold red]error[/]: {escape(message)}", highlight=False)
    if report.remedy:
        err.print(f"  [green]→[/] {escape(named(report.remedy, place, report.article))}", highlight=False)
    where = ", ".join(f"{name} {value}" for name, value in facts(report).items())
    if where:
        err.print(f"  {where}", highlight=False, markup=False)
    for line in () if checked else step_lines(report, place):
        err.print(f"  {line}", highlight=False, markup=False, style="dim" if line.startswith("#") else None)


def remember_optional_file(file: Path | None) -> Path | None:
    """As `remember_file`, of a file that may be left out."""
    return None if file is None else remember_file(file)


def with_names(text: str, subscription: str = "") -> str:
    """Return a text whose commands name the file that this call was given, and the subscription."""
    return named(text, Place(_settings_file.get(), subscription))


def remember_file(file: Path) -> Path:
    """Let the commands that errors name have this file. A callback of the argument; returns the same file."""
    _settings_file.set(str(file))
    return file


def settings_file() -> str:
    """Return the file that this call was given, for commands that name it."""
    return _settings_file.get()


def write_out(text: str) -> None:
    """Write a text as it is, as for a file; where a terminal shows it, with its control characters escaped."""
    sys.stdout.write(printable(text) if sys.stdout.isatty() else text)


def table_of(name: str, *, title: str | None = None, words: Sequence[str] = (), numbers: Sequence[str] = ()) -> Table:
    """Return a table without rows: a column of names, which may go on in the next line, columns of words and of
    numbers, whose cells are never broken."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column(name, overflow="fold")
    for heading in words:
        table.add_column(heading, no_wrap=True)
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")


def warn(warnings: list[str]) -> None:
    for warning in warnings:
        err.print(f"[yellow]warning[/]: {escape(named(warning, Place(_settings_file.get())))}", highlight=False)


def fail_on(problems: list[ReplicationError]) -> None:
    for problem in problems:
        print_error(problem, checked=True)
    if problems:
        raise typer.Exit(1)
