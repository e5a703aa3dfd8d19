"""The command `tranrepl`: its name, its help, and the order of its verbs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from typer.core import TyperGroup

from tranrepl import __version__

_ORDER = (
    "init",
    "check",
    "setup",
    "script",
    "class-archive",
    "log-reader",
    "distribute",
    "run",
    "snapshot",
    "skip",
    "retry",
    "browse",
    "status",
    "metrics",
    "cleanup",
    "validate",
    "reinitialize",
    "sequences",
    "exec",
    "trace",
    "alert",
    "teardown",
    "schema",
)
"""Order of the verbs in the help: as a new user needs them."""


class _Verbs(TyperGroup):
    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Return the commands' names in the order of the help."""
        return sorted(super().list_commands(ctx), key=_ORDER.index)


app = typer.Typer(
    name="tranrepl",
    cls=_Verbs,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Transactional replication in SQL Server's model, moved by Spark.",
    epilog="Connections are read from AIRFLOW_CONN_<ID>, as in "
    "AIRFLOW_CONN_PUBLISHER=postgres://user:password@host:5432/database",
)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        sys.stdout.write(f"tranrepl {__version__}\n")
        raise typer.Exit
