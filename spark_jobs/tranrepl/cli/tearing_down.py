"""The verb teardown."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.markup import escape

from tranrepl.admin.teardown import Teardown, plan_teardown, tear_down
from tranrepl.cli.app import app
from tranrepl.cli.arguments import File, load
from tranrepl.cli.output import err, failing_clearly, out, warn
from tranrepl.errors import ConfigurationError
from tranrepl.settings.publication import Publication


@app.command(epilog="Example: [bold]tranrepl teardown dags/publications/purchasing.yaml --dry-run[/]")
def teardown(
    file: File,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; for scripts.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    leave: Annotated[
        list[str] | None,
        typer.Option(metavar="SUBSCRIPTION", help="Do not touch the Subscriber of this subscription: it is gone."),
    ] = None,
) -> None:
    """Remove what setup created, after asking.

    That is the slot, the PostgreSQL publication, generated procedures,
    registration, stored commands and pools; replica identities become what
    they were. Your tables and rows stay, and so does every procedure that you
    wrote or edited. An interrupted teardown is finished by running it again.
    """
    with failing_clearly():
        topology = load(file)
        publication = topology.publication
        _refuse_unknown(publication, leave or [])
        with err.status("looking at every place"):
            found = plan_teardown(topology, leave or [])
        warn(list(found.warnings))
        _show(found)
        if found.is_empty:
            out.print(f"{publication.publication}: nothing to remove")
            return
        if dry_run:
            out.print(f"{publication.publication}: nothing was removed (--dry-run)")
            return
        if not yes:
            _ask()
        tear_down(found, lambda what: out.print(f"  removed {escape(what)}", highlight=False))
        out.print(
            f"{publication.publication}: [green]removed[/]; {escape(str(file))} is yours to delete", highlight=False
        )


def _refuse_unknown(publication: Publication, leave: list[str]) -> None:
    for name in leave:
        publication.subscription(name)


def _show(found: Teardown) -> None:
    for part in found.parts:
        if part.removed or part.stays:
            out.print(f"[bold]{escape(part.where)}[/]", highlight=False)
        for what in part.removed:
            out.print(f"  remove {escape(what)}", highlight=False)
        for what in part.stays:
            out.print(f"  [yellow]leave[/] {escape(what)}", highlight=False)


def _ask() -> None:
    """Ask whether to remove it. Raises ConfigurationError where nobody can answer; exits with status 1 where the answer
    is no."""
    if not sys.stdin.isatty():
        raise ConfigurationError(
            "nothing was removed: there is no terminal to ask in", remedy="--yes removes without asking"
        )
    if not typer.confirm("Remove all this?", default=False):
        out.print("nothing was removed")
        raise typer.Exit(1)
