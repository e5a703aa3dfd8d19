"""The command `tranrepl`: its name, its help, and the order of its verbs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from tranrepl import __version__

_GROUPS = {
    "Set up": ("init", "check", "setup", "script", "class-archive", "schema"),
    "Run": ("run", "log-reader", "distribute", "snapshot", "exec"),
    "Look": ("status", "browse", "validate", "trace", "metrics", "alert"),
    "Mend": ("skip", "retry", "reinitialize", "sequences"),
    "Remove": ("cleanup", "teardown"),
}
"""The verbs by what they are for, in the order of the help."""

_ORDER = [name for names in _GROUPS.values() for name in names]


class _Verbs(TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for group, names in _GROUPS.items():
            for name in names:
                verb = self.commands[name]
                if isinstance(verb, TyperCommand):
                    verb.rich_help_panel = group

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Return the commands' names in the order of the help."""
        return sorted(super().list_commands(ctx), key=_ORDER.index)

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]
        """Return a command whose help shows no types of Python, and what must be given in its first line."""
        verb = super().get_command(ctx, cmd_name)
        if verb is not None:
            _hide_types(verb.get_params(ctx))
            verb.collect_usage_pieces = partial(_usage, verb.params)  # type: ignore[method-assign]
        return verb

    def get_params(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Return the options, whose help shows no types of Python."""
        return _hide_types(super().get_params(ctx))


def _hide_types(params: Sequence[object]) -> Sequence[object]:
    """Let the help of these show no type where it says nothing: a flag has none, and an argument has its name."""
    for it in params:
        if isinstance(it, TyperArgument) or (isinstance(it, TyperOption) and it.is_flag):
            it.display_type_rich = _no_type  # type: ignore[method-assign]
    return params


def _usage(params: Sequence[object], ctx: object) -> list[str]:  # noqa: ARG001 - typer's signature
    """Return what a verb must be given, as it is typed; typer would put braces around an argument, and leave out an
    option that is required."""
    arguments = [f"{it.metavar}{'...' if it.nargs != 1 else ''}" for it in params if isinstance(it, TyperArgument)]
    options = [it for it in params if isinstance(it, TyperOption)]
    required = [f"{it.opts[0]} {it.metavar}" for it in options if it.required]
    given = [*arguments, *required]
    return [*given, "[OPTIONS]"] if len(options) > len(required) or not given else given


def _no_type(ctx: object) -> None:  # noqa: ARG001 - typer's signature
    return None


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
