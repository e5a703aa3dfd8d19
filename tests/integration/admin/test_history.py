"""What history and status say of runs that go on, succeed, idle and fail."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from conftest import DatabasesFactory
from support.observed import ITEM, distribution_rows, insert_transactions, wait_until
from support.shell import publication_file, typed
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.admin.status import SubscriptionStatus, status
from tranrepl.cli import agents, run_display
from tranrepl.distribution.delivery import Tally
from tranrepl.distribution.recording import ReportedRun, reporting_progress
from tranrepl.distributor.database import RunRow
from tranrepl.distributor.database.history import History
from tranrepl.errors import ConfigurationError, ReplicationError, TransientError
from tranrepl.jobs.results import JobResult
from tranrepl.topology import Topology


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    site = Site(
        databases(),
        tmp_path / "store",
        ["public.item"],
        SparkHere(),
        log_reader={"read_batch_size": 2},
        latency_threshold=600,
    )
    site.at_publisher(ITEM)
    site.set_up()
    return site


def _status(site: Site) -> SubscriptionStatus:
    (subscription,) = status(site.topology).subscriptions
    return subscription


def test_a_run_tells_how_it_goes_on(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, int, int, bool]] = []

    def telling(method: Callable[[History, RunRow, JobResult], None]) -> Any:
        def tell(history: History, row: RunRow, result: JobResult) -> None:
            method(history, row, result)
            table = "msdistribution_history" if row.subscription else "mslogreader_history"
            (seen,) = distribution_rows(
                site, f"SELECT runstatus, delivered_commands, delivery_latency >= 0 FROM {table} WHERE id = {row.id}"
            )
            told.append((table, *seen))

        return tell

    for name in ("record_progress", "end_run"):
        monkeypatch.setattr(History, name, telling(getattr(History, name)))
    insert_transactions(site, 1, 2, 3)
    site.run()
    reader, delivery = "mslogreader_history", "msdistribution_history"
    read = [(reader, 3, 3, True), (reader, 3, 6, True), (reader, 2, 6, True)]
    assert told == [*read, (delivery, 3, 6, True), (delivery, 2, 6, True)]
    rate = "delivered_transactions, delivery_rate > 0, xact_seqno IS NOT NULL, commands_by_article::text"
    for table in (reader, delivery):
        assert distribution_rows(site, f"SELECT {rate} FROM {table}") == [(3, True, True, '{"public.item": 6}')]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("streams", [1, 2])
def test_what_is_committed_is_told_while_a_delivery_goes_on(
    databases: DatabasesFactory, tmp_path: Path, here: SparkHere, streams: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Look into the history and at the shell's progress while a delivery goes on."""
    subscription = {"name": "reporting", "connection": "subscriber", "commit_batch_size": 1}
    subscription |= {"subscription_streams": streams, "lock_timeout": 60, "sync_type": "replication_support_only"}
    site = Site(databases(), tmp_path / "store", ["public.item"], here, [subscription])
    file = publication_file(tmp_path, [{"source": "public.item"}], subscriptions=[subscription])
    monkeypatch.setattr(run_display, "_LINE_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(agents, "submit", lambda *_, **__: site.run_distribution("reporting"))
    site.at_publisher(ITEM)
    site.set_up()
    insert_transactions(site, 1)
    site.run()
    insert_transactions(site, 7)
    site.at_publisher("UPDATE item SET note = 'held' WHERE id = 1")
    site.read_log().raise_error()
    newest = "FROM msdistribution_history ORDER BY id DESC LIMIT 1"
    subscriber = site.databases.subscriber.libpq_parameters("test")
    with ThreadPoolExecutor(1) as thread, psycopg.connect(**subscriber) as at_subscriber:  # type: ignore[arg-type]
        at_subscriber.execute("SELECT id FROM item WHERE id = 1 FOR UPDATE")
        delivery = thread.submit(typed, "distribute", file, environment=site.databases.environment)
        try:
            wait_until(
                lambda: (
                    distribution_rows(site, f"SELECT delivered_transactions, delivered_commands {newest}") == [(1, 7)]
                ),
                lambda: not delivery.done(),
            )
            row = distribution_rows(
                site,
                f"SELECT runstatus, commands_by_article::text, comments, delivery_rate > 0 {newest}",
            )
            # Long enough for a look.
            time.sleep(1.5)
        finally:
            at_subscriber.rollback()
        outcome = delivery.result()
    assert outcome.status == 0, outcome
    assert "reporting: 7 of 8 commands" in outcome.err
    comments = "1 transaction with 7 commands delivered."
    assert row == [(3, '{ "public.item" : 7 }', comments, True)]
    ended = distribution_rows(site, f"SELECT runstatus, delivered_commands, commands_by_article::text {newest}")
    assert ended == [(2, 8, '{"public.item": 8}')]
    ((read,),) = distribution_rows(site, "SELECT comments FROM mslogreader_history ORDER BY id DESC LIMIT 1")
    assert read.endswith(" with 8 commands stored.")


def test_a_delivery_does_without_a_history_that_it_cannot_reach(site: Site) -> None:
    site_away = replace(site.connections["distribution"], port=1)
    with reporting_progress(ReportedRun(site_away, 1), Tally(commands=5)):
        time.sleep(1.2)


def test_a_job_that_was_killed_leaves_what_it_last_told(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    insert_transactions(site, 1, 1, 1)
    site.read_log().raise_error()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(History, "end_run", killed)
    with pytest.raises(KeyboardInterrupt):
        site.deliver()
    assert distribution_rows(site, "SELECT runstatus, delivered_commands FROM msdistribution_history") == [(3, 3)]
    assert _status(site).state == "Running"


_AWAY: dict[str, Any] = {"port": 1}
_REFUSED: dict[str, Any] = {"database": "nowhere"}


@pytest.mark.parametrize(
    ("end", "changed", "error", "run_status"),
    [
        ("publisher", _AWAY, TransientError, 5),
        ("subscriber", _AWAY, TransientError, 5),
        ("subscriber", _REFUSED, ConfigurationError, 6),
    ],
    ids=["publisher away", "subscriber away", "subscriber refused"],
)
def test_a_run_that_cannot_open_its_end_has_failed(
    site: Site, end: str, changed: dict[str, Any], error: type[ReplicationError], run_status: int
) -> None:
    agent, probe = {
        "publisher": ("mslogreader_history", site.probe_log),
        "subscriber": ("msdistribution_history", lambda: site.probe_batches("reporting")),
    }[end]
    there = site.connections[end]
    site.connections[end] = replace(there, **changed)
    with pytest.raises(error):
        probe()
    ((ended, comments),) = distribution_rows(site, f"SELECT runstatus, comments FROM {agent}")
    assert (ended, f"connection {end}" in comments) == (run_status, True), comments
    site.connections[end] = there
    assert probe() is not None
    assert distribution_rows(site, f"SELECT runstatus FROM {agent} ORDER BY id") == [(run_status,), (4,)]
    assert status(site.topology).wrong == []


def test_a_publisher_that_refuses_is_nothing_that_setup_mends(site: Site) -> None:
    site.connections["publisher"] = replace(site.connections["publisher"], **_REFUSED)
    with pytest.raises(ConfigurationError):
        site.probe_log()
    with site.topology.distributor() as database:
        assert not database.history.log_reader_has_failed(database.publications.get("purchasing"))


def test_a_snapshot_that_cannot_open_the_subscriber_is_a_failed_run(site: Site) -> None:
    site.connections["subscriber"] = replace(site.connections["subscriber"], port=1)
    with pytest.raises(TransientError):
        site.take_snapshot()
    ((ended, comments),) = distribution_rows(site, "SELECT runstatus, comments FROM msdistribution_history")
    assert (ended, "connection subscriber" in comments) == (5, True), comments
    assert _status(site).state == "Retrying failed command"


def test_a_run_that_is_refused_has_failed(site: Site) -> None:
    insert_transactions(site, 1)
    site.read_log().raise_error()
    for folder in Path(site.publication.distributor.store).glob("[!_]*"):
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
    try:
        error = site.deliver().error
    except ConfigurationError as refusal:
        error = refusal.report
    assert error is not None
    runs = distribution_rows(
        site,
        "SELECT runstatus, error_text, remedy FROM msdistribution_history h JOIN msrepl_errors e ON e.id = h.error_id",
    )
    assert runs == [(6, error.message, error.remedy)]
    assert _status(site).state == "Failed"


def test_status_tells_in_replication_monitors_words(site: Site, tmp_path: Path) -> None:
    assert (_status(site).state, _status(site).last_latency_seconds) == ("Uninitialized", None)
    insert_transactions(site, 5)
    site.read_log().raise_error()
    never = _status(site)
    assert (never.undelivered_transactions, never.undelivered_commands, never.estimated_seconds) == (1, 5, None)
    site.deliver().raise_error()
    site.deliver().raise_error()
    delivered = _status(site)
    assert (delivered.state, delivered.undelivered_commands, delivered.last_error) == ("Idle", 0, None)
    assert delivered.latency_seconds is None
    assert 0 <= (delivered.last_latency_seconds or 0) < 60

    site.at_subscriber("DELETE FROM item WHERE id = 1")
    site.at_publisher("UPDATE item SET note = 'x' WHERE id = 1")
    site.read_log().raise_error()
    distribution_rows(site, "UPDATE msdistribution_history SET delivery_rate = 0.25 WHERE runstatus = 2")
    assert site.deliver().error is not None
    failed = _status(site)
    assert (failed.state, failed.estimated_seconds) == ("Failed", None)
    assert failed.last_error is not None
    assert (failed.last_error.number, failed.last_error.article) == ("20598", "public.item")
    file = publication_file(tmp_path, [{"source": "public.item"}])
    text = typed("status", file, environment=site.databases.environment).out
    assert "reporting: Failed\n" in text
    assert "1 transaction (1 command) to deliver, waiting" in text
    assert f"last error 20598 in 0x{failed.last_error.xact_seqno}, command 1, article public.item at 2" in text

    for age, state in (
        (timedelta(minutes=10), "Performance critical"),
        (timedelta(hours=58), "Expiring soon"),
    ):
        distribution_rows(
            site,
            "UPDATE msdistribution_history SET runstatus = 4",
            "UPDATE msrepl_errors SET skipped = true",
            f"UPDATE msrepl_batches SET first_commit_time = now() - interval '{age}'",
        )
        unhurried = site.publication.model_copy(update={"latency_threshold": None})
        publication = site.publication if state == "Performance critical" else unhurried
        assert status(Topology(publication, site.connections)).subscriptions[0].state == state
    for runstatus, state in ((5, "Retrying failed command"), (1, "Running"), (6, "Failed")):
        distribution_rows(
            site,
            "UPDATE msrepl_batches SET first_commit_time = now()",
            f"UPDATE msdistribution_history SET runstatus = {runstatus}",
        )
        assert _status(site).state == state
    distribution_rows(site, "UPDATE mssubscriptions SET status = 'inactive'")
    assert _status(site).state == "Expired"


def test_the_monitor_says_of_a_subscription_what_the_status_says(site: Site) -> None:
    def require_same() -> SubscriptionStatus:
        told = _status(site)
        with site.topology.distributor() as database:
            ((known,),) = [it.subscriptions for it in database.overview.of(["purchasing"], timedelta(days=1), 1)]
        estimated = None if known.estimated_seconds is None else int(known.estimated_seconds)
        waiting = (known.backlog.commands, estimated, known.last_latency_seconds)
        assert (told.state, told.watermark) == (known.state(site.publication), known.watermark.hex())
        assert (told.undelivered_commands, told.estimated_seconds, told.last_latency_seconds) == waiting
        return told

    assert require_same().state == "Uninitialized"
    insert_transactions(site, 5)
    site.read_log().raise_error()
    assert require_same().undelivered_commands == 5
    site.deliver().raise_error()
    assert require_same().undelivered_commands == 0
    insert_transactions(site, 3)
    site.read_log().raise_error()
    distribution_rows(site, "UPDATE msdistribution_history SET delivery_rate = 0.25 WHERE runstatus = 2")
    assert require_same().estimated_seconds == 12
    with site.topology.distributor() as database:
        record = database.publications.get("purchasing")
        database.snapshots.subscribe(database.subscriptions.get(record, "reporting"), ["public.item"], whole=True)
    waiting = require_same()
    assert (waiting.state, waiting.undelivered_commands) == ("Uninitialized", 0)
