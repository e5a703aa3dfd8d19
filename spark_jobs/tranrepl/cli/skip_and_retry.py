"""Verbs of an administrator's way past a transaction, or back to one: skip, retry."""

from __future__ import annotations

from typing import Annotated

import typer

from tranrepl.admin.skip_and_retry import parse_xact_seqno, retry_from_transaction, skip_transaction
from tranrepl.cli.app import app
from tranrepl.cli.arguments import File, SubscriptionName, load
from tranrepl.cli.output import failing_clearly, out


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
