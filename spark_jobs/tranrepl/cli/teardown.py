"""The verb teardown."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from tranrepl.admin.publication_ends import Left, PublicationEnds, ends_of, find_ends
from tranrepl.admin.teardown import APPLICATION, Teardown, plan_teardown_at, tear_down
from tranrepl.cli.app import app
from tranrepl.cli.arguments import load
from tranrepl.cli.completion import complete_file
from tranrepl.cli.output import err, failing_clearly, out, remember_optional_file, warn
from tranrepl.connections import from_environment, in_environment
from tranrepl.errors import ConfigurationError


@app.command(epilog="Example: [bold]tranrepl teardown dags/publications/purchasing.yaml --dry-run[/]")
def teardown(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="The publication's settings, a YAML file. Without it: --publication and --distributor.",
            show_default=False,
            autocompletion=complete_file,
            callback=remember_optional_file,
        ),
    ] = None,
    publication: Annotated[
        str | None, typer.Option(metavar="NAME", help="The publication, where its file is gone.")
    ] = None,
    distributor: Annotated[
        str | None,
        typer.Option(
            metavar="CONNECTION",
            help="Its distribution database. The other ends are found among the connections AIRFLOW_CONN_….",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; for scripts.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    leave: Annotated[
        list[str] | None,
        typer.Option(metavar="SUBSCRIPTION", help="Do not touch the Subscriber of this subscription: it is gone."),
    ] = None,
    leave_publisher: Annotated[
        bool, typer.Option("--leave-publisher", help="Do not touch the Publisher: it is gone.")
    ] = False,
) -> None:
    """Remove what setup created, after asking.

    That is the slot, the PostgreSQL publication, generated procedures,
    registration, stored commands and pools; replica identities become what
    they were. Your tables and rows stay, and so does every procedure that you
    wrote or edited. An interrupted teardown is finished by running it again.
    """
    with failing_clearly():
        left = Left(leave_publisher, frozenset(leave or []))
        name, ends = _ends(file, publication, distributor, left)
        with err.status("checking every server"):
            found = plan_teardown_at(ends(), left)
        warn(list(found.warnings))
        _show(found)
        if found.is_empty:
            out.print(f"{name}: nothing to remove")
            return
        if dry_run:
            out.print(f"{name}: nothing was removed (--dry-run)")
            return
        if not yes:
            _ask()
        tear_down(found, lambda what: out.print(f"  removed {escape(what)}", highlight=False))
        deleted = f"; {escape(str(file))} is yours to delete" if file else ""
        out.print(f"{name}: [green]removed[/]{deleted}", highlight=False)


def _ends(
    file: Path | None, publication: str | None, distributor: str | None, left: Left
) -> tuple[str, Callable[[], PublicationEnds]]:
    """Return the publication's name, and what finds its ends. Raises ConfigurationError where it is not said which
    publication."""
    if file is not None and publication is None and distributor is None:
        topology = load(file)
        for name in sorted(left.subscribers):
            topology.publication.subscription(name)
        return topology.publication.publication, lambda: ends_of(topology, left)
    if file is not None or publication is None or distributor is None:
        raise ConfigurationError(
            "which publication?",
            remedy="give its file, or, where that is gone, --publication NAME --distributor CONNECTION",
        )
    database = from_environment(distributor)
    connections, unreadable = in_environment()
    warn([it.message for it in unreadable])
    return publication, lambda: find_ends(publication, database, connections, left, APPLICATION)


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
