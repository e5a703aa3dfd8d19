"""The tables a person reads."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.limits import Limit
from benchmarks.results import Phase, Results, Row
from benchmarks.startup import StartUp

_LOOK = "look"
_ORDER = ("read", "decode", "transform", "store", "plan", "stage", "apply", "commit", "register", "advance", "other")
_REFERENCE = (
    "reference: count(*) over the same slot (log reader), PostgreSQL's logical replication (distribution, whole); "
    "total: with start-up"
)
console = Console(width=None if sys.stdout.isatty() else 150)


def show(results: Results, reference: str = _REFERENCE) -> None:
    """Print all there is."""
    rows = list(_log_read_once(results.rows))
    console.print(_rates(rows, results.limits))
    console.print(reference)
    jobs = [row for row in rows if row.phase is not Phase.WHOLE]
    for table in (_phases(jobs), _memory(jobs)):
        if table.row_count:
            console.print(table)
    if results.startup is not None:
        console.print(_startup(results.startup))


def _log_read_once(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the rows, with one log reader for each backlog: its log is read once for all modes."""
    seen: set[str] = set()
    for row in rows:
        if row.phase is Phase.LOG_READER:
            if row.workload in seen:
                continue
            seen.add(row.workload)
        yield row


def _rates(rows: Sequence[Row], limits: Sequence[Limit]) -> Table:
    headings = ("changes", "ours", "reference", "ratio", "start-up s", "total s", "stored bytes")
    table = _table("changes a second", ("workload", "phase"), headings)
    for row in rows:
        table.add_row(
            row.workload,
            _phase(row),
            f"{row.changes:,}",
            f"{row.ours_per_s:,.0f}",
            f"{row.reference_per_s:,.0f}",
            f"{row.ratio:.2f}",
            *(_seconds(it) for it in (row.startup_seconds, row.total_seconds)),
            "" if row.stored_bytes_per_change is None else f"{row.stored_bytes_per_change:.1f}",
        )
    table.add_section()
    for limit in limits:
        table.add_row("limit", limit.name, f"{limit.rows:,}", f"{limit.rows_per_s:,.0f}", *[""] * 5)
    return table


def _phases(rows: Sequence[Row]) -> Table:
    timed = [row for row in rows if row.phases]
    found = dict.fromkeys(name for row in timed for name in row.phases)
    names = [*(name for name in _ORDER if name in found), *(name for name in found if name not in _ORDER)]
    table = _table("seconds of each phase", ("workload", "phase"), [_LOOK, *names])
    for row in timed:
        seconds = (row.probe_seconds, *(row.phases.get(name) for name in names))
        table.add_row(row.workload, _phase(row), *(_seconds(it) for it in seconds))
    return table


def _memory(rows: Sequence[Row]) -> Table:
    measured = [row for row in rows if row.peak_mb]
    roles = list(dict.fromkeys(role for row in measured for role in row.peak_mb))
    table = _table("peak memory of a process, MB", ("workload", "phase"), ["changes", *roles])
    for row in measured:
        peaks = (row.peak_mb.get(role) for role in roles)
        table.add_row(
            row.workload, _phase(row), f"{row.changes:,}", *("" if it is None else f"{it:,.0f}" for it in peaks)
        )
    return table


def _startup(startup: StartUp) -> Table:
    table = _table("small runs, seconds", ("changes",), ("log reader", "distribution", "both", "of two empty jobs"))
    for run in startup.small_runs:
        table.add_row(
            f"{run.changes:,}",
            *(_seconds(it) for it in (run.log_reader, run.distribution, run.total)),
            f"{run.of_two_empty_jobs:.2f}",
        )
    table.add_section()
    table.add_row("two empty jobs", *[_seconds(startup.empty_job)] * 2, _seconds(2 * startup.empty_job), "1.00")
    both = startup.log_reader + startup.distribution
    table.add_row("start-up", *(_seconds(it) for it in (startup.log_reader, startup.distribution, both)), "")
    return table


def _table(title: str, names: Sequence[str], figures: Sequence[str]) -> Table:
    table = Table(*names, title=title, box=SIMPLE_HEAD)
    for heading in figures:
        table.add_column(heading, justify="right")
    return table


def _phase(row: Row) -> str:
    name = row.phase.replace("_", " ")
    return name if row.phase is Phase.LOG_READER else f"{name}, {row.mode}"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
