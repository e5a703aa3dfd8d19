"""The verb cleanup."""

from __future__ import annotations

from rich.markup import escape

from tranrepl.admin.cleanup import clean_up
from tranrepl.cli.app import app
from tranrepl.cli.arguments import File, JsonOption, load
from tranrepl.cli.output import counted, err, failing_clearly, out, print_error, print_json


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
            err.print(f"[yellow]warning[/]: {name} keeps what it may need: {escape(why)}", highlight=False)
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
