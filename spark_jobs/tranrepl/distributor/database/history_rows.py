"""A run's result as a row of its agent's history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tranrepl.distributor.tables import RunStatus
from tranrepl.errors import ErrorKind
from tranrepl.jobs.results import JobResult, TableProgress
from tranrepl.printable import counted, duration, size


def history_values(result: JobResult, done: str = "stored") -> dict[str, Any]:
    """Return the values that the rows of both histories have. `done`: what the agent does with commands."""
    return {
        "runstatus": run_status(result),
        "duration": result.seconds,
        "comments": _comments(result, done),
        "xact_seqno": bytes.fromhex(result.last_xact_seqno) if result.last_xact_seqno else None,
        "delivered_transactions": result.transactions,
        "delivered_commands": result.commands,
        "delivery_rate": result.commands / result.seconds if result.seconds else 0.0,
        "delivery_latency": result.latency_ms,
        "commands_by_article": result.commands_by_article,
    }


def distribution_values(result: JobResult) -> dict[str, Any]:
    """Return the values of a row of `msdistribution_history`, which says also how the run delivered."""
    how: dict[str, Any] = {"bulk_commands": result.in_bulk, "fallbacks": result.fallbacks}
    if result.latency is not None:
        how["latency"] = {leg: it.model_dump() for leg, it in result.latency.all_quantiles().items()}
    if result.snapshot:
        how["snapshot"] = [it.model_dump() for it in result.snapshot]
    return history_values(result, "delivered") | how


def failed(result: JobResult) -> bool:
    """Return whether the run failed. Being fenced off is no failure: another job does the work."""
    return result.error is not None and result.error.kind is not ErrorKind.FENCED


def did_nothing_but_meet_another(result: JobResult) -> bool:
    """Return whether the run was fenced off before it did anything."""
    is_fenced = result.error is not None and result.error.kind is ErrorKind.FENCED
    return is_fenced and not (result.commands or result.snapshot)


def run_status(result: JobResult) -> RunStatus:
    """Return how the run ended. Being fenced off is no failure."""
    if failed(result):
        transient = result.error is not None and result.error.kind is ErrorKind.TRANSIENT
        return RunStatus.RETRY if transient else RunStatus.FAIL
    return RunStatus.SUCCEED if result.commands or result.snapshot else RunStatus.IDLE


def _comments(result: JobResult, done: str) -> str:
    skipped = f" Skipped, as skip_errors says: {result.skipped} of them." if result.skipped else ""
    if result.error is not None:
        return result.error.message + skipped.replace("of them", "commands before it")
    if result.snapshot:
        return snapshot_comments(result.snapshot)
    if not result.commands:
        return " ".join(["No replicated transactions are available.", *result.notices])
    delivered = f"{counted(result.transactions, 'transaction')} with {counted(result.commands, 'command')} {done}"
    serial = result.commands - result.in_bulk
    how = f", {result.in_bulk:,} of them in bulk, {serial:,} serially" if serial else ", in bulk"
    how = how if result.in_bulk else ""
    why = "; ".join(f"{reason} ({times} times)" for reason, times in result.fallbacks.items())
    altered = "".join(f"\n{it}" for it in result.applied_schema_changes)
    return f"{delivered}{how}.{skipped}" + (f" Not in bulk after all: {why}." if why else "") + altered


def snapshot_comments(tables: Sequence[TableProgress]) -> str:
    """Return how a snapshot gets on, a line for each table on its way."""
    whole = [it for it in tables if it.share >= 1]
    rows, taken = sum(it.rows for it in tables), size(sum(it.bytes for it in tables))
    lines = [f"Snapshot: {len(whole)} of {counted(len(tables), 'table')}, {counted(rows, 'row')}, {taken}."]
    lines += (
        f"{it.article}: {it.share:.0%}, {counted(it.rows, 'row')}, {size(it.bytes)}, {size(round(it.rate))}/s, "
        f"{duration(it.seconds_left or 0)} left"
        for it in tables
        if 0 < it.share < 1
    )
    return "\n".join(lines)
