"""Databases that are down, connections that are cut, also in the middle of COMMIT, workers that are killed: an error
that says so, nothing lost, nothing done twice."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from conftest import DatabasesFactory
from support.child_job import DISTRIBUTION, ChildJob
from support.continuous_delivery import delivering
from support.continuous_reader import wait_for
from support.databases import Databases
from support.embedded_postgres import PostgresServer, ServerSettings
from support.failing_jobs import Job, error_of, locked
from support.in_process import deliver_stored, read_log_into_store
from support.observed import (
    TRANSACTIONS_MADE,
    assert_each_change_is_stored_once,
    assert_each_change_was_made_once,
    audited_site,
    distribution_rows,
    make_transactions,
    watermark,
)
from support.processes import command_of, descendants, kill, parent_of, process_ids
from support.proxy import Cut, Proxy, When
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.admin.cleanup import clean_up
from tranrepl.errors import ErrorKind
from tranrepl.spark.without_pandas import map_in_arrow

pytestmark = pytest.mark.new_sessions


@contextmanager
def _network(site: Site) -> Iterator[dict[str, Proxy]]:
    """Put a proxy before each database of the site's jobs."""
    with ExitStack() as stack:
        proxies = {name: stack.enter_context(Proxy(it)) for name, it in site.connections.items()}
        direct, site.connections = site.connections, {name: proxy.connection for name, proxy in proxies.items()}
        yield proxies
        site.connections = direct


def test_a_database_that_is_down_is_a_transient_error_and_changes_nothing(site: Site) -> None:
    with _network(site) as proxies:
        for job, needed in ((read_log_into_store, "publisher"), (read_log_into_store, "distribution")):
            _assert_refused(job, site, proxies[needed])
        assert distribution_rows(site, "SELECT count(*) FROM msrepl_batches") == [(0,)]
        read_log_into_store(site).raise_error()
        before = watermark(site)
        for job, needed in ((deliver_stored, "distribution"), (deliver_stored, "subscriber")):
            _assert_refused(job, site, proxies[needed])
        assert watermark(site) == before
        # The Publisher is not needed to deliver.
        proxies["publisher"].break_down()
        deliver_stored(site).raise_error()
    assert_each_change_was_made_once(site)


def _assert_refused(job: Job, site: Site, proxy: Proxy) -> None:
    proxy.break_down()
    error = error_of(job, site)
    assert (error.kind, error.remedy) == (ErrorKind.TRANSIENT, "check host and port, and that the server runs")
    assert f"connection {proxy.connection}" in error.message
    proxy.repair()


_REGISTERS = b"INSERT INTO public.msrepl_batches"
_SETS_WATERMARK = b"SET transaction_timestamp"


def test_a_cut_log_reader_stores_all_once_when_rerun(site: Site) -> None:
    cuts = [
        ("publisher", Cut(b"pg_logical_slot_get_binary_changes", When.AFTER)),
        ("publisher", Cut(b"pg_replication_slot_advance", When.AFTER)),
        ("distribution", Cut(b"COMMIT", When.BEFORE, _REGISTERS)),
        ("distribution", Cut(b"COMMIT", When.AFTER, _REGISTERS)),
    ]
    for place, cut in cuts:
        site.at_publisher(*_MORE)
        with _network(site) as proxies:
            proxies[place].cut_at(cut)
            error = error_of(read_log_into_store, site)
            assert (proxies[place].has_cut(), error.kind, cut) == (True, ErrorKind.TRANSIENT, cut)
        read_log_into_store(site).raise_error()
        assert_each_change_is_stored_once(site)
    deliver_stored(site).raise_error()
    assert_each_change_was_made_once(site)


_MORE = ("UPDATE item SET xact = xact + 1 WHERE id % 7 = 0", "UPDATE item SET xact = xact + 1 WHERE id % 5 = 0")


def test_a_cut_delivery_makes_every_change_once_when_rerun(site: Site) -> None:
    cuts = [
        (Cut(b"COPY", When.AFTER), False),
        (Cut(b"COMMIT", When.BEFORE, _SETS_WATERMARK), False),
        (Cut(b"COMMIT", When.AFTER, _SETS_WATERMARK), True),
    ]
    for cut, commits in cuts:
        site.at_publisher(*_MORE)
        read_log_into_store(site).raise_error()
        before = watermark(site)
        with _network(site) as proxies:
            proxies["subscriber"].cut_at(cut)
            result = deliver_stored(site)
            assert proxies["subscriber"].has_cut()
        assert result.error is not None
        assert (result.error.kind, result.transactions, cut) == (ErrorKind.TRANSIENT, 0, cut)
        assert (watermark(site) > before) == commits
        deliver_stored(site).raise_error()
        assert_each_change_was_made_once(site)


def test_a_crashed_subscriber_loses_watermark_and_rows_together(databases: DatabasesFactory, tmp_path: Path) -> None:
    with PostgresServer(ServerSettings(tmp_path / "server", fsync=False)) as server:
        server.create_database("subscriber")
        others = databases()
        site = audited_site(
            Databases(others.publisher, server.connection("subscriber"), others.distribution), tmp_path / "store"
        )
        make_transactions(site, TRANSACTIONS_MADE)
        read_log_into_store(site).raise_error()
        with locked(site.databases.subscriber, "item") as held_up, ChildJob(DISTRIBUTION, site) as job:
            held_up()
            server.kill()
            crashed = job.result().error
        assert crashed is not None
        assert crashed.kind is ErrorKind.TRANSIENT
        assert error_of(deliver_stored, site).kind is ErrorKind.TRANSIENT
        server.start()
        deliver_stored(site).raise_error()
        assert_each_change_was_made_once(site)


@pytest.mark.slow
def test_clean_up_leaves_what_a_subscriber_needs_that_crashes_right_after_it(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    late = {"wal_writer_delay": "10s"}
    with PostgresServer(ServerSettings(tmp_path / "server", fsync=False, options=late)) as server:
        server.create_database("subscriber")
        others = databases()
        ends = Databases(others.publisher, server.connection("subscriber"), others.distribution)
        site = audited_site(ends, tmp_path / "store", SparkHere())
        with delivering(site) as delivery:
            make_transactions(site, TRANSACTIONS_MADE)
            site.read_log().raise_error()
            delivery.wait_until_delivered()
            site.at_publisher("UPDATE item SET xact = 0")
            site.read_log().raise_error()
            delivery.wait_until_delivered()
            assert clean_up(site.topology).batches > 0
            server.kill()
            server.start()
            delivery.asked.ask()
        site.deliver().raise_error()
        assert_each_change_was_made_once(site)


def test_a_python_worker_that_is_killed_is_a_transient_error(
    databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    site = audited_site(databases(), tmp_path / "store", spark)
    make_transactions(site, TRANSACTIONS_MADE)
    site.read_log().raise_error()
    with ThreadPoolExecutor(1) as pool, locked(site.databases.subscriber, "item") as held_up:
        delivery = pool.submit(error_of, Site.deliver, site)
        held_up()
        _kill_python_workers()
        error = delivery.result()
    assert error.kind is ErrorKind.TRANSIENT
    assert "Python worker" in error.message
    site.deliver().raise_error()
    assert_each_change_was_made_once(site)


def test_a_python_worker_that_is_killed_as_it_begins_is_a_transient_error(
    databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    site = audited_site(databases(), tmp_path / "store", spark)
    make_transactions(site, TRANSACTIONS_MADE)
    site.read_log().raise_error()
    with _no_python_workers_begin():
        error = error_of(Site.deliver, site)
    _until_only_live_workers_are_idle(spark)
    assert (error.kind, len(error.message.splitlines())) == (ErrorKind.TRANSIENT, 1), error
    assert "Python worker" in error.message
    site.deliver().raise_error()
    assert_each_change_was_made_once(site)


@contextmanager
def _no_python_workers_begin() -> Iterator[None]:
    """Kill the daemon of this process's Spark with its workers, and each that comes after it as soon as it is there."""
    ended, killed = threading.Event(), set[int]()

    def kill_each() -> None:
        while not ended.is_set():
            for pid in descendants(os.getpid()):
                if _is_pyspark(pid):
                    kill(pid)
                    killed.add(pid)

    killing = threading.Thread(target=kill_each)
    killing.start()
    try:
        yield
    finally:
        ended.set()
        killing.join()
        # Spark takes an idle worker for alive until init has reaped it.
        wait_for(lambda: not killed & set(process_ids()), 30.0)


def _until_only_live_workers_are_idle(spark: Any) -> None:
    """Run two tasks at once, of each of the two kinds that our jobs have, until they succeed several times on end.

    Spark hands out the idle workers of a kind in turn, and a dead one whose daemon is dead as well fails the task that
    gets it, in whichever test that is.
    """
    succeeded = 0

    def succeeds_again() -> bool:
        nonlocal succeeded
        try:
            map_in_arrow(spark.range(0, 2, 1, 2), iter, "id long").collect()
            spark.sparkContext.parallelize(range(2), 2).map(lambda it: it).collect()
        except (PySparkException, Py4JJavaError):
            succeeded = 0
        else:
            succeeded += 1
        return succeeded == 4

    wait_for(succeeds_again, 60.0)


@pytest.mark.slow
def test_a_delivery_that_stays_up_outlives_its_worker(databases: DatabasesFactory, tmp_path: Path, spark: Any) -> None:
    site = audited_site(databases(), tmp_path / "store", SparkHere())
    with delivering(site, spark=spark) as delivery:
        with locked(site.databases.subscriber, "item") as held_up:
            make_transactions(site, TRANSACTIONS_MADE)
            site.read_log().raise_error()
            held_up()
            _kill_python_workers()
        delivery.wait_until_delivered()
        site.at_publisher("UPDATE item SET xact = 0")
        site.read_log().raise_error()
        delivery.wait_until_delivered()
        result = delivery.result()
    assert (result.error, result.transactions) == (None, TRANSACTIONS_MADE + 1)
    assert_each_change_was_made_once(site)


def _kill_python_workers() -> None:
    """Kill the Python workers of this process's Spark: they are children of its daemon, which is the JVM's child."""
    for pid in process_ids():
        daemon = parent_of(pid)
        if _is_pyspark(pid) and _is_pyspark(daemon) and parent_of(parent_of(daemon)) == os.getpid():
            kill(pid)


def _is_pyspark(pid: int) -> bool:
    return b"pyspark.daemon" in command_of(pid)
