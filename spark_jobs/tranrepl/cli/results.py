"""What jobs did, as a table, and what stopped them."""

from __future__ import annotations

from collections.abc import Mapping

from rich.markup import escape
from rich.table import Table

from tranrepl.cli.output import err, out, print_error, print_json, warn
from tranrepl.errors import ErrorKind
from tranrepl.jobs import JobResult


def raise_first(results: Mapping[str, JobResult]) -> None:
    """Print what stopped a job and raise the last of it. To be fenced off is to end cleanly, with nothing done."""
    for name, result in results.items():
        if result.error is not None and result.error.kind is ErrorKind.FENCED:
            err.print(f"{name}: {escape(result.error.message)}", highlight=False)
    stopped = [it.error for it in results.values() if it.error is not None and it.error.kind is not ErrorKind.FENCED]
    # What is wrong with the file, each step says.
    failed = list({it.message: it for it in stopped}.values())
    for error in failed[:-1]:
        print_error(error.to_exception())
    if failed:
        raise failed[-1].to_exception()


def report(results: Mapping[str, JobResult], as_json: bool) -> None:
    if as_json:
        print_json({name: result.model_dump(mode="json") for name, result in results.items()})
        return
    for name, result in results.items():
        warn([f"{name}: {notice}" for notice in result.notices])
    table = Table("step", "status")
    for heading in ("transactions", "commands", "seconds", "commands/s"):
        table.add_column(heading, justify="right")
    for name, result in results.items():
        done = result.commands or sum(it.rows for it in result.snapshot)
        rate = f"{done / result.seconds:,.0f}" if result.seconds and done else ""
        table.add_row(
            name,
            _state(result),
            "" if result.snapshot else f"{result.transactions:,}",
            f"{done:,} rows" if result.snapshot else f"{done:,}",
            f"{result.seconds:.1f}",
            rate,
        )
    out.print(table)


def _state(result: JobResult) -> str:
    if result.error is not None:
        return f"[red]{result.error.kind} error[/]"
    return "[green]done[/]" if result.commands or result.snapshot else "nothing to do"
