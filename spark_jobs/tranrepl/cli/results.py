"""What jobs did, as a table, and what stopped them."""

from __future__ import annotations

from collections.abc import Mapping

import typer
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from tranrepl.admin.run import LOG_READER, SNAPSHOT
from tranrepl.cli.output import err, out, print_error, print_json, settings_file, warn
from tranrepl.errors import ErrorKind
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.skipped_report import skipped_warning
from tranrepl.next_steps import Place

_WIDTH_OF_NUMBERS = 80
"""In a terminal that is narrower, numbers may be broken: what a step is called and how it ended would be gone."""


def raise_first(results: Mapping[str, JobResult]) -> None:
    """Print what stopped jobs and end with status 1. To be fenced off is to end cleanly, with nothing done."""
    for name, result in results.items():
        if result.error is not None and result.error.kind is ErrorKind.FENCED:
            err.print(f"{name}: {escape(result.error.message)}", highlight=False)
    # What is wrong with the file, each step says.
    failed = {
        it.error.message: (name, it.error)
        for name, it in results.items()
        if it.error is not None and it.error.kind is not ErrorKind.FENCED
    }
    for name, error in failed.values():
        print_error(error.to_exception(), "" if name == LOG_READER else name.removesuffix(SNAPSHOT))
    if failed:
        raise typer.Exit(1)


def report(results: Mapping[str, JobResult], as_json: bool) -> None:
    if as_json:
        print_json({name: result.without_command().model_dump(mode="json") for name, result in results.items()})
        return
    for name, result in results.items():
        skipped = skipped_warning(Place(settings_file(), name), result)
        warn([f"{name}: {notice}" for notice in (*([skipped] if skipped else []), *result.notices)])
    taken = {name: result for name, result in results.items() if result.snapshot or name.endswith(SNAPSHOT)}
    if taken:
        out.print(_snapshots(taken))
    # Only where there are any: it is to be seen. There are 80 columns.
    some_skipped = any(result.skipped for result in results.values())
    table = Table("step", "status", pad_edge=not some_skipped)
    for heading in ("transactions", "commands", "seconds", "commands/s"):
        table.add_column(heading, justify="right", no_wrap=out.width >= _WIDTH_OF_NUMBERS)
    if some_skipped:
        table.add_column("skipped", justify="right", no_wrap=out.width >= _WIDTH_OF_NUMBERS, style="bold red")
    for name, result in results.items():
        if name in taken:
            continue
        table.add_row(
            name,
            _state(result),
            f"{result.transactions:,}",
            f"{result.commands:,}",
            f"{result.seconds:.1f}",
            _rate(result.commands, result.seconds),
            *([f"{result.skipped:,}" if result.skipped else ""] if some_skipped else []),
        )
    if table.rows:
        out.print(table)


def _snapshots(taken: Mapping[str, JobResult]) -> Table:
    table = Table("snapshot", "status")
    for heading in ("tables", "rows", "size", "seconds", "rows/s"):
        table.add_column(heading, justify="right", no_wrap=out.width >= _WIDTH_OF_NUMBERS)
    for name, result in taken.items():
        rows = sum(it.rows for it in result.snapshot)
        table.add_row(
            name.removesuffix(SNAPSHOT),
            _state(result),
            f"{len(result.snapshot):,}",
            f"{rows:,}",
            decimal(sum(it.bytes for it in result.snapshot)),
            f"{result.seconds:.1f}",
            _rate(rows, result.seconds),
        )
    return table


def _rate(done: int, seconds: float) -> str:
    return f"{done / seconds:,.0f}" if done and seconds else ""


def _state(result: JobResult) -> str:
    if result.error is not None:
        return "fenced off" if result.error.kind is ErrorKind.FENCED else "[red]failed[/]"
    return "[green]done[/]" if result.commands or result.snapshot else "nothing to do"
