"""The verb status."""

from __future__ import annotations

from datetime import UTC

from rich.box import SIMPLE_HEAD
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from tranrepl.cli.app import app
from tranrepl.cli.arguments import File, JsonOption, load
from tranrepl.cli.output import counted, failing_clearly, out, print_json
from tranrepl.status import LastRun, LogReaderStatus, PublicationStatus, SubscriptionStatus
from tranrepl.status import status as publication_status


@app.command(epilog="Example: [bold]tranrepl status dags/publications/purchasing.yaml --json[/]")
def status(file: File, as_json: JsonOption = False) -> None:
    """Show where the log reader and every subscription stand."""
    with failing_clearly():
        publication, connections = load(file)
        current = publication_status(publication, connections)
        if as_json:
            print_json(current.model_dump(mode="json"))
            return
        _show_status(current)


def _show_status(current: PublicationStatus) -> None:
    """Narrow enough for 80 columns: a watermark that is cut cannot be copied. Why a run failed stands below."""
    reader = current.log_reader
    table = Table("agent", "last run", "at (UTC)", title=current.publication, box=SIMPLE_HEAD, pad_edge=False)
    table.title_justify = "left"
    table.add_column("stands at", no_wrap=True)
    table.add_column("behind")
    seqno = reader.registered_xact_seqno
    table.add_row("log reader", *_run_state(reader.last_run), f"0x{seqno}" if seqno else "", _behind(reader))
    for subscription in current.subscriptions:
        table.add_row(
            subscription.subscription,
            *_run_state(subscription.last_run),
            f"0x{subscription.watermark}",
            counted(subscription.undelivered_commands, "command"),
        )
    out.print(table)
    if reader.waits_for is not None:
        out.print(f"[yellow]log reader[/]: {escape(reader.waits_for)}", highlight=False, soft_wrap=True)
    if reader.problem is not None:
        out.print(f"[red]log reader[/]: {escape(reader.problem)}", highlight=False, soft_wrap=True)
    for subscription in current.subscriptions:
        out.print(f"{subscription.subscription}: {_standing(subscription)}", highlight=False, soft_wrap=True)
    for subscription in current.subscriptions:
        last = subscription.last_run
        if last is not None and last.status == "in_progress" and subscription.waiting_articles:
            out.print(escape(last.comments), highlight=False, soft_wrap=True)
    runs = {"log reader": reader.last_run, **{it.subscription: it.last_run for it in current.subscriptions}}
    for agent, last in runs.items():
        if last is not None and last.status in ("fail", "retry"):
            out.print(f"[red]{agent}[/]: {escape(last.comments)}", highlight=False, soft_wrap=True)


def _standing(subscription: SubscriptionStatus) -> str:
    said: list[str] = [subscription.state]
    if subscription.waiting_articles:
        said.append(f"waits for the snapshot of {', '.join(subscription.waiting_articles)}")
    said += [f"stopped for article {article}: {why}" for article, why in subscription.stopped_articles.items()]
    if subscription.undelivered_commands:
        transactions = counted(subscription.undelivered_transactions, "transaction")
        said.append(f"{transactions} to deliver in about {counted(subscription.estimated_seconds, 'second')}")
    if subscription.latency_seconds is not None:
        said.append(f"latency {subscription.latency_seconds:,.1f} s")
    if subscription.last_error is not None:
        error = subscription.last_error
        number = f" {error.number}" if error.number else ""
        said.append(f"last error{number} at {error.time.astimezone(UTC):%Y-%m-%d %H:%M:%S}")
    return ", ".join(said)


def _behind(reader: LogReaderStatus) -> str:
    if reader.unread_log_bytes is None:
        return "[red]no slot[/]"
    state = "" if reader.slot == "ready" else f", slot {reader.slot}"
    return f"{decimal(reader.unread_log_bytes)} of log{state}"


def _run_state(last: LastRun | None) -> tuple[str, str]:
    if last is None:
        return "never", ""
    status = f"[red]{last.status}[/]" if last.status in ("fail", "retry") else last.status
    return status, f"{last.time.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
