"""Verbs before the first run: init, check, setup, script, class-archive, schema."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from tranrepl.admin.alert_trials import AlertTrial, try_alerts
from tranrepl.admin.check import Checked, check_publisher, in_numbers
from tranrepl.admin.first_files import write_first_files
from tranrepl.admin.joining_tables import no_tables_joining
from tranrepl.admin.setup import set_up
from tranrepl.cli.app import app
from tranrepl.cli.arguments import File, JsonOption, SubscriptionOption, checked_publication, chosen, load
from tranrepl.cli.output import (
    err,
    fail_on,
    failing_clearly,
    out,
    print_error,
    print_json,
    warn,
    with_names,
    write_out,
)
from tranrepl.errors import ConfigurationError, CustomProcedureError, ReplicationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import TableDescription
from tranrepl.printable import counted, one_line
from tranrepl.settings.publication import Publication, json_schema
from tranrepl.settings.registration import PublishedTables, registered_article, tables_at
from tranrepl.spark.class_archive import make_archive
from tranrepl.subscriber.procedure_names import Scripted
from tranrepl.subscriber.registry import SCRIPTED_KINDS, Script, script_of
from tranrepl.topology import Topology


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


@app.command(epilog="Example: [bold]tranrepl check dags/publications/purchasing.yaml[/]")
def check(file: File, as_json: JsonOption = False) -> None:
    """Report what would keep the publication from running; change nothing.

    Looks at the file, connections, rights, tables, the store and Spark.
    """
    with failing_clearly():
        topology = load(file)
        publication = topology.publication
        checked = checked_publication(topology)
        not_checked: list[str] = []
        alerts = tried_alerts(publication, not_checked)
        checked.warnings.extend(str(it) for it in alerts if it.failed)
        if as_json:
            print_json(
                {
                    "problems": [problem.report.model_dump() for problem in checked.problems],
                    "warnings": checked.warnings,
                    "not_checked": not_checked,
                    "alerts": [it.model_dump() for it in alerts],
                }
            )
            raise typer.Exit(1 if checked.problems else 0)
        warn(checked.warnings)
        for problem in checked.problems:
            print_error(problem, checked=True)
        console, colour = (err, "red") if checked.problems else (out, "green")
        console.print(
            f"{publication.publication}: {counted(len(checked.publication.articles), 'article')}, "
            f"{counted(len(publication.subscriptions), 'subscription')}: "
            f"[{colour}]{in_numbers(len(checked.problems), len(checked.warnings))}[/]",
            highlight=False,
        )
        if checked.problems:
            raise typer.Exit(1)
        for what in [*(str(it) for it in alerts if not it.failed), *not_checked]:
            out.print(escape(what), style="dim", highlight=False)


def tried_alerts(publication: Publication, not_checked: list[str]) -> list[AlertTrial]:
    """Return what became of the notifiers; why they could not be tried is among what was not checked."""
    try:
        with err.status("alert notifiers"):
            return try_alerts(publication, send=False)
    except ConfigurationError as error:
        not_checked.append(f"{error.message}; {with_names(error.report.remedy or '')}")
        return []


@app.command(epilog="Example: [bold]tranrepl setup dags/publications/purchasing.yaml[/]")
def setup(
    file: File,
    new_secret: Annotated[
        bool, typer.Option("--new-secret", help="Sign messages in the Publisher's log with a new secret from now on.")
    ] = False,
) -> None:
    """Create what is missing at Publisher, Distributor and Subscribers.

    May be run again at any time. Generated procedures are replaced where the
    article changed; custom ones are left alone, and named where they need
    attention.
    """
    with failing_clearly(), ExitStack() as held:
        topology = load(file)
        publication = topology.publication
        held.enter_context(no_tables_joining(topology))
        checked = checked_publication(topology)
        warn(checked.warnings)
        fail_on(checked.blocking)
        done: list[str] = []

        def say(what: str) -> None:
            done.append(what)
            out.print(f"  {escape(what)}", highlight=False)

        # On the console that the lines go to: they do not end up within the status then.
        with out.status("setting up"):
            set_up(checked.topology, checked.tables, say, new_secret=new_secret)
        _prepare_spark()
        for problem in checked.needing_attention:
            err.print(f"[yellow]needs attention[/]: {escape(with_names(str(problem)))}", highlight=False)
        out.print(f"{publication.publication}: [green]{'set up' if done else 'nothing to do'}[/]")


def _prepare_spark() -> None:
    """Make the archive that lets Spark start fast; a failure is ignored, because jobs run without it."""
    # `tranrepl class-archive` says why.
    with suppress(ReplicationError, OSError), err.status("preparing Spark, once"):
        make_archive()


@app.command("class-archive", epilog="Example: [bold]tranrepl class-archive[/]")
def class_archive() -> None:
    """Make Spark jobs on this machine start faster.

    Writes an archive of Spark's classes for this Java and this pyspark, unless
    it exists. Setup does so too, on the machine where it runs.
    """
    with failing_clearly():
        try:
            with err.status("running Spark once"):
                archive = make_archive()
        except OSError as error:
            raise ConfigurationError(f"no archive of Spark's classes: {error}") from error
        out.print(escape(str(archive)), highlight=False)


@app.command(epilog="Example: [bold]tranrepl script purchasing.yaml -s reporting > procedures.sql[/]")
def script(
    file: File,
    subscription: SubscriptionOption = None,
    custom: Annotated[bool, typer.Option("--custom", help="Print skeletons of the custom procedures instead.")] = False,
    dialect: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help=f"Ask no Subscriber, and print for this kind of database: {', '.join(SCRIPTED_KINDS)}.",
        ),
    ] = None,
    publisher: Annotated[
        bool,
        typer.Option(
            "--publisher",
            help="Print instead the statements at the Publisher that setup may not run, for a superuser.",
        ),
    ] = False,
) -> None:
    """Print the procedures that setup would create at each Subscriber.

    The skeleton of a custom procedure has the signature that it must have, and
    does what the generated one would do. With --dialect the procedures fit
    tables as setup would create them.
    """
    with failing_clearly():
        topology = load(file)
        if publisher:
            _print_left_to_make(topology)
            return
        what = Scripted.CUSTOM if custom else Scripted.GENERATED
        if dialect is not None:
            checked = check_publisher(topology)
            fail_on(checked.problems)
            _say_if_none(what, _print_script(script_of(dialect, _registered(checked.tables), what), ""))
            return
        checked = checked_publication(topology)
        fail_on([it for it in checked.in_scripts if not (custom and isinstance(it, CustomProcedureError))])
        names = chosen(topology.publication, subscription)
        _say_if_none(
            what, sum(_print_script(_scripted(topology, checked, name, what), f"Subscriber {name}, ") for name in names)
        )


def _print_left_to_make(topology: Topology) -> None:
    with topology.publisher("tranrepl script") as place:
        left = place.schema_changes.left_to_make(captured=topology.publication.replicate_ddl)
        if left:
            write_out(f"-- in database {one_line(place.database)} of the Publisher, as a superuser\n")
    for statement in left:
        write_out(f"{statement.rstrip().removesuffix(';')};\n")
    if not left:
        err.print("setup may run all its statements at the Publisher: there is nothing to print")


def _registered(tables: PublishedTables) -> list[tuple[RegisteredArticle, TableDescription]]:
    return [(registered_article(article, table), table) for article, table in tables]


def _print_script(script: Script, place: str) -> int:
    """Print the script under a heading; return how many statements it has."""
    if script.statements:
        write_out(f"-- {one_line(place)}{script.capabilities.title}\n\n{script.capabilities.script_start}")
    for statement in script.statements:
        write_out(f"{statement}{script.capabilities.script_end}")
    return len(script.statements)


def _say_if_none(what: Scripted, statements: int) -> None:
    if not statements:
        kind = "custom" if what is Scripted.CUSTOM else "generated"
        err.print(f"no article calls a {kind} procedure: there is nothing to print")


def _scripted(topology: Topology, checked: Checked, name: str, what: Scripted) -> Script:
    tables = tables_at(checked.tables, name)
    # Scripts do not depend on the Subscriber's state.
    with (
        topology.subscriber(name, None, "tranrepl script") as subscriber,
        subscriber.reading_together(tables),
    ):
        statements = [it for article, table in _registered(tables) for it in subscriber.scripts(article, table, what)]
    return Script(topology.dialect(name).capabilities, tuple(statements))


@app.command(epilog="Example: [bold]tranrepl schema > publication.schema.json[/]")
def schema() -> None:
    """Print the JSON Schema of a publication file, for editors."""
    print_json(json_schema())
