"""Verbs that run jobs: log-reader, distribute, run, snapshot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import typer
from rich.markup import escape

from tranrepl.admin.run import LOG_READER, Steps, read_log as read_and_join, run as run_steps
from tranrepl.cli.app import app
from tranrepl.cli.arguments import (
    ArticleOption,
    File,
    JsonOption,
    MasterOption,
    SubscriptionOption,
    chosen,
    chosen_article,
    load,
)
from tranrepl.cli.continuous import run_continuously
from tranrepl.cli.followed_history import FollowedHistory, following
from tranrepl.cli.output import err, failing_clearly
from tranrepl.cli.results import raise_first, report
from tranrepl.cli.run_display import UndeliveredCommands, UnreadLog, showing_run
from tranrepl.cli.snapshot_display import show_row, showing
from tranrepl.distribution.without_spark import run_without_spark as distribution_without_spark
from tranrepl.errors import ErrorReport
from tranrepl.jobs.requests import ApplyMode, DistributionRequest, LogReaderRequest, SnapshotRequest
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.retry import attempt, attempt_repeatedly, deliver_with_retry
from tranrepl.log_reader.without_spark import run_without_spark as log_reader_without_spark
from tranrepl.model.position import Position
from tranrepl.snapshot.without_spark import run_without_spark as snapshot_without_spark
from tranrepl.spark.application import SparkApplication
from tranrepl.spark.shell_submit import Request, submit
from tranrepl.topology import Topology

_Submit = Callable[[Request], JobResult]
"""Runs a Spark job and waits for it."""


@app.command("log-reader", epilog="Example: [bold]tranrepl log-reader purchasing.yaml --master 'local\\[2]'[/]")
def log_reader(file: File, master: MasterOption = "local[*]", as_json: JsonOption = False) -> None:
    """Read the Publisher's log and store its changes as commands."""
    with failing_clearly():
        topology = load(file)
        result = read_log(topology, master)
        report({LOG_READER: result}, as_json)
        raise_first({LOG_READER: result})


@app.command(epilog="Example: [bold]tranrepl distribute purchasing.yaml -s reporting[/]")
def distribute(
    file: File,
    subscription: SubscriptionOption = None,
    committed_before: Annotated[
        datetime | None,
        typer.Option(metavar="TIME", help="Only transactions committed before this time (UTC)."),
    ] = None,
    single_connection: Annotated[
        bool, typer.Option("--single-connection", help="Deliver over one connection, as the retry does.")
    ] = False,
    master: MasterOption = "local[*]",
    as_json: JsonOption = False,
) -> None:
    """Deliver stored commands to the Subscribers."""
    with failing_clearly():
        topology = load(file)
        mode = ApplyMode.SINGLE_CONNECTION if single_connection else ApplyMode.STREAMS
        bound = _in_utc(committed_before) if committed_before else None
        results = {
            name: _deliver(topology, name, mode, bound, partial(submit, master=master))
            for name in chosen(topology.publication, subscription)
        }
        report(results, as_json)
        raise_first(results)


@app.command(epilog="Example: [bold]tranrepl run dags/publications/purchasing.yaml[/]")
def run(
    file: File,
    subscription: SubscriptionOption = None,
    continuous: Annotated[
        bool, typer.Option("--continuous", help="Run log reader and deliveries until Ctrl-C.")
    ] = False,
    master: MasterOption = "local[*]",
    as_json: JsonOption = False,
) -> None:
    """Read the log and deliver to every Subscriber, as a run of the DAG does.

    A subscription or article that waits for its initial snapshot gets it
    first. A batch that fails is tried again over a single connection. Where
    the log reader fails, stored commands are delivered all the same.

    With --continuous, log reader and deliveries run side by side until Ctrl-C,
    after which they end their current batches; a second one kills them.
    """
    with failing_clearly():
        if continuous:
            results = run_continuously(file, load, lambda it: chosen(it.publication, subscription), master)
            report(results, as_json)
            raise_first(results)
            return
        topology = load(file)
        with SparkApplication(topology.publication.publication, master) as application:
            steps = Steps(
                lambda: _read_log(topology, application.submit),
                lambda name: _take_snapshot(topology, name, (), application.submit),
                lambda name: _deliver_with_retry(topology, name, application.submit),
            )
            results = run_steps(chosen(topology.publication, subscription), steps)
        report(results, as_json)
        raise_first(results)


@app.command(epilog="Example: [bold]tranrepl snapshot dags/publications/purchasing.yaml -s reporting[/]")
def snapshot(
    file: File,
    subscription: SubscriptionOption = None,
    article: ArticleOption = None,
    master: MasterOption = "local[*]",
    as_json: JsonOption = False,
) -> None:
    """Copy the Publisher's rows to Subscribers that wait for a snapshot.

    New subscriptions wait for one, and so do articles that were added; others
    are left alone. The Publisher keeps working meanwhile.
    """
    with failing_clearly():
        topology = load(file)
        results = {
            name: take_snapshot(topology, name, chosen_article(topology.publication, article), master)
            for name in chosen(topology.publication, subscription)
        }
        report(results, as_json)
        raise_first(results)


def take_snapshot(topology: Topology, name: str, articles: tuple[str, ...], master: str) -> JobResult:
    """Run the snapshot's job; start it again where what stopped it may pass by itself."""
    return _take_snapshot(topology, name, articles, partial(submit, master=master))


def _take_snapshot(topology: Topology, name: str, articles: tuple[str, ...], submitted: _Submit) -> JobResult:
    request = SnapshotRequest(publication=topology.publication, subscription=name, articles=articles)
    with showing(err, name) as display:
        with _showing(topology, name, partial(show_row, display)):
            result = attempt_repeatedly(lambda: snapshot_without_spark(request, topology) or submitted(request))
        if result.snapshot:
            display.show(result.snapshot)
        return result


def _in_utc(time: datetime) -> datetime:
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def read_log(topology: Topology, master: str) -> JobResult:
    """Run the log reader's job."""
    return _read_log(topology, partial(submit, master=master))


def _read_log(topology: Topology, submitted: _Submit) -> JobResult:
    request, positions = LogReaderRequest(publication=topology.publication), topology.positions
    with (
        showing_run(err, "log reader") as display,
        _showing(topology, None, display.show),
    ):

        def expect(start: Position, end: Position) -> None:
            display.expect(UnreadLog(positions, start, end))

        return read_and_join(
            topology.publication,
            lambda: topology,
            lambda: log_reader_without_spark(request, topology, expect) or submitted(request),
        )


def _deliver(
    topology: Topology,
    name: str,
    mode: ApplyMode,
    bound: datetime | None,
    submitted: _Submit,
) -> JobResult:
    request = DistributionRequest(
        publication=topology.publication, subscription=name, committed_before=bound, mode=mode
    )
    with (
        showing_run(err, name) as display,
        _showing(topology, name, display.show),
    ):

        def expect(commands: int) -> None:
            display.expect(UndeliveredCommands(commands))

        return attempt(lambda: distribution_without_spark(request, topology, expect) or submitted(request))


def _deliver_with_retry(topology: Topology, name: str, submitted: _Submit) -> JobResult:
    def failed(error: ErrorReport) -> None:
        err.print(f"{name}: {escape(error.message)}: trying again over a single connection", highlight=False)

    return deliver_with_retry(lambda mode: _deliver(topology, name, mode, None, submitted), failed)


Show = Callable[[Mapping[str, Any]], None]
"""Is given the run's history row."""


def _showing(topology: Topology, subscription: str | None, show: Show) -> AbstractContextManager[None]:
    """Show, once a second, the history row of a run that begins after this: a subscription's, or (None) the log
    reader's."""

    def look(history: FollowedHistory) -> None:
        row = history.newest(None if subscription is None else history.subscription(subscription))
        if row is not None:
            show(row)

    return following(topology, look)
