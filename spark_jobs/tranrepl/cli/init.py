"""The verb init."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from tranrepl.admin.first_files import write_first_files
from tranrepl.cli.app import app
from tranrepl.cli.output import failing_clearly, out


@app.command(epilog="Example: [bold]tranrepl init ~/airflow/dags --publication shop[/]")
def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Airflow's folder of DAGs.", show_default=False)],
    publication: Annotated[str, typer.Option(metavar="NAME", help="The publication's name.")] = "shop",
    store: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Where commands are stored.", show_default="a folder in your home"),
    ] = None,
) -> None:
    """Write a DAG file and a commented publication into Airflow's folder.

    They are replication.py and publications/NAME.yaml. Nothing is overwritten.
    """
    with failing_clearly():
        where = store or str(Path.home() / "tranrepl" / publication)
        written = write_first_files(
            folder, publication, where, lambda done: out.print(f"  {escape(done)}", highlight=False)
        )
        out.print(
            f"Write your tables and connections there, then: tranrepl check {escape(str(written))}", highlight=False
        )
