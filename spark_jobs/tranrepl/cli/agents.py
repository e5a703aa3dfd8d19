"""Verbs that run jobs: log-reader, distribute, run, snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Annotated

import typer
from rich.markup import escape

from tranrepl.admin.run import LOG_READER, Steps
from tranrepl.admin.run import run as run_steps
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
from tranrepl.cli.output import err, failing_clearly, warn
from tranrepl.cli.results import raise_first, report
from tranrepl.cli.run_display import UndeliveredCommands, UnreadLog, showing_run
from tranrepl.cli.run_following import following
from tranrepl.cli.snapshot_display import show_row, showing
from tranrepl.connections import Connection
from tranrepl.distribution.agent import idle_result as idle_distribution
from tranrepl.errors import ErrorReport
from tranrepl.jobs.requests import ApplyMode, DistributionRequest, LogReaderRequest, SnapshotRequest
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.retry import attempt, attempt_repeatedly, deliver_with_retry
from tranrepl.log_reader.agent import idle_result as idle_log_reader
from tranrepl.settings.publication import Publication
from tranrepl.snapshot.agent import idle_result as idle_snapshot
from tranrepl.spark.submit import submit


@app.command("log-reader", epilog="Example: [bold]tranrepl log-reader purchasing.yaml --master 'local\\[2]'[/]")
def log_reader(file: File, master: MasterOption = "local[*]", as_json: JsonOption = False) -> None:
    """Read the Publisher's log into the store."""
    with failing_clearly():
        publication, connections = load(file)
        result = _read_log(publication, connections, master)
        report({LOG_READER: result}, as_json)
        raise_first({LOG_READER: result})


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
    with failing_clearly():
        publication, connections = load(file)
        mode = ApplyMode.SINGLE_CONNECTION if single_connection else ApplyMode.STREAMS
        bound = _in_utc(committed_before) if committed_before else None
        results = {
            name: _deliver(publication, connections, name, mode, bound, master)
            for name in chosen(publication, subscription)
        }
        report(results, as_json)
        raise_first(results)


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
    with failing_clearly():
        publication, connections = load(file)
        steps = Steps(
            lambda: _read_log(publication, connections, master),
            lambda name: take_snapshot(publication, connections, name, (), master),
            lambda name: _deliver_with_retry(publication, connections, name, master),
        )
        results = run_steps(chosen(publication, subscription), steps)
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
    """Give subscriptions that wait for it the Publisher's rows, as of one point of its log, while it works on.

    A new subscription waits for it, and so does an article that was added. What needs none is left alone.
    """
    with failing_clearly():
        publication, connections = load(file)
        results = {
            name: take_snapshot(publication, connections, name, chosen_article(publication, article), master)
            for name in chosen(publication, subscription)
        }
        report(results, as_json)
        raise_first(results)


def take_snapshot(
    publication: Publication, connections: Mapping[str, Connection], name: str, articles: tuple[str, ...], master: str
) -> JobResult:
    """Run the snapshot's job; it begins anew where what stopped it may pass by itself."""
    request = SnapshotRequest(publication=publication, subscription=name, articles=articles)
    distribution = connections[publication.distributor.connection]
    with showing(err, name) as display:
        with following(distribution, publication.publication, name, partial(show_row, display)):
            result = attempt_repeatedly(lambda: idle_snapshot(request, connections) or submit(request, master))
        if result.snapshot:
            display.show(result.snapshot)
        return result


def _in_utc(time: datetime) -> datetime:
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _read_log(publication: Publication, connections: Mapping[str, Connection], master: str) -> JobResult:
    request = LogReaderRequest(publication=publication)
    distribution = connections[publication.distributor.connection]
    with (
        showing_run(err, "log reader") as display,
        following(distribution, publication.publication, None, display.show),
    ):

        def expect(start: int, end: int) -> None:
            display.expect(UnreadLog(start, end))

        result = attempt(lambda: idle_log_reader(request, connections, expect) or submit(request, master))
    warn(list(result.notices))
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
    distribution = connections[publication.distributor.connection]
    with (
        showing_run(err, name) as display,
        following(distribution, publication.publication, name, display.show),
    ):

        def expect(commands: int) -> None:
            display.expect(UndeliveredCommands(commands))

        return attempt(lambda: idle_distribution(request, connections, expect) or submit(request, master))


def _deliver_with_retry(
    publication: Publication, connections: Mapping[str, Connection], name: str, master: str
) -> JobResult:
    def failed(error: ErrorReport) -> None:
        err.print(
            f"{name}: a batch failed ({escape(error.message)}), trying again over a single connection", highlight=False
        )

    return deliver_with_retry(lambda mode: _deliver(publication, connections, name, mode, None, master), failed)
