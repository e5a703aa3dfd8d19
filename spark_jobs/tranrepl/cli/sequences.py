"""The verb sequences."""

from __future__ import annotations

import typer

from tranrepl.admin.sequences import set_sequences
from tranrepl.cli.app import app
from tranrepl.cli.arguments import File, SubscriptionOption, chosen, load
from tranrepl.cli.output import failing_clearly, out, warn
from tranrepl.topology import Topology


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
        f"an INSERT there must give its value; to give it one, run there: {it.statement}; then again: "
        "`tranrepl sequences FILE`"
        for it in done.without
    ]
    warn([*done.refused, *missing])
    return not done.refused and not missing
