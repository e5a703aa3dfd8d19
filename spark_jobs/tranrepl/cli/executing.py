"""The verb exec."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tranrepl.admin.exec_script import exec_script
from tranrepl.cli.app import app
from tranrepl.cli.arguments import File, load
from tranrepl.cli.output import failing_clearly, out, warn


@app.command(
    name="exec", epilog="Example: [bold]tranrepl exec dags/publications/shop.yaml --sql reporting_views.sql[/]"
)
def execute(
    file: File,
    sql: Annotated[Path, typer.Option("--sql", metavar="FILE.sql", help="The script, in UTF-8.", show_default=False)],
) -> None:
    """Run a script at each PostgreSQL Subscriber, at its place among the changes.

    Like SQL Server's sp_addscriptexec: for grants, indexes and views. It
    runs once at each, with the transaction's rows and the watermark, when
    the delivery comes to it. Subscribers of other databases pass over it.
    """
    with failing_clearly():
        written = exec_script(load(file), sql)
    warn([f"{it}: a script runs at PostgreSQL Subscribers only; not there" for it in written.passed_over_at])
    where = ", ".join(written.runs_at) or "no Subscriber"
    out.print(f"script {written.name} is in the Publisher's log; it runs at: {where}", highlight=False, markup=False)
