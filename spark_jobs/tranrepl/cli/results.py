"""Results of jobs as a table, and their errors."""

from __future__ import annotations

import re
from collections.abc import Mapping

import typer
from rich.markup import escape
from rich.table import Table

from tranrepl.admin.run import LOG_READER, SNAPSHOT
from tranrepl.cli.output import err, out, print_error, print_json, settings_file, table_of, warn
from tranrepl.distributor.database.history_rows import did_nothing_but_meet_another, failed, run_status
from tranrepl.errors import ErrorKind
from tranrepl.jobs.results import JobResult, TableChange
from tranrepl.jobs.skipped_report import skipped_warning
from tranrepl.printable import a_second, counted, size
from tranrepl.remedies import Place
from tranrepl.settings.registered_names import asked_edit

_STATEMENT = re.compile(r"(Subscriber \S+: )?((table .+: |ran )?[A-Z]{3,} |(created|dropped) ([\d,]+ )?procedures? )")


def raise_first(results: Mapping[str, JobResult]) -> None:
    """Print what stopped jobs and end with status 1. To be fenced off is to end cleanly, with nothing done."""
    for name, result in results.items():
        if result.error is not None and result.error.kind is ErrorKind.FENCED:
            err.print(f"{name}: {escape(result.error.message)}", highlight=False)
    # What is wrong with the file, each step says.
    stopped = {
        it.error.message: (name, it.error)
        for name, it in results.items()
        if it.error is not None and it.error.kind is not ErrorKind.FENCED
    }
    for name, error in stopped.values():
        print_error(error.to_exception(), "" if name == LOG_READER else name.removesuffix(SNAPSHOT))
    if stopped:
        raise typer.Exit(1)


def report(results: Mapping[str, JobResult], as_json: bool) -> None:
    if as_json:
        print_json({name: result.without_command().model_dump(mode="json") for name, result in results.items()})
        return
    _print_table_changes(results)
    changed = tuple(f"{it.article}: {it.what}" for result in results.values() for it in result.table_changes)
    for name, result in results.items():
        skipped = skipped_warning(Place(settings_file(), name), result)
        notices = [it for it in result.notices if not it.endswith(changed) and not _is_routine(it, result)]
        warn([_of_step(name, notice) for notice in (*([skipped] if skipped else []), *notices)])
    snapshots = {name: result for name, result in results.items() if result.snapshot or name.endswith(SNAPSHOT)}
    others = [result.error for name, result in results.items() if name not in snapshots]
    # One that failed as another step did was not due, or has nothing of its own to say.
    taken = {name: it for name, it in snapshots.items() if it.snapshot or it.error not in others}
    if taken:
        out.print(_snapshots(taken))
    some_skipped = any(result.skipped for result in results.values())
    table = table_of("agent", words=["run"], numbers=["transactions", "commands", "seconds", "commands/s"])
    if some_skipped:
        table.add_column("skipped", justify="right", no_wrap=True, style="bold red")
    for name, result in results.items():
        if name in snapshots:
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


def _of_step(name: str, notice: str) -> str:
    """Return a notice with the step's name, where it does not begin with that already."""
    subscription = name.removesuffix(SNAPSHOT)
    is_named = name == LOG_READER or notice.startswith(f"Subscriber {subscription}: ")
    return notice if is_named else f"{subscription}: {notice}"


def _is_routine(notice: str, result: JobResult) -> bool:
    """Return whether a notice is only a statement that brought a schema change, which has its line already."""
    return notice in result.applied_schema_changes and _STATEMENT.match(notice) is not None


def _print_table_changes(results: Mapping[str, JobResult]) -> None:
    """Print a line for each table that schema changes altered: what they did, where, and what the file has to say."""
    applied: dict[TableChange, list[str]] = {}
    edits: dict[str, str] = {}
    for name, result in results.items():
        edits |= result.file_edits
        for it in result.table_changes:
            applied.setdefault(it, []).extend([name] if name != LOG_READER else [])
    lines: dict[tuple[str, int], list[str]] = {}
    for it, names in applied.items():
        lines.setdefault((it.article, len(names)), []).append(it.what)
    for (article, subscribers), what in lines.items():
        where = counted(subscribers, "Subscriber") if subscribers else "captured"
        edit = edits.pop(article, None)
        asked = f"; {edit}" if edit is not None else ""
        out.print(f"{escape(article)}: {escape(', '.join(what))} ({where}){escape(asked)}", highlight=False)
    warn([asked_edit(*it) for it in edits.items()])


def _snapshots(taken: Mapping[str, JobResult]) -> Table:
    table = table_of("snapshot", words=["run"], numbers=["tables", "rows", "size", "seconds", "rows/s"])
    for name, result in taken.items():
        rows = sum(it.rows for it in result.snapshot)
        table.add_row(
            name.removesuffix(SNAPSHOT),
            _state(result),
            f"{len(result.snapshot):,}",
            f"{rows:,}",
            size(sum(it.bytes for it in result.snapshot)),
            f"{result.seconds:.1f}",
            _rate(rows, result.seconds),
        )
    return table


def _rate(done: int, seconds: float) -> str:
    if not done or not seconds:
        return ""
    return a_second(done / seconds)


def _state(result: JobResult) -> str:
    if did_nothing_but_meet_another(result):
        return "fenced off"
    words = run_status(result).in_words
    return f"[red]{words}[/]" if failed(result) else words
