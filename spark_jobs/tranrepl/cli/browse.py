"""The verb browse."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from tranrepl.admin.browse import BrowsedCommand, Selection, browse as browse_commands
from tranrepl.cli.app import app
from tranrepl.cli.arguments import File, JsonOption, chosen, chosen_article, load
from tranrepl.cli.completion import complete_subscription
from tranrepl.cli.output import err, failing_clearly, out, print_json
from tranrepl.distributor.database import Batch, PublicationRecord
from tranrepl.errors import ConfigurationError
from tranrepl.model.commands import XACT_SEQNO_BYTES


@app.command(epilog="Example: [bold]tranrepl browse purchasing.yaml --article purchasing.vendor --limit 20[/]")
def browse(
    file: File,
    article: Annotated[
        str | None, typer.Option(metavar="TABLE", help="Only this article, by its source table.")
    ] = None,
    first: Annotated[
        str | None, typer.Option("--from", metavar="XACT_SEQNO", help="Begin with this transaction, hexadecimal.")
    ] = None,
    last: Annotated[
        str | None, typer.Option("--to", metavar="XACT_SEQNO", help="End with this transaction, hexadecimal.")
    ] = None,
    subscription: Annotated[
        str | None,
        typer.Option(
            "--subscription",
            "-s",
            metavar="NAME",
            help="Name procedures as this Subscriber has them.",
            show_default="the first",
            autocompletion=complete_subscription,
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="NUMBER", help="Show at most this many commands.")] = 100,
    as_json: JsonOption = False,
) -> None:
    """Show stored commands, as SQL Server's sp_browsereplcmds does."""
    with failing_clearly():
        topology = load(file)
        selection = Selection(_seqno(first), _seqno(last), article)
        chosen_article(topology.publication, article)
        shown = chosen(topology.publication, subscription)[0]
        with topology.distributor() as database:
            record = database.publications.get(topology.publication.publication)
            batches = database.batches.after(record, b"")
            articles = database.articles.by_id(record, shown)
            found = browse_commands(record, batches, articles, selection, topology.dialect(shown))
            commands = [command for command, _ in zip(found, range(limit), strict=False)]
        if not commands:
            err.print(escape(_why_none(file, record, batches)), highlight=False)
        _show_commands(commands, limit, as_json)


def _seqno(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        # Its leading zeros may be left out.
        return bytes.fromhex(text.removeprefix("0x").zfill(2 * XACT_SEQNO_BYTES))
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is no xact_seqno", remedy="allowed: hexadecimal digits, as in 0x0000…"
        ) from None


def _why_none(file: Path, record: PublicationRecord, batches: list[Batch]) -> str:
    """Say why no command is shown."""
    if batches:
        first, last = batches[0].first_xact_seqno.hex(), batches[-1].last_xact_seqno.hex()
        return f"no stored command is in this selection; commands of 0x{first} to 0x{last} are stored"
    if record.removed_xact_seqno is not None:
        removed = record.removed_xact_seqno.hex()
        return f"no commands are stored: no subscription needs those up to 0x{removed}, and clean-up has removed them"
    if record.registered_xact_seqno is None:
        return (
            f"no commands are stored yet: `tranrepl run {file}` stores changes that were committed after setup, and "
            "delivers them; the snapshot copies earlier rows, and stores no commands"
        )
    return "no commands are stored"


def _show_commands(commands: list[BrowsedCommand], limit: int, as_json: bool) -> None:
    if as_json:
        print_json([_command_fields(command) for command in commands])
        return
    # Not a table: a command must come out whole at any width, to be read, searched and copied.
    shown = None
    for command in commands:
        if command.xact_seqno != shown:
            shown = command.xact_seqno
            time = f"{command.commit_time:%Y-%m-%d %H:%M:%S}"
            out.print(f"[bold]0x{shown}[/]  [dim]{time} UTC[/]", highlight=False, soft_wrap=True)
        out.print(f"{command.command_id:>6}  {escape(command.command)}", highlight=False, soft_wrap=True)
    if len(commands) == limit:
        out.print(f"the first {limit} commands; --limit shows more, --from continues")


def _command_fields(command: BrowsedCommand) -> dict[str, Any]:
    return {
        "xact_seqno": command.xact_seqno,
        "command_id": command.command_id,
        "commit_time": command.commit_time.isoformat(),
        "article": command.article,
        "operation": command.operation,
        "command": command.command,
    }
