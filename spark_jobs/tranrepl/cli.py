"""The shell's verbs. Exit status 0 done, 1 failed with one clear message, 2 usage."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from tranrepl import __version__
from tranrepl.administration import parse_xact_seqno, retry_from_transaction, skip_transaction
from tranrepl.arrow_alone import leave_pandas_out
from tranrepl.article import RegisteredArticle
from tranrepl.beginning_anew import BEGINNING_OF, begin_anew
from tranrepl.browse import BrowsedCommand, Selection
from tranrepl.browse import browse as browse_commands
from tranrepl.catalogue import TableDescription
from tranrepl.check import Checked, check_publisher
from tranrepl.check import check as check_publication
from tranrepl.class_archive import make_archive
from tranrepl.cleanup import clean_up
from tranrepl.connections import Connection, from_environment
from tranrepl.distribution.agent import idle_result as idle_distribution
from tranrepl.distribution.opening import subscription_key
from tranrepl.distributor.database import DistributionDatabase
from tranrepl.errors import ConfigurationError, ErrorKind, ReplicationError
from tranrepl.jobs import (
    ApplyMode,
    DistributionRequest,
    JobResult,
    LogReaderRequest,
    Repair,
    SnapshotRequest,
    ValidationRequest,
)
from tranrepl.log_reader.agent import idle_result as idle_log_reader
from tranrepl.pools import set_up_pools
from tranrepl.registration import registered_article
from tranrepl.reinitialization import Rows, reinitialize
from tranrepl.run import Steps
from tranrepl.run import run as run_steps
from tranrepl.settings import Publication, SyncType, json_schema, load_publication
from tranrepl.setup import set_up
from tranrepl.snapshot.agent import idle_result as idle_snapshot
from tranrepl.snapshot.anew import subscribe_anew
from tranrepl.snapshot_display import following, showing
from tranrepl.status import LastRun, LogReaderStatus, PublicationStatus, SubscriptionStatus
from tranrepl.status import status as publication_status
from tranrepl.submit import submit
from tranrepl.subscriber.dialect import Scripted
from tranrepl.subscriber.dialects import SCRIPTED_KINDS, Script, dialect_of, script_of
from tranrepl.validation_report import ArticleValidation, DifferingRow

app = typer.Typer(
    name="tranrepl",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Transactional replication in SQL Server's model, moved by Spark.",
    epilog="Connections are read from AIRFLOW_CONN_<ID>, as in "
    "AIRFLOW_CONN_PUBLISHER=postgres://user:password@host:5432/database",
)
out = Console(soft_wrap=not sys.stdout.isatty())
err = Console(stderr=True, soft_wrap=True)

File = Annotated[
    Path, typer.Argument(metavar="FILE", help="The publication's settings, a YAML file.", show_default=False)
]
SubscriptionOption = Annotated[
    str | None, typer.Option("--subscription", "-s", help="Only this subscription.", show_default="all")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
MasterOption = Annotated[
    str, typer.Option(help="Spark master, as spark-submit takes it.", envvar="TRANREPL_SPARK_MASTER")
]


def main() -> None:
    """Entry of the `tranrepl` command."""
    leave_pandas_out()
    app()


@contextmanager
def _failing_clearly() -> Iterator[None]:
    """One message on stderr and exit status 1 for everything that we foresee."""
    try:
        yield
    except ReplicationError as error:
        _print_error(error)
        raise typer.Exit(1) from None


def _print_error(error: ReplicationError) -> None:
    err.print(f"[bold red]error[/]: {escape(error.message)}", highlight=False)
    if error.xact_seqno:
        seqno = f"0x{error.xact_seqno}"
        err.print(f"  in {seqno}, command {error.command_id}, article {error.article}", highlight=False, markup=False)
        err.print(f"  tranrepl browse FILE --from {seqno} --to {seqno} shows it", highlight=False, markup=False)
    if error.remedy:
        err.print(f"  [green]→[/] {escape(error.remedy)}", highlight=False)


_PAUSES = (1.0, 4.0)
"""Seconds before each retry of what may pass by itself."""


def _load(file: Path) -> tuple[Publication, dict[str, Connection]]:
    publication = load_publication(file)
    return publication, {name: from_environment(name) for name in publication.connection_ids()}


def _print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")


def _checked(publication: Publication, connections: Mapping[str, Connection]) -> Checked:
    with err.status("checking"):
        return check_publication(publication, connections)


def _warn(warnings: list[str]) -> None:
    for warning in warnings:
        err.print(f"[yellow]warning[/]: {escape(warning)}", highlight=False)


def _fail_on(problems: list[ReplicationError]) -> None:
    for problem in problems:
        _print_error(problem)
    if problems:
        raise typer.Exit(1)


@app.command(epilog="Example: [bold]tranrepl check dags/publications/purchasing.yaml[/]")
def check(file: File, as_json: JsonOption = False) -> None:
    """Find all that would keep the publication from running. Changes nothing."""
    with _failing_clearly():
        publication, connections = _load(file)
        checked = _checked(publication, connections)
        if as_json:
            _print_json(
                {
                    "problems": [problem.to_report().model_dump() for problem in checked.problems],
                    "warnings": checked.warnings,
                }
            )
            raise typer.Exit(1 if checked.problems else 0)
        _warn(checked.warnings)
        _fail_on(checked.problems)
        out.print(
            f"{publication.publication}: {_counted(len(checked.tables), 'article')}, "
            f"{_counted(len(publication.subscriptions), 'subscription')}, [green]nothing to mend[/]"
        )


@app.command(epilog="Example: [bold]tranrepl setup dags/publications/purchasing.yaml[/]")
def setup(file: File) -> None:
    """Create what is missing at Publisher, Distributor and Subscribers. May be run again at any time.

    Generated procedures are made anew where the article changed. Custom ones are left alone, and named where they need
    attention.
    """
    with _failing_clearly():
        publication, connections = _load(file)
        checked = _checked(publication, connections)
        _warn(checked.warnings)
        _fail_on(checked.blocking)
        done: list[str] = []

        def say(what: str) -> None:
            done.append(what)
            out.print(f"  {escape(what)}", highlight=False)

        set_up(publication, connections, checked.tables, say)
        _set_up_pools(publication, say)
        _prepare_spark()
        for problem in checked.custom_procedures:
            err.print(f"[yellow]needs attention[/]: {escape(str(problem))}", highlight=False)
        out.print(f"{publication.publication}: [green]{'set up' if done else 'nothing to do'}[/]")


def _set_up_pools(publication: Publication, say: Callable[[str], None]) -> None:
    """Not a failure where they cannot be: the shell delivers without Airflow, and its scheduler mends it."""
    try:
        with err.status("Airflow's pools"):
            set_up_pools(publication, say)
    except ConfigurationError as error:
        _warn([str(error)])


def _prepare_spark() -> None:
    """Not a failure where it cannot be: jobs run without, and perhaps elsewhere."""
    # `tranrepl class-archive` says why.
    with suppress(ReplicationError, OSError), err.status("preparing Spark, once (20 s)"):
        make_archive()


@app.command("class-archive", epilog="Example: [bold]tranrepl class-archive[/], where Airflow's tasks run")
def class_archive() -> None:
    """Let Spark jobs on this machine start in half the time. Setup does it too, where it runs.

    Makes an archive of Spark's classes (190 MB, 20 s) for this Java and this pyspark, unless it is there.
    """
    with _failing_clearly():
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
    custom: Annotated[bool, typer.Option("--custom", help="Skeletons of the custom procedures instead.")] = False,
    dialect: Annotated[
        str | None,
        typer.Option(help=f"For a Subscriber of this kind that need not exist: {', '.join(SCRIPTED_KINDS)}."),
    ] = None,
) -> None:
    """Print the procedures that setup generates, as they fit each Subscriber's tables.

    A skeleton has the signature that a custom procedure must have, and does what the generated one would do.
    With --dialect no Subscriber is asked: the procedures fit tables as setup would create them.
    """
    with _failing_clearly():
        publication, connections = _load(file)
        what = Scripted.CUSTOM if custom else Scripted.GENERATED
        if dialect is not None:
            checked = check_publisher(publication, connections)
            _fail_on(checked.problems)
            _print_script(script_of(dialect, _registered(checked), what))
            return
        checked = _checked(publication, connections)
        _fail_on(checked.blocking if custom else checked.problems)
        for name in _chosen(publication, subscription):
            _print_script(_scripted(publication, connections, checked, name, what))


def _registered(checked: Checked) -> list[tuple[RegisteredArticle, TableDescription]]:
    return [(registered_article(article, table), table) for article, table in checked.tables]


def _print_script(script: Script) -> None:
    sys.stdout.write(script.capabilities.script_start if script.statements else "")
    for statement in script.statements:
        sys.stdout.write(f"{statement}{script.capabilities.script_end}")


def _scripted(
    publication: Publication, connections: Mapping[str, Connection], checked: Checked, name: str, what: Scripted
) -> Script:
    # Scripts do not depend on where the Subscriber stands.
    key = subscription_key(publication, connections[publication.publisher.connection], None, name)
    connection = connections[publication.subscription(name).connection]
    dialect = dialect_of(connection)
    with dialect.subscriber(connection, key, "tranrepl script") as subscriber:
        statements = [it for article, table in _registered(checked) for it in subscriber.scripts(article, table, what)]
    return Script(dialect.capabilities, tuple(statements))


def _chosen(publication: Publication, subscription: str | None) -> list[str]:
    if subscription is None:
        return [it.name for it in publication.subscriptions]
    return [publication.subscription(subscription).name]


@app.command("log-reader", epilog="Example: [bold]tranrepl log-reader purchasing.yaml --master 'local\\[2]'[/]")
def log_reader(file: File, master: MasterOption = "local[*]", as_json: JsonOption = False) -> None:
    """Read the Publisher's log into the store."""
    with _failing_clearly():
        publication, connections = _load(file)
        result = _read_log(publication, connections, master)
        _report({"log reader": result}, as_json)
        _raise_first({"log reader": result})


@app.command(epilog="Example: [bold]tranrepl distribute purchasing.yaml -s reporting[/]")
def distribute(
    file: File,
    subscription: SubscriptionOption = None,
    committed_before: Annotated[
        datetime | None, typer.Option(help="Deliver only transactions committed before this time (UTC).")
    ] = None,
    single_connection: Annotated[
        bool, typer.Option("--single-connection", help="Deliver over one connection, as the retry does.")
    ] = False,
    master: MasterOption = "local[*]",
    as_json: JsonOption = False,
) -> None:
    """Deliver stored commands to the Subscribers."""
    with _failing_clearly():
        publication, connections = _load(file)
        mode = ApplyMode.SINGLE_CONNECTION if single_connection else ApplyMode.STREAMS
        bound = _in_utc(committed_before) if committed_before else None
        results = {
            name: _deliver(publication, connections, name, mode, bound, master)
            for name in _chosen(publication, subscription)
        }
        _report(results, as_json)
        _raise_first(results)


@app.command(epilog="Example: [bold]tranrepl run dags/publications/purchasing.yaml[/]")
def run(
    file: File,
    subscription: SubscriptionOption = None,
    master: MasterOption = "local[*]",
    as_json: JsonOption = False,
) -> None:
    """Read the log, then deliver to every Subscriber; a batch that fails is tried again over a single connection.

    A subscription, or an article of it, that waits for its initial snapshot gets it first. What is stored is delivered
    whatever stopped the log reader.
    """
    with _failing_clearly():
        publication, connections = _load(file)
        steps = Steps(
            lambda: _read_log(publication, connections, master),
            lambda name: _take_snapshot(publication, connections, name, (), master),
            lambda name: _deliver_with_retry(publication, connections, name, master),
        )
        results = run_steps(_chosen(publication, subscription), steps)
        _report(results, as_json)
        _raise_first(results)


ArticleOption = Annotated[
    str | None, typer.Option("--article", "-a", help="Only this article, by its source table.", show_default="all")
]


@app.command(epilog="Example: [bold]tranrepl snapshot dags/publications/purchasing.yaml -s reporting[/]")
def snapshot(
    file: File,
    subscription: SubscriptionOption = None,
    article: ArticleOption = None,
    master: MasterOption = "local[*]",
    as_json: JsonOption = False,
) -> None:
    """Give subscriptions that wait for it the Publisher's rows, as of one point of its log, while it works on.

    A new subscription waits for it, and so does an article that was added. What needs none is left alone.
    """
    with _failing_clearly():
        publication, connections = _load(file)
        results = {
            name: _take_snapshot(publication, connections, name, _one(publication, article), master)
            for name in _chosen(publication, subscription)
        }
        _report(results, as_json)
        _raise_first(results)


def _one(publication: Publication, article: str | None) -> tuple[str, ...]:
    if article is None:
        return ()
    allowed = [str(it.source) for it in publication.articles]
    if article not in allowed:
        raise ConfigurationError(
            f"--article: publication {publication.publication} has no article {article!r}",
            remedy=f"allowed: {', '.join(allowed)}",
        )
    return (article,)


def _take_snapshot(
    publication: Publication, connections: Mapping[str, Connection], name: str, articles: tuple[str, ...], master: str
) -> JobResult:
    """What may pass by itself is tried again: it begins anew then."""
    request = SnapshotRequest(publication=publication, subscription=name, articles=articles)
    distribution = connections[publication.distributor.connection]
    with showing(err, name) as display:
        with following(display, distribution, publication.publication, name):
            for pause in (*_PAUSES, None):
                result = _attempt(lambda: idle_snapshot(request, connections) or submit(request, master))
                if pause is None or result.error is None or result.error.kind is not ErrorKind.TRANSIENT:
                    break
                time.sleep(pause)
        if result.snapshot:
            display.show(result.snapshot)
        return result


def _in_utc(time: datetime) -> datetime:
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _read_log(publication: Publication, connections: Mapping[str, Connection], master: str) -> JobResult:
    request = LogReaderRequest(publication=publication)
    with err.status(f"reading the log of {publication.publication}"):
        result = _attempt(lambda: idle_log_reader(request, connections) or submit(request, master))
    _warn(list(result.notices))
    return result


def _deliver(
    publication: Publication,
    connections: Mapping[str, Connection],
    name: str,
    mode: ApplyMode,
    bound: datetime | None,
    master: str,
) -> JobResult:
    request = DistributionRequest(publication=publication, subscription=name, committed_before=bound, mode=mode)
    with err.status(f"delivering to {name}"):
        return _attempt(lambda: idle_distribution(request, connections) or submit(request, master))


def _attempt(job: Callable[[], JobResult]) -> JobResult:
    try:
        return job()
    except ReplicationError as error:
        return JobResult(error=error.to_report())


def _deliver_with_retry(
    publication: Publication, connections: Mapping[str, Connection], name: str, master: str
) -> JobResult:
    """A batch that failed, for whatever may pass by itself or over one connection, is tried again over one."""
    result = _deliver(publication, connections, name, ApplyMode.STREAMS, None, master)
    for pause in _PAUSES:
        if result.error is None or result.error.kind not in (ErrorKind.DATA, ErrorKind.TRANSIENT):
            break
        err.print(
            f"{name}: a batch failed ({escape(result.error.message)}), trying again over a single connection",
            highlight=False,
        )
        time.sleep(pause if result.error.kind is ErrorKind.TRANSIENT else 0)
        again = _deliver(publication, connections, name, ApplyMode.SINGLE_CONNECTION, None, master)
        settled = again.error is not None and again.error.kind is ErrorKind.DATA
        result = result.plus(again)
        if settled:
            break
    return result


def _raise_first(results: Mapping[str, JobResult]) -> None:
    """Print what stopped a job and raise the last of it. To be fenced off is to end cleanly, with nothing done."""
    for name, result in results.items():
        if result.error is not None and result.error.kind is ErrorKind.FENCED:
            err.print(f"{name}: {escape(result.error.message)}", highlight=False)
    stopped = [it.error for it in results.values() if it.error is not None and it.error.kind is not ErrorKind.FENCED]
    # What is wrong with the file, each step says.
    failed = list({it.message: it for it in stopped}.values())
    for error in failed[:-1]:
        _print_error(error.to_exception())
    if failed:
        raise failed[-1].to_exception()


def _report(results: Mapping[str, JobResult], as_json: bool) -> None:
    if as_json:
        _print_json({name: result.model_dump(mode="json") for name, result in results.items()})
        return
    for name, result in results.items():
        _warn([f"{name}: {notice}" for notice in result.notices])
    table = Table("step", "status")
    for heading in ("transactions", "commands", "seconds", "commands/s"):
        table.add_column(heading, justify="right")
    for name, result in results.items():
        done = result.commands or sum(it.rows for it in result.snapshot)
        rate = f"{done / result.seconds:,.0f}" if result.seconds and done else ""
        table.add_row(
            name,
            _state(result),
            "" if result.snapshot else f"{result.transactions:,}",
            f"{done:,} rows" if result.snapshot else f"{done:,}",
            f"{result.seconds:.1f}",
            rate,
        )
    out.print(table)


def _state(result: JobResult) -> str:
    if result.error is not None:
        return f"[red]{result.error.kind} error[/]"
    return "[green]done[/]" if result.commands or result.snapshot else "nothing to do"


SubscriptionName = Annotated[str, typer.Option("--subscription", "-s", help="The subscription.", show_default=False)]


@app.command(epilog="Example: [bold]tranrepl skip purchasing.yaml -s reporting --xact-seqno 0x00000000018a4c10[/]")
def skip(
    file: File,
    subscription: SubscriptionName,
    xact_seqno: Annotated[
        str, typer.Option(help="The next transaction to be delivered, hexadecimal.", show_default=False)
    ],
) -> None:
    """Pass over one transaction that cannot be delivered. The history says so.

    Like SQL Server's sp_setsubscriptionxactseqno, of which it is the careful half: no other transaction is skipped.
    """
    with _failing_clearly():
        publication, connections = _load(file)
        seqno = parse_xact_seqno(xact_seqno)
        out.print(skip_transaction(publication, connections, subscription, seqno), highlight=False)


@app.command(
    epilog="Example: [bold]tranrepl retry purchasing.yaml -s reporting --from-xact-seqno 0x00000000018a4c10[/]"
)
def retry(
    file: File,
    subscription: SubscriptionName,
    from_xact_seqno: Annotated[
        str, typer.Option(help="The transaction to begin with, hexadecimal.", show_default=False)
    ],
) -> None:
    """Let the next delivery begin with a transaction that was delivered before: all from it on is applied again.

    For a Subscriber whose rows were put back by other means than a restored database, which brings its watermark along.
    """
    with _failing_clearly():
        publication, connections = _load(file)
        seqno = parse_xact_seqno(from_xact_seqno)
        out.print(retry_from_transaction(publication, connections, subscription, seqno), highlight=False)


@app.command(epilog="Example: [bold]tranrepl browse purchasing.yaml --article purchasing.vendor --limit 20[/]")
def browse(
    file: File,
    article: Annotated[str | None, typer.Option(help="Only this article, by its source table.")] = None,
    first: Annotated[
        str | None, typer.Option("--from", metavar="XACT_SEQNO", help="From this transaction on, hexadecimal.")
    ] = None,
    last: Annotated[
        str | None, typer.Option("--to", metavar="XACT_SEQNO", help="Up to this transaction, hexadecimal.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most this many commands.")] = 100,
    as_json: JsonOption = False,
) -> None:
    """Show stored commands, as SQL Server's sp_browsereplcmds does."""
    with _failing_clearly():
        publication, connections = _load(file)
        selection = Selection(_seqno(first), _seqno(last), article)
        _one(publication, article)
        database = DistributionDatabase(connections[publication.distributor.connection])
        try:
            record = database.publication(publication.publication)
            found = browse_commands(
                record, database.batches_after(record, b""), database.all_articles(record), selection
            )
            commands = [command for command, _ in zip(found, range(limit), strict=False)]
        finally:
            database.close()
        _show_commands(commands, limit, as_json)


def _seqno(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        return bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is no xact_seqno", remedy="allowed: hexadecimal digits, as in 0x0000…"
        ) from None


def _show_commands(commands: list[BrowsedCommand], limit: int, as_json: bool) -> None:
    if as_json:
        _print_json([_command_fields(command) for command in commands])
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
        out.print(f"the first {limit} commands; --limit shows more, --from goes on")


def _command_fields(command: BrowsedCommand) -> dict[str, Any]:
    return {
        "xact_seqno": command.xact_seqno,
        "command_id": command.command_id,
        "commit_time": command.commit_time.isoformat(),
        "article": command.article,
        "operation": command.operation,
        "command": command.command,
    }


@app.command(epilog="Example: [bold]tranrepl status dags/publications/purchasing.yaml --json[/]")
def status(file: File, as_json: JsonOption = False) -> None:
    """Show where the log reader and every subscription stand."""
    with _failing_clearly():
        publication, connections = _load(file)
        current = publication_status(publication, connections)
        if as_json:
            _print_json(current.model_dump(mode="json"))
            return
        _show_status(current)


def _show_status(current: PublicationStatus) -> None:
    """Narrow enough for 80 columns: a watermark that is cut cannot be copied. Why a run failed stands below."""
    reader = current.log_reader
    table = Table("agent", "last run", "at (UTC)", title=current.publication, box=SIMPLE_HEAD, pad_edge=False)
    table.title_justify = "left"
    table.add_column("stands at", no_wrap=True)
    table.add_column("behind")
    seqno = reader.registered_xact_seqno
    table.add_row("log reader", *_run_state(reader.last_run), f"0x{seqno}" if seqno else "", _behind(reader))
    for subscription in current.subscriptions:
        table.add_row(
            subscription.subscription,
            *_run_state(subscription.last_run),
            f"0x{subscription.watermark}",
            _counted(subscription.undelivered_commands, "command"),
        )
    out.print(table)
    if reader.waits_for is not None:
        out.print(f"[yellow]log reader[/]: {escape(reader.waits_for)}", highlight=False, soft_wrap=True)
    if reader.problem is not None:
        out.print(f"[red]log reader[/]: {escape(reader.problem)}", highlight=False, soft_wrap=True)
    for subscription in current.subscriptions:
        out.print(f"{subscription.subscription}: {_standing(subscription)}", highlight=False, soft_wrap=True)
    for subscription in current.subscriptions:
        last = subscription.last_run
        if last is not None and last.status == "in_progress" and subscription.waiting_articles:
            out.print(escape(last.comments), highlight=False, soft_wrap=True)
    runs = {"log reader": reader.last_run, **{it.subscription: it.last_run for it in current.subscriptions}}
    for agent, last in runs.items():
        if last is not None and last.status in ("fail", "retry"):
            out.print(f"[red]{agent}[/]: {escape(last.comments)}", highlight=False, soft_wrap=True)


def _standing(subscription: SubscriptionStatus) -> str:
    said: list[str] = [subscription.state]
    if subscription.waiting_articles:
        said.append(f"waits for the snapshot of {', '.join(subscription.waiting_articles)}")
    said += [f"stopped for article {article}: {why}" for article, why in subscription.stopped_articles.items()]
    if subscription.undelivered_commands:
        transactions = _counted(subscription.undelivered_transactions, "transaction")
        said.append(f"{transactions} to deliver in about {_counted(subscription.estimated_seconds, 'second')}")
    if subscription.latency_seconds is not None:
        said.append(f"latency {subscription.latency_seconds:,.1f} s")
    if subscription.last_error is not None:
        error = subscription.last_error
        number = f" {error.number}" if error.number else ""
        said.append(f"last error{number} at {error.time.astimezone(UTC):%Y-%m-%d %H:%M:%S}")
    return ", ".join(said)


def _behind(reader: LogReaderStatus) -> str:
    if reader.unread_log_bytes is None:
        return "[red]no slot[/]"
    state = "" if reader.slot == "ready" else f", slot {reader.slot}"
    return f"{decimal(reader.unread_log_bytes)} of log{state}"


def _run_state(last: LastRun | None) -> tuple[str, str]:
    if last is None:
        return "never", ""
    status = f"[red]{last.status}[/]" if last.status in ("fail", "retry") else last.status
    return status, f"{last.time.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def _counted(number: int, what: str, several: str | None = None) -> str:
    return f"{number:,} {what if number == 1 else several or what + 's'}"


@app.command(epilog="Example: [bold]tranrepl cleanup dags/publications/purchasing.yaml[/]")
def cleanup(file: File, as_json: JsonOption = False) -> None:
    """Remove stored commands that every Subscriber has, and history that is too old.

    A subscription with a command that waited longer than max_distretention is deactivated.
    """
    with _failing_clearly():
        publication, connections = _load(file)
        done = clean_up(publication, connections)
        if as_json:
            _print_json(done.model_dump(mode="json"))
            return
        for name, why in done.unreachable.items():
            err.print(f"[yellow]warning[/]: {name} keeps what it may need: {escape(why)}", highlight=False)
        for error in done.deactivated.values():
            _print_error(error.to_exception())
        removed = [
            _counted(done.batches, "batch", "batches"),
            _counted(done.commands, "command"),
            _counted(done.history_rows, "history row"),
            _counted(done.orphan_folders, "orphan folder"),
        ]
        out.print(f"{publication.publication}: removed {', '.join(removed)}")


@app.command(epilog="Example: [bold]tranrepl validate dags/publications/purchasing.yaml -s reporting[/]")
def validate(
    file: File,
    subscription: SubscriptionOption = None,
    article: Annotated[
        str | None, typer.Option(help="Only this article, by its source table.", show_default="all")
    ] = None,
    rowcount_only: Annotated[
        bool, typer.Option("--rowcount-only", help="Count rows, and do not compare them.")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Correct the rows that differ at the Subscriber, in one transaction.")
    ] = False,
    repair_script: Annotated[
        Path | None,
        typer.Option(metavar="OUT.sql", help="Write the statements that would correct them.", show_default=False),
    ] = None,
    master: MasterOption = "local[*]",
    as_json: JsonOption = False,
) -> None:
    """Compare the Subscribers' rows with the Publisher's, both at one transaction. Nobody stops writing for it.

    Reads the log and delivers up to that transaction. Exit status 1 where something differs, and was not repaired.
    """
    with _failing_clearly():
        publication, _ = _load(file)
        how = _repair_of(repair, repair_script, rowcount_only)
        script = _new_script(repair_script)
        results = {}
        for name in _chosen(publication, subscription):
            request = ValidationRequest(
                publication=publication,
                subscription=name,
                article=article,
                rowcount_only=rowcount_only,
                repair=how,
                repair_script=script,
            )
            results[name] = _validate(request, master)
        if as_json:
            _print_json({name: result.model_dump(mode="json") for name, result in results.items()})
        else:
            for name, result in results.items():
                _show_validation(name, result)
        _raise_first(results)


def _validate(request: ValidationRequest, master: str) -> JobResult:
    with err.status(f"validating {request.subscription}"):
        return _attempt(lambda: submit(request, master))


def _repair_of(repair: bool, repair_script: Path | None, rowcount_only: bool) -> Repair:
    if repair and repair_script is not None:
        raise ConfigurationError("--repair and --repair-script", remedy="allowed: one of them")
    if rowcount_only and (repair or repair_script is not None):
        raise ConfigurationError("--rowcount-only does not tell which rows differ", remedy="leave it out to repair")
    if repair_script is not None:
        return Repair.SCRIPT
    return Repair.APPLY if repair else Repair.NONE


def _new_script(path: Path | None) -> Path | None:
    """Each subscription's job appends to it."""
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
    for heading in ("rows", "missing", "extra", "different"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for it in result.validation.articles:
        counts = (f"{it.publisher_rows:,}", f"{it.missing:,}", f"{it.extra:,}", f"{it.different:,}")
        table.add_row(it.article, *counts, _verdict(it))
    out.print(table)
    for what, articles in result.validation.by_comparison().items():
        out.print(f"{escape(what)}: {escape(', '.join(articles))}", highlight=False, style="dim")
    for it in result.validation.unequal:
        for row in it.rows[:_MOST_SHOWN]:
            out.print(f"  {escape(_differing_row(it, row))}", highlight=False, soft_wrap=True)
        if it.differences > _MOST_SHOWN:
            out.print(f"  {it.article}: {it.differences - _MOST_SHOWN:,} more; --json names them", highlight=False)


def _verdict(validated: ArticleValidation) -> str:
    if validated.equal:
        return "[green]equal[/]"
    if validated.repaired is not None:
        return f"[yellow]{_counted(validated.repaired, 'row')} repaired[/]"
    reason = f", not repaired: {escape(validated.not_repaired)}" if validated.not_repaired else ""
    counted = f" ({validated.subscriber_rows:,} at the Subscriber)" if not validated.differences else ""
    return f"[red]differs[/]{counted}{reason}"


def _differing_row(validated: ArticleValidation, row: DifferingRow) -> str:
    key = ", ".join(f"{name} = {value}" for name, value in row.key.items())
    columns = f": {', '.join(row.columns)}" if row.columns else ""
    return f"{validated.article} {key}  {row.difference}{columns}"


@app.command("reinitialize", epilog="Example: [bold]tranrepl reinitialize purchasing.yaml -s reporting[/]")
def reinitialize_subscription(
    file: File,
    subscription: SubscriptionOption = None,
    article: ArticleOption = None,
    log_reader: Annotated[
        bool,
        typer.Option(
            "--log-reader",
            help="Leave the Subscribers' rows as they are: they are the Publisher's, or validate --repair will correct "
            "them.",
        ),
    ] = False,
    master: MasterOption = "local[*]",
) -> None:
    """Begin anew: the publication, one subscription, or one article of it; a deactivated one is active again.

    Without -s the slot, what is registered of the log, stored commands and watermarks are made new, whatever state they
    are in, and every subscription gets the Publisher's rows. With sync_type: replication_support_only there is no
    snapshot: load the rows while nobody writes at the Publisher.
    """
    with _failing_clearly():
        publication, connections = _load(file)
        if subscription is None:
            if article is not None:
                raise ConfigurationError("--article without --subscription", remedy="name the subscription with -s")
            _reinitialize_publication(publication, connections, Rows.THERE if log_reader else Rows.SNAPSHOT, master)
            return
        if log_reader:
            raise ConfigurationError(
                "--log-reader with --subscription", remedy="the log is read for all of them: leave -s out"
            )
        articles = _one(publication, article)
        if publication.subscription(subscription).sync_type is SyncType.AUTOMATIC:
            request = SnapshotRequest(publication=publication, subscription=subscription, articles=articles)
            subscribe_anew(request, connections)
            result = _take_snapshot(publication, connections, subscription, articles, master)
            _report({subscription: result}, as_json=False)
            _raise_first({subscription: result})
            return
        if articles:
            raise ConfigurationError(
                f"--article: subscription {subscription} takes no snapshots",
                remedy="sync_type: automatic for it, or load the rows by hand and reinitialize the whole subscription",
            )
        start = reinitialize(publication, connections, subscription)
        out.print(f"{subscription}: begins after 0x{start.hex()}")


def _reinitialize_publication(
    publication: Publication, connections: Mapping[str, Connection], rows: Rows, master: str
) -> None:
    with err.status("checking"):
        checked = check_publication(publication, connections, BEGINNING_OF[rows])
    _warn(checked.warnings)
    _fail_on(checked.blocking)
    results = begin_anew(
        publication,
        connections,
        checked,
        rows,
        lambda name: _take_snapshot(publication, connections, name, (), master),
        lambda what: out.print(f"  {escape(what)}", highlight=False),
    )
    if results:
        _report(results, as_json=False)
    _raise_first(results)


@app.command(epilog="Example: [bold]tranrepl schema > publication.schema.json[/]")
def schema() -> None:
    """Print the JSON Schema of a publication file, for editors."""
    _print_json(json_schema())


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        sys.stdout.write(f"tranrepl {__version__}\n")
        raise typer.Exit
