"""Output of the verb status: a table of the agents, and details of each below.

It fits into 80 columns. A terminal's lines are wrapped between words; where it is no terminal, each is one line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime

from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tranrepl.admin.status.report import (
    LastError,
    LastRun,
    LogReaderStatus,
    MeasuredLatency,
    PublicationStatus,
    SkippedCommands,
    SubscriptionStatus,
)
from tranrepl.cli.output import out, table_of, with_names
from tranrepl.distributor.database.overview import WRONG_STATES
from tranrepl.distributor.tables import RunStatus
from tranrepl.model.latency import Quantiles
from tranrepl.printable import counted, duration, size
from tranrepl.remedies import with_short_key

_INDENT = 2
_LONG_OPEN_SECONDS = 60
_LONG_NAME = 30
_WHOLE_LINE = 10_000
"""Columns of a table that nothing cuts: where it is no terminal."""


def show_status(current: PublicationStatus) -> None:
    """Print one publication."""
    out.print(_table(current), width=_WHOLE_LINE if out.soft_wrap else None)
    if current.distributor_problem is not None:
        _print(f"[red]{escape(current.distributor_problem)}[/]", 0)
    _print("[bold]log reader[/]", 0)
    for line in _log_reader_lines(current.log_reader):
        _print_lines(line)
    _print_steps(current.log_reader.last_error)
    for subscription in current.subscriptions:
        _print(f"[bold]{escape(subscription.subscription)}[/]: {_state(subscription)}", 0)
        for line in _subscription_lines(subscription):
            _print_lines(line)
        _print_steps(subscription.last_error)


def _print(line: str, indent: int) -> None:
    if out.soft_wrap:
        out.print(" " * indent + line, highlight=False)
    else:
        out.print(Padding(Text.from_markup(line), (0, 0, 0, indent), expand=False), highlight=False)


def _print_lines(text: str) -> None:
    """Print what there is to say, and indented below it the lines that follow: of two, the second is its remedy."""
    first, *others = text.splitlines() or [""]
    _print(first, _INDENT)
    for line in others:
        _print(line if others[1:] else f"[green]→[/] {line}", 2 * _INDENT)


def _print_steps(error: LastError | None) -> None:
    """Print whole lines also in a terminal, so that a command can be pasted from it."""
    for line in error.next_steps if error is not None else ():
        style = "dim" if line.startswith("#") else None
        out.print(" " * 2 * _INDENT + line, highlight=False, markup=False, soft_wrap=True, style=style)


def _table(current: PublicationStatus) -> Table:
    table = table_of("agent", title=escape(current.publication), words=["last run", "at (UTC)", "behind"])
    # A name is broken only where it is that long; what is behind it goes on in the next line before.
    table.columns[0].no_wrap = all(len(it.subscription) <= _LONG_NAME for it in current.subscriptions)
    table.columns[-1].no_wrap = False
    known = current.distributor_problem is None
    reader = current.log_reader
    table.add_row("log reader", *_run(reader.last_run, known=known), _unread(reader))
    for it in current.subscriptions:
        answered = known and it.problem is None
        table.add_row(escape(it.subscription), *_run(it.last_run, known=answered), _undelivered(it))
    return table


def _run(last: LastRun | None, *, known: bool) -> tuple[str, str]:
    if not known:
        return _NOT_KNOWN, ""
    if last is None:
        return "never", ""
    words = RunStatus[last.status.upper()].in_words
    return f"[red]{words}[/]" if last.failed else words, f"{last.time.astimezone(UTC):%Y-%m-%d %H:%M}"


_NOT_KNOWN = "[red]unknown[/]"


def _unread(reader: LogReaderStatus) -> str:
    if reader.publisher_problem is not None and reader.unread_log_bytes is None:
        return _NOT_KNOWN
    if reader.unread_log_bytes is None:
        return "[red]no log is kept[/]" if reader.slot is None else _NOT_KNOWN
    log = f"{size(reader.unread_log_bytes)} of log"
    last = reader.last_run
    # Such a run has read all log that there was: the rest, of any database of the server, is newer.
    was_up_to_date = last is not None and last.status in ("succeed", "idle") and reader.waits_for is None
    return f"up to date then; {log} since" if was_up_to_date else log


def _undelivered(subscription: SubscriptionStatus) -> str:
    if subscription.undelivered_commands is None:
        return _NOT_KNOWN
    at_most = "≤ " if subscription.undelivered_at_most else ""
    return at_most + counted(subscription.undelivered_commands, "command")


def _log_reader_lines(reader: LogReaderStatus) -> Iterator[str]:
    if reader.registered_xact_seqno is not None:
        yield f"watermark 0x{reader.registered_xact_seqno}"
    if reader.slot_name is not None:
        yield _kept(reader, escape(reader.log or f"the log of {reader.slot_name}"))
    for it in reader.dangers:
        yield f"[yellow]{escape(it)}[/]"
    yield from _oldest_transaction(reader)
    if reader.waits_for is not None:
        yield f"[yellow]{escape(reader.waits_for)}[/]"
    if reader.schema_changes_stop is not None:
        yield f"[yellow]schema changes stop the publication[/]: {escape(reader.schema_changes_stop)}"
    yield from _red(reader.publisher_problem)
    yield from _red(reader.problem)
    yield from _failure(reader.last_run, reader.last_error)


def _kept(reader: LogReaderStatus, log: str) -> str:
    if reader.slot is None:
        missing = "unknown" if reader.publisher_problem is not None else "it does not exist"
        return f"{log}: [red]{missing}[/]"
    state = reader.slot if reader.slot in ("ready", "in use", "kept") else f"[red]{reader.slot}[/]"
    kept = reader.retained
    if kept is None or kept.bytes is None:
        return f"{log}: {state}" + (f" ({kept.wal_status})" if kept is not None else "")
    left = f", {size(kept.bytes_left)} more before it is invalidated" if kept.bytes_left is not None else ""
    return f"{log}: {state}, retains {size(kept.bytes)} of log ({kept.wal_status}{left})"


def _oldest_transaction(reader: LogReaderStatus) -> Iterator[str]:
    kept = reader.retained
    if kept is not None and (kept.oldest_transaction_seconds or 0) >= _LONG_OPEN_SECONDS:
        since = duration(kept.oldest_transaction_seconds or 0)
        who = escape(kept.oldest_transaction or "")
        yield f"[yellow]a transaction has been open for {since}[/] and keeps the log since then: {who}"


def _state(subscription: SubscriptionStatus) -> str:
    if subscription.state is None:
        return _NOT_KNOWN
    return f"[red]{subscription.state}[/]" if subscription.state in WRONG_STATES else subscription.state


def _subscription_lines(subscription: SubscriptionStatus) -> Iterator[str]:
    if subscription.watermark is not None:
        away = subscription.subscriber_problem is not None
        place = f"0x{subscription.watermark}"
        yield f"watermark {place}" + (", as of its last run" if away else "")
    yield from _red(subscription.subscriber_problem)
    yield from _red(subscription.problem)
    yield from _delivery(subscription)
    if subscription.latency is not None:
        yield from latency_lines(subscription.latency)
    if subscription.waiting_articles:
        yield f"waits for the snapshot of {escape(', '.join(subscription.waiting_articles))}"
    for article, why in subscription.stopped_articles.items():
        yield f"[red]stopped for article {escape(article)}[/]: {escape(why)}"
    if subscription.skipped is not None and subscription.skipped.commands:
        yield with_names(_skipped(subscription.skipped), subscription.subscription)
    last = subscription.last_run
    if last is not None and last.status == "in_progress" and subscription.waiting_articles:
        yield from map(escape, last.comments.splitlines())
    yield from _failure(last, subscription.last_error)


def _delivery(subscription: SubscriptionStatus) -> Iterator[str]:
    if not subscription.undelivered_commands:
        if subscription.undelivered_commands == 0 and subscription.last_latency_seconds is not None:
            yield f"last latency {duration(subscription.last_latency_seconds)}"
        return
    at_most = "at most " if subscription.undelivered_at_most else ""
    commands = counted(subscription.undelivered_commands, "command")
    transactions = counted(subscription.undelivered_transactions or 0, "transaction")
    left = subscription.estimated_seconds
    about = "" if left is None else f" in about {duration(max(1, left))}"
    latency = "" if subscription.latency_seconds is None else f", waiting {duration(subscription.latency_seconds)}"
    yield f"{at_most}{transactions} ({commands}) to deliver{about}{latency}"


def _skipped(skipped: SkippedCommands) -> str:
    last = f", the last one {_place(skipped.last)}" if skipped.last is not None else ""
    return (
        f"[yellow]{counted(skipped.commands, 'command')} skipped (skip_errors)[/] in the last {skipped.within_hours} "
        f"hours{last}: `tranrepl validate FILE -s NAME` finds the rows that differ"
    )


def _failure(last: LastRun | None, error: LastError | None) -> Iterator[str]:
    """Yield what failed last, with its text unless it is healed."""
    if error is not None:
        what = " ".join(filter(None, ["last error", _place(error), "at", _time(error.time)]))
        over = "skipped" if error.skipped else "resolved"
        if error.acknowledged_at is not None:
            over = f"acknowledged by {escape(error.acknowledged_by or '')} at {_time(error.acknowledged_at)}"
        yield f"{what}: {over}" if error.healed else f"[red]{what}[/]: {escape(_text(error))}"
    if last is not None and last.failed and (error is None or last.comments not in error.message):
        comments = last.comments if error is None else with_short_key(last.comments, error)
        yield f"[red]last run failed[/]: {escape(comments)}"


def _text(error: LastError) -> str:
    return with_short_key("\n".join(filter(None, [error.message, error.remedy])), error)


def _place(error: LastError) -> str:
    parts = [error.number or "", f"in 0x{error.xact_seqno}" if error.xact_seqno else ""]
    parts += [f"command {error.command_id}" if error.command_id is not None else ""]
    parts += [f"article {escape(error.article)}" if error.article else ""]
    number, *rest = parts
    return " ".join(filter(None, [number, ", ".join(filter(None, rest))]))


def _red(text: str | None) -> Iterator[str]:
    if text is not None:
        first, end, others = text.partition("\n")
        yield f"[red]{escape(first)}[/]{end}{escape(others)}"


def _time(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def latency_lines(latency: MeasuredLatency) -> Iterator[str]:
    """Yield how long the last minutes' commands took, a line for each leg."""
    commands = counted(latency.commands, "command")
    heading = f"latency of {commands} in {latency.within_minutes} min, in seconds"
    yield f"{heading:<50}{'p50':>6}  {'p95':>6}  {'p99':>6}"
    for leg, it in latency.legs.items():
        yield f"  {leg.in_words:<48}{_seconds(it)}"
    if latency.clock_difference is not None:
        yield clocks(latency.clock_difference)


def clocks(difference: float) -> str:
    """Say how the clocks differ, to the millisecond."""
    if abs(difference) < 0.0005:
        return "The Publisher's and the distribution database's clocks show the same time."
    ahead = "ahead of" if difference > 0 else "behind"
    return (
        f"The Publisher's clock is {abs(difference):,.3f} s {ahead} the distribution database's; latencies are without "
        "it."
    )


def _seconds(quantiles: Quantiles) -> str:
    return "  ".join(f"{_in_two_digits(it):>6}" for it in (quantiles.p50, quantiles.p95, quantiles.p99))


def _in_two_digits(seconds: float) -> str:
    """Write as much of it as is known."""
    places = 1 - math.floor(math.log10(seconds))
    return f"{round(seconds, places):,.{max(0, places)}f}"
