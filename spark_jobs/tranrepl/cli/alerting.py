"""The verb alert."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from tranrepl.admin.alert_trials import try_alerts
from tranrepl.cli.app import app
from tranrepl.cli.arguments import File, JsonOption
from tranrepl.cli.output import err, failing_clearly, out, print_json
from tranrepl.settings.loading import load_publication


@app.command(epilog="Example: [bold]tranrepl alert dags/publications/shop.yaml --test[/]")
def alert(
    file: File,
    test: Annotated[bool, typer.Option("--test", help="Send one test alert through each notifier.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Try the notifiers of `alerts`, where Airflow is installed.

    Without --test no alert is sent: a webhook is asked by HEAD, a mail server
    to log in. Ends with exit status 1 where a notifier fails.
    """
    with failing_clearly():
        publication = load_publication(file)
        with err.status("alert notifiers"):
            trials = try_alerts(publication, send=test)
        if as_json:
            print_json([it.model_dump() for it in trials])
        else:
            for it in trials:
                colour = "red" if it.failed else "green"
                out.print(f"[{colour}]{escape(it.notifier)}[/]: {escape(it.said)}", highlight=False)
            if not trials:
                out.print(f"{publication.publication} has no alerts")
        if any(it.failed for it in trials):
            raise typer.Exit(1)
