"""The verbs of `tranrepl`, from the command itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

import typer
from rich.text import Text
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from reference_pages.markdown import item, paragraph
from tranrepl.cli.verbs import app

_MORE: Mapping[str, str] = {
    "init": "[Install into an Airflow that is there](../how-to/install.md)",
    "check": "[`tranrepl check`](check.md)",
    "setup": "[Rights](rights.md)",
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
    "exec": "[Run a script](../how-to/run-a-script.md)",
    "metrics": "[Metrics](../how-to/metrics.md)",
    "teardown": "[Remove a publication](../how-to/remove-a-publication.md)",
    "alert": "[Alerts](../how-to/alerts.md#try-them)",
    "schema": "[Settings](settings.md)",
}
"""Pages that say more of a verb."""


def command_line() -> str:
    """Return the parameters of several verbs, then a section for each verb, in the order of the help."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    verbs = {name: group.commands[name] for name in group.list_commands(typer.Context(group))}
    shown = {name: it for name, it in verbs.items() if isinstance(it, TyperCommand) and not it.hidden}
    counted = Counter(_parameter(it) for verb in shown.values() for it in verb.params)
    common = [it for it, count in counted.items() if count > 2]
    sections = [part for name, verb in shown.items() for part in _verb(name, verb, common)]
    return "\n\n".join(["\n".join(map(item, common)), *sections])


def _verb(name: str, verb: TyperCommand, common: Collection[str]) -> Iterator[str]:
    yield f"## {name}"
    yield paragraph(f"`{' '.join(_usage(name, verb))}`")
    yield from (paragraph(it) for it in (verb.help or "").split("\n\n"))
    own = [it for it in map(_parameter, verb.params) if it not in common]
    if own:
        yield "\n".join(map(item, own))
    facts = []
    if verb.epilog:
        facts.append(f"Example: `{Text.from_markup(verb.epilog.removeprefix('Example: ')).plain}`.")
    if name in _MORE:
        facts.append(f"More: {_MORE[name]}.")
    if facts:
        yield paragraph(" ".join(facts))


def _usage(name: str, verb: TyperCommand) -> Iterator[str]:
    yield f"tranrepl {name}"
    for it in verb.params:
        if isinstance(it, TyperArgument):
            yield f"{it.metavar}{'…' if it.nargs != 1 else ''}"
        elif isinstance(it, TyperOption):
            words = it.opts[0] if it.is_flag else f"{it.opts[0]} {it.metavar}"
            yield words if it.required else f"[{words}]"


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
