"""Verbs of an administrator: skip, retry, alert, cleanup, exec, sequences."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from tranrepl.admin.alert_trials import try_alerts
from tranrepl.admin.cleanup import clean_up
from tranrepl.admin.exec_script import exec_script
from tranrepl.admin.sequences import set_sequences
from tranrepl.admin.skip_and_retry import parse_xact_seqno, retry_from_transaction, skip_transaction
from tranrepl.cli.app import app
from tranrepl.cli.arguments import File, JsonOption, SubscriptionName, SubscriptionOption, chosen, load
from tranrepl.cli.output import err, failing_clearly, out, print_error, print_json, warn
from tranrepl.printable import counted
from tranrepl.settings.loading import load_publication
from tranrepl.topology import Topology


@app.command(epilog="Example: [bold]tranrepl skip purchasing.yaml -s reporting --xact-seqno 0x00000000018a4c10[/]")
def skip(
    file: File,
    subscription: SubscriptionName,
    xact_seqno: Annotated[
        str,
        typer.Option(metavar="XACT_SEQNO", help="The transaction that is next, hexadecimal.", show_default=False),
    ],
) -> None:
    """Skip the next transaction of a subscription.

    Like SQL Server's sp_setsubscriptionxactseqno, but it skips this one
    transaction and no other. The history records it.
    """
    with failing_clearly():
        topology = load(file)
        seqno = parse_xact_seqno(xact_seqno)
        out.print(skip_transaction(topology, subscription, seqno), highlight=False)


@app.command(
    epilog="Example: [bold]tranrepl retry purchasing.yaml -s reporting --from-xact-seqno 0x00000000018a4c10[/]"
)
def retry(
    file: File,
    subscription: SubscriptionName,
    from_xact_seqno: Annotated[
        str, typer.Option(metavar="XACT_SEQNO", help="The transaction to begin with, hexadecimal.", show_default=False)
    ],
) -> None:
    """Let the next delivery begin with an earlier transaction.

    For a Subscriber whose rows were put back by hand. A restored database
    needs no retry: its watermark came back with it.
    """
    with failing_clearly():
        topology = load(file)
        seqno = parse_xact_seqno(from_xact_seqno)
        out.print(retry_from_transaction(topology, subscription, seqno), highlight=False)


@app.command(epilog="Example: [bold]tranrepl alert dags/publications/shop.yaml --test[/]")
def alert(
    file: File,
    test: Annotated[bool, typer.Option("--test", help="Send one test alert through each notifier.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Try the notifiers of `alerts`, where Airflow is installed.

    Without --test no alert is sent: a webhook is asked by HEAD, a mail server
    to log in. Ends with exit status 1 where a notifier fails.
    """
    with failing_clearly():
        publication = load_publication(file)
        with err.status("alert notifiers"):
            trials = try_alerts(publication, send=test)
        if as_json:
            print_json([it.model_dump() for it in trials])
        else:
            for it in trials:
                colour = "red" if it.failed else "green"
                out.print(f"[{colour}]{escape(it.notifier)}[/]: {escape(it.said)}", highlight=False)
            if not trials:
                out.print(f"{publication.publication} has no alerts")
        if any(it.failed for it in trials):
            raise typer.Exit(1)


@app.command(epilog="Example: [bold]tranrepl cleanup dags/publications/purchasing.yaml[/]")
def cleanup(file: File, as_json: JsonOption = False) -> None:
    """Remove stored commands that every Subscriber has, and old history.

    Small batches are put together. A subscription with a command older than
    max_distretention is deactivated.
    """
    with failing_clearly():
        topology = load(file)
        done = clean_up(topology)
        if as_json:
            print_json(done.model_dump(mode="json"))
            return
        for name, why in done.unreachable.items():
            err.print(
                f"[yellow]warning[/]: commands that {name} may still need are kept: {escape(why)}", highlight=False
            )
        for error in done.deactivated.values():
            print_error(error.to_exception())
        removed = [
            counted(done.batches, "batch", "batches"),
            counted(done.commands, "command"),
            counted(done.history_rows, "history row"),
            counted(done.tracer_tokens, "tracer token"),
            counted(done.orphan_folders, "orphan folder"),
        ]
        name = topology.publication.publication
        out.print(f"{name}: removed {', '.join(removed)}")
        if done.merged_batches:
            out.print(f"{name}: put {counted(done.merged_batches, 'small batch', 'small batches')} together")


@app.command(
    name="exec", epilog="Example: [bold]tranrepl exec dags/publications/shop.yaml --sql reporting_views.sql[/]"
)
def execute(
    file: File,
    sql: Annotated[Path, typer.Option("--sql", metavar="FILE.sql", help="The script, in UTF-8.", show_default=False)],
) -> None:
    """Run a script at each PostgreSQL Subscriber, at its place among the changes.

    Like SQL Server's sp_addscriptexec: for grants, indexes and views. It
    runs once at each, with the transaction's rows and the watermark, when
    the delivery comes to it. Subscribers of other databases do not run it.
    """
    with failing_clearly():
        written = exec_script(load(file), sql)
    warn([f"not run at {it}: only PostgreSQL Subscribers run scripts" for it in written.not_run_at])
    where = ", ".join(written.runs_at) or "no Subscriber"
    out.print(f"script {written.name} is in the Publisher's log; it runs at: {where}", highlight=False, markup=False)


@app.command(epilog="Example: [bold]tranrepl sequences dags/publications/shop.yaml[/]")
def sequences(file: File, subscription: SubscriptionOption = None) -> None:
    """Set the Subscribers' sequences to the Publisher's, for a cut-over.

    Identity columns' too, and never backwards. Ends with exit status
    1 where one could not be set, or a column has none at a Subscriber.
    """
    with failing_clearly():
        topology = load(file)
        complete = [_set(topology, name) for name in chosen(topology.publication, subscription)]
    if not all(complete):
        raise typer.Exit(1)


def _set(topology: Topology, subscription: str) -> bool:
    """Set those of one Subscriber and say so. Return whether nothing is left to do there."""
    done = set_sequences(topology, subscription)
    if done is None:
        title = topology.dialect(subscription).capabilities.title
        out.print(f"{subscription}: {title} has no sequences that can be set", highlight=False)
        return True
    for name, state in done.set.items():
        out.print(f"{subscription}: set sequence {name} to {state.last_value}", highlight=False, markup=False)
    if not done.set:
        out.print(f"{subscription}: no sequence is behind", highlight=False)
    missing = [
        f"{subscription}: column {it.name} of {it.table} has a sequence at the Publisher and none at the Subscriber: "
        f"an INSERT at the Subscriber must give the value. To make the sequence, run there: {it.statement}; "
        "then `tranrepl sequences FILE`"
        for it in done.without
    ]
    warn([*done.refused, *missing])
    return not done.refused and not missing
