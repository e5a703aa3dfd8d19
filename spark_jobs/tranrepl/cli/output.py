"""What the shell prints: messages on stderr, results on stdout. No traceback for what we foresee."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.markup import escape

from tranrepl.errors import ReplicationError

out = Console(soft_wrap=not sys.stdout.isatty())
err = Console(stderr=True, soft_wrap=True)


@contextmanager
def failing_clearly() -> Iterator[None]:
    """One message on stderr and exit status 1 for everything that we foresee."""
    try:
        yield
    except ReplicationError as error:
        print_error(error)
        raise typer.Exit(1) from None


def print_error(error: ReplicationError) -> None:
    err.print(f"[bold red]error[/]: {escape(error.message)}", highlight=False)
    if error.xact_seqno:
        seqno = f"0x{error.xact_seqno}"
        err.print(f"  in {seqno}, command {error.command_id}, article {error.article}", highlight=False, markup=False)
        err.print(f"  tranrepl browse FILE --from {seqno} --to {seqno} shows it", highlight=False, markup=False)
    if error.remedy:
        err.print(f"  [green]→[/] {escape(error.remedy)}", highlight=False)


def print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")


def warn(warnings: list[str]) -> None:
    for warning in warnings:
        err.print(f"[yellow]warning[/]: {escape(warning)}", highlight=False)


def fail_on(problems: list[ReplicationError]) -> None:
    for problem in problems:
        print_error(problem)
    if problems:
        raise typer.Exit(1)


def counted(number: int, what: str, several: str | None = None) -> str:
    return f"{number:,} {what if number == 1 else several or what + 's'}"
