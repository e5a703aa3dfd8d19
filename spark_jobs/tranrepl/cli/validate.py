"""The verb validate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from tranrepl.cli.app import app
from tranrepl.cli.arguments import ArticleOption, File, JsonOption, MasterOption, SubscriptionOption, chosen, load
from tranrepl.cli.output import err, failing_clearly, out, print_json
from tranrepl.cli.results import raise_first
from tranrepl.errors import ConfigurationError
from tranrepl.jobs.requests import Repair, ValidationRequest
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.retry import attempt, attempt_repeatedly
from tranrepl.jobs.validation_report import COUNTS_EQUAL, ArticleValidation
from tranrepl.printable import counted
from tranrepl.spark.shell_submit import submit


@app.command(epilog="Example: [bold]tranrepl validate dags/publications/purchasing.yaml -s reporting[/]")
def validate(
    file: File,
    subscription: SubscriptionOption = None,
    article: ArticleOption = None,
    rowcount_only: Annotated[
        bool, typer.Option("--rowcount-only", help="Compare the numbers of rows, not their contents.")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Correct the Subscriber's rows that differ, in one transaction.")
    ] = False,
    repair_script: Annotated[
        Path | None,
        typer.Option(
            metavar="OUT.sql", help="Write statements that correct the rows into this file.", show_default=False
        ),
    ] = None,
    master: MasterOption = "local[*]",
    as_json: JsonOption = False,
) -> None:
    """Compare the Subscribers' rows with the Publisher's.

    Both are compared as of one transaction, while writes go on; for that the
    log is read and delivered up to it. Exit status 1 means that rows differ
    and were not repaired.
    """
    with failing_clearly():
        publication = load(file).publication
        how = _repair_of(repair, repair_script, rowcount_only)
        script = _new_script(repair_script)
        results = {}
        for name in chosen(publication, subscription):
            request = ValidationRequest(
                publication=publication,
                subscription=name,
                articles=() if article is None else (article,),
                rowcount_only=rowcount_only,
                repair=how,
                repair_script=script,
            )
            results[name] = _validate(request, master)
        if as_json:
            print_json({name: result.without_command().model_dump(mode="json") for name, result in results.items()})
        else:
            for name, result in results.items():
                _show_validation(name, result)
        raise_first(results)


def _validate(request: ValidationRequest, master: str) -> JobResult:
    with err.status(f"validating {request.subscription}"):
        # What a try has written of a script stays: the next one would write it again.
        run = attempt if request.repair is Repair.SCRIPT else attempt_repeatedly
        return run(lambda: submit(request, master))


def _repair_of(repair: bool, repair_script: Path | None, rowcount_only: bool) -> Repair:
    if repair and repair_script is not None:
        raise ConfigurationError("--repair and --repair-script", remedy="allowed: one of them")
    if rowcount_only and (repair or repair_script is not None):
        raise ConfigurationError("--rowcount-only does not find which rows differ", remedy="leave it out to repair")
    if repair_script is not None:
        return Repair.SCRIPT
    return Repair.APPLY if repair else Repair.NONE


def _new_script(path: Path | None) -> Path | None:
    """Return the absolute path of a script that does not exist yet: each subscription's job appends to it."""
    if path is None:
        return None
    if path.exists():
        raise ConfigurationError(f"--repair-script: {path} exists", remedy="name a new file, or remove it")
    return path.absolute()


_MOST_SHOWN = 20


def _show_validation(name: str, result: JobResult) -> None:
    for notice in result.notices:
        err.print(f"[yellow]warning[/]: {name}: {escape(notice)}", highlight=False)
    if result.validation is None:
        return
    table = Table("article", title=f"{name}, at 0x{result.validation.xact_seqno}", box=SIMPLE_HEAD, pad_edge=False)
    table.title_justify = "left"
    counted_only = result.validation.rowcount_only
    # Where contents are not compared, nobody knows what is missing, extra or different.
    for heading in ("rows",) if counted_only else ("rows", "missing", "extra", "different"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for it in result.validation.articles:
        counts = [f"{it.missing:,}", f"{it.extra:,}", f"{it.different:,}"]
        verdict = _verdict(it, counted_only=counted_only)
        table.add_row(it.article, f"{it.publisher_rows:,}", *([] if counted_only else counts), verdict)
    out.print(table)
    for line in result.validation.in_few_lines("--json names them"):
        out.print(escape(line), highlight=False, style="dim")
    for it in result.validation.unequal:
        for row in it.rows[:_MOST_SHOWN]:
            out.print(f"  {escape(f'{it.article} {row.in_words()}')}", highlight=False, soft_wrap=True)
        if it.differences > _MOST_SHOWN:
            out.print(f"  {it.article}: {it.differences - _MOST_SHOWN:,} more; --json names them", highlight=False)


def _verdict(validated: ArticleValidation, *, counted_only: bool) -> str:
    if validated.equal:
        return COUNTS_EQUAL if counted_only else "[green]equal[/]"
    if validated.repaired is not None:
        return f"[yellow]{counted(validated.repaired, 'row')} repaired[/]"
    reason = f", not repaired: {escape(validated.not_repaired)}" if validated.not_repaired else ""
    rows = f" ({validated.subscriber_rows:,} at the Subscriber)" if not validated.differences else ""
    return f"[red]differs[/]{rows}{reason}"
