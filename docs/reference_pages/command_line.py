"""The verbs of `tranrepl`, from the command itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import typer
from rich.text import Text
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from reference_pages.markdown import item, paragraph
from tranrepl.cli.verbs import app

_MORE: Mapping[str, str] = {
    "init": "[Install into an Airflow that is there](../how-to/install.md)",
    "check": "[`tranrepl check`](check.md)",
    "setup": "[Security](../how-to/security.md)",
    "script": "[Propagation](../explanation/propagation.md)",
    "class-archive": "[Start-up](../performance/results.md#start-up)",
    "run": "[Continuous agents](../how-to/continuous-agents.md#at-a-shell)",
    "snapshot": "[Snapshot](../how-to/snapshot.md)",
    "distribute": "[Bulk and serial](../explanation/bulk-and-serial.md)",
    "skip": "[A batch failed](../how-to/a-batch-failed.md)",
    "retry": "[Restore a database](../how-to/restore.md)",
    "browse": "[Propagation](../explanation/propagation.md)",
    "status": "[`tranrepl status`](status.md)",
    "cleanup": "[Retention](../explanation/architecture.md#retention)",
    "validate": "[Validate](../how-to/validate.md)",
    "reinitialize": "[Snapshot](../how-to/snapshot.md#reinitialize), [Restore a database](../how-to/restore.md)",
    "sequences": "[Move to the Subscriber](../how-to/move-to-the-subscriber.md)",
    "exec": "[Scripts](../how-to/schema-changes.md#scripts)",
    "metrics": "[Metrics](../how-to/metrics.md)",
    "teardown": "[Remove a publication](../how-to/remove-a-publication.md)",
    "alert": "[Alerts](../how-to/alerts.md#try-them)",
    "schema": "[Settings](settings.md)",
}
"""Pages that say more of a verb."""


def command_line() -> str:
    """Return a section for each verb, in the order of the help."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    parts: list[str] = []
    for name in group.list_commands(typer.Context(group)):
        verb = group.commands[name]
        assert isinstance(verb, TyperCommand)
        if not verb.hidden:
            parts.extend(_verb(name, verb))
    return "\n\n".join(parts)


def _verb(name: str, verb: TyperCommand) -> Iterator[str]:
    yield f"## {name}"
    yield f"`{' '.join(_usage(name, verb))}`"
    yield from (paragraph(it) for it in (verb.help or "").split("\n\n"))
    if verb.params:
        yield "\n".join(item(_parameter(it)) for it in verb.params)
    if verb.epilog:
        example = Text.from_markup(verb.epilog.removeprefix("Example: ")).plain
        yield f"Example: `{example}`"
    if name in _MORE:
        yield f"More: {_MORE[name]}."


def _usage(name: str, verb: TyperCommand) -> Iterator[str]:
    yield f"tranrepl {name}"
    for it in verb.params:
        if isinstance(it, TyperArgument):
            yield f"{it.metavar}{'…' if it.nargs != 1 else ''}"
        elif isinstance(it, TyperOption) and it.required:
            yield f"{it.opts[0]} {it.metavar}"
    if any(isinstance(it, TyperOption) and not it.required for it in verb.params):
        yield "[OPTIONS]"


def _parameter(it: object) -> str:
    if isinstance(it, TyperArgument):
        return f"`{it.metavar}`: {it.help}"
    assert isinstance(it, TyperOption)
    value = "" if it.is_flag else f" {it.metavar}"
    names = ", ".join(f"`{name}{value}`" for name in it.opts)
    facts = [] if it.is_flag else list(_facts(it))
    return f"{names}: {' '.join([it.help or '', *facts])}"


def _facts(it: TyperOption) -> Iterator[str]:
    if it.required:
        yield "Required."
    elif it.default is not None:
        yield f"Default: `{it.default}`."
    if it.envvar:
        yield f"Environment variable: `{it.envvar}`."
