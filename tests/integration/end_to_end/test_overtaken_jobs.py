"""Jobs that meet another one at the same work, or go on after it: one does it, the other is fenced or fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from conftest import DatabasesFactory
from support.child_job import DISTRIBUTION, ChildJob
from support.failing_jobs import locked
from support.in_process import deliver_stored, read_log_into_store
from support.observed import (
    TRANSACTIONS_MADE,
    assert_each_change_is_stored_once,
    assert_each_change_was_made_once,
    audited_site,
    distribution_rows,
    make_transactions,
    wait_until,
    watched,
)
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.connections import Connection
from tranrepl.distributor.database.batches import Batches
from tranrepl.distributor.database.publications import PublicationRecord, Publications
from tranrepl.errors import ErrorKind

pytestmark = pytest.mark.new_sessions

_END_JOBS = (
    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
    "WHERE datname = current_database() AND application_name LIKE 'tranrepl%'"
)


def test_a_delivery_that_goes_on_where_another_one_has_delivered_is_fenced(site: Site) -> None:
    # It stops after it has read its watermark, before its first transaction.
    read_log_into_store(site).raise_error()
    with _delivery_stopped_at(site, site.databases.distribution, "msrepl_batches") as job:
        delivered = deliver_stored(site)
        job.go_on()
        late = job.result()
    assert (delivered.error, delivered.transactions) == (None, TRANSACTIONS_MADE)
    assert late.error is not None
    assert (late.error.kind, late.transactions) == (ErrorKind.FENCED, 0)
    assert_each_change_was_made_once(site)


def test_a_delivery_changes_nothing_after_its_transaction_was_ended(site: Site) -> None:
    # It stops inside its transaction; the server ends sessions whose client it believes dead.
    read_log_into_store(site).raise_error()
    with _delivery_stopped_at(site, site.databases.subscriber, "item") as job:
        site.at_subscriber(_END_JOBS)
        delivered = deliver_stored(site)
        job.go_on()
        late = job.result()
    assert (delivered.error, delivered.transactions) == (None, TRANSACTIONS_MADE)
    assert late.error is not None
    assert (late.error.kind, late.transactions) == (ErrorKind.TRANSIENT, 0)
    assert_each_change_was_made_once(site)


def test_a_log_reader_goes_on_after_one_that_overtook_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    # It reads how far the log is registered; another registers more, and advances; then it looks at the slot.
    original = Publications.get

    def overtaken(publications: Publications, name: str) -> PublicationRecord:
        record = original(publications, name)
        monkeypatch.undo()
        read_log_into_store(site).raise_error()
        return record

    monkeypatch.setattr(Publications, "get", overtaken)
    late = read_log_into_store(site)
    assert (late.error, late.transactions) == (None, 0)
    assert_each_change_is_stored_once(site)


def test_of_two_deliveries_at_once_one_delivers_and_the_other_does_nothing(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = audited_site(databases(), tmp_path / "store", SparkHere(), step=None)
    make_transactions(site, 300)
    stored = site.read_log()
    with ThreadPoolExecutor(2) as pool:
        with _locked_watermark(site) as waiting:
            deliveries = [pool.submit(site.deliver) for _ in range(2)]
            wait_until(lambda: waiting() == len(deliveries))
        results = [delivery.result() for delivery in deliveries]
    fenced, delivered = sorted(results, key=lambda result: result.error is None)
    assert (delivered.error, delivered.commands) == (None, stored.commands)
    assert fenced.error is not None
    assert (fenced.error.kind, fenced.transactions, fenced.commands) == (ErrorKind.FENCED, 0, 0)
    assert_each_change_was_made_once(site)


@contextmanager
def _delivery_stopped_at(site: Site, connection: Connection, table: str) -> Iterator[ChildJob]:
    """Begin a delivery, and stop its process where it first comes to the table."""
    with ExitStack() as until_its_end:
        with locked(connection, table) as held_up:
            job = until_its_end.enter_context(ChildJob(DISTRIBUTION, site))
            held_up()
            job.stop()
        yield job


@contextmanager
def _locked_watermark(site: Site) -> Iterator[Callable[[], int]]:
    """Hold up deliveries where they read their watermark, so that they go on from the same one. Yields how many wait
    there.
    """
    subscriber = site.databases.subscriber
    waiting = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with watched(subscriber) as look, psycopg.connect(**subscriber.libpq_parameters("test")) as lock:  # type: ignore[arg-type]
        lock.execute("SELECT FROM msreplication_subscriptions FOR UPDATE")
        yield lambda: len(look(waiting))


def test_of_two_log_readers_at_once_one_stores_and_the_other_is_fenced(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    # The second one reads and registers all while the first one is about to register the same.
    site = audited_site(databases(), tmp_path / "store", SparkHere(), step=None)
    make_transactions(site, 60)
    original, faster = Batches.register, threading.Event()

    def overtaken(*arguments: Any, **named: Any) -> Any:
        if not faster.is_set():
            faster.set()
            assert site.read_log().transactions == 60
        return original(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Batches, "register", overtaken)
        result = site.read_log()
    assert result.error is not None
    assert (result.error.kind, result.transactions) == (ErrorKind.FENCED, 0)
    assert distribution_rows(site, "SELECT count(DISTINCT folder) FROM msrepl_batches") == [(1,)]
    assert_each_change_is_stored_once(site)
    site.run()
    assert_each_change_was_made_once(site)
