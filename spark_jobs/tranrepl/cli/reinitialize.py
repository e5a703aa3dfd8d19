"""The verb reinitialize."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from tranrepl.admin.check import check as check_publication
from tranrepl.admin.reinitialization import PURPOSE_OF, Rows, reinitialize, reinitialize_publication
from tranrepl.cli.agents import read_log, take_snapshot
from tranrepl.cli.app import app
from tranrepl.cli.arguments import ArticleOption, File, MasterOption, SubscriptionOption, chosen_article, load
from tranrepl.cli.output import err, fail_on, failing_clearly, out, warn
from tranrepl.cli.results import raise_first, report
from tranrepl.errors import ConfigurationError
from tranrepl.jobs.requests import SnapshotRequest
from tranrepl.settings.publication import SyncType
from tranrepl.snapshot.reinitialization import mark_for_reinitialization
from tranrepl.topology import Topology


@app.command("reinitialize", epilog="Example: [bold]tranrepl reinitialize purchasing.yaml -s reporting[/]")
def reinitialize_subscription(
    file: File,
    subscription: SubscriptionOption = None,
    article: ArticleOption = None,
    log_reader: Annotated[
        bool,
        typer.Option(
            "--log-reader",
            help="Reinitialize the log reader and leave the Subscribers' rows: they equal the Publisher's, or "
            "validate --repair will correct them.",
        ),
    ] = False,
    master: MasterOption = "local[*]",
) -> None:
    """Reinitialize a publication, a subscription (-s) or an article (-a).

    A subscription or article gets the Publisher's rows again by a snapshot; a
    deactivated subscription is active afterwards. Without -s the whole
    publication is reinitialized in any state: slot, registration, stored
    commands, watermarks and the rows of every subscription.

    A subscription with sync_type: replication_support_only takes no snapshot:
    load its rows first, while nobody writes at the Publisher.
    """
    with failing_clearly():
        topology = load(file)
        publication = topology.publication
        if subscription is None:
            if article is not None:
                raise ConfigurationError("--article without --subscription", remedy="name the subscription with -s")
            _reinitialize_publication(topology, Rows.KEPT if log_reader else Rows.SNAPSHOT, master)
            return
        if log_reader:
            raise ConfigurationError(
                "--log-reader with --subscription", remedy="the log is read for all subscriptions: leave -s out"
            )
        articles = chosen_article(publication, article)
        if publication.subscription(subscription).sync_type is SyncType.AUTOMATIC:
            request = SnapshotRequest(publication=publication, subscription=subscription, articles=articles)
            mark_for_reinitialization(request, topology)
            result = take_snapshot(topology, subscription, articles, master)
            report({subscription: result}, as_json=False)
            raise_first({subscription: result})
            return
        if articles:
            raise ConfigurationError(
                f"--article: subscription {subscription} takes no snapshots",
                remedy="give it `sync_type: automatic` in the file, or load the rows by hand and leave --article out",
            )
        start = reinitialize(topology, subscription)
        out.print(f"{subscription}: begins after 0x{start.hex()}")


def _reinitialize_publication(topology: Topology, rows: Rows, master: str) -> None:
    with err.status("checking"):
        checked = check_publication(topology, PURPOSE_OF[rows])
    warn(checked.warnings)
    fail_on(checked.blocking)
    results = reinitialize_publication(
        topology,
        checked,
        rows,
        lambda: read_log(topology, master),
        lambda name: take_snapshot(topology, name, (), master),
        lambda what: out.print(f"  {escape(what)}", highlight=False),
    )
    if results:
        report(results, as_json=False)
    raise_first(results)
