"""Jobs killed by SIGKILL before and after every change of state, and run again: every change is made once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import psycopg
import pytest

from conftest import DatabasesFactory
from support.child_job import CLEANUP, DISTRIBUTION, LOG_READER, LOG_READER_OF_TWO_RANGES, ChildJob, Job
from support.continuous_delivery import deliver_continuously
from support.databases import Databases
from support.embedded_postgres import PostgresServer, ServerSettings
from support.mariadb import MariaDbServer
from support.object_server import Bucket
from support.observed import (
    assert_each_change_is_stored_once,
    assert_each_change_was_made_once,
    assert_each_change_was_made_once_in_any_order,
    audited_site,
    distribution_rows,
    insert_transactions,
    make_transactions,
    wait_until,
)
from support.publishers import SERVERS, new_mariadb_database
from support.site import Site, execute
from support.stored_batches import clean_up_at_once, stored_folders
from tranrepl.connections import Connection
from tranrepl.errors import ErrorKind
from tranrepl.failpoint import Failpoint
from tranrepl.settings.publication import StreamAssignment

_TRANSACTIONS = 70
"""Enough for several batches and commit batches."""

_OF_LOG_READER = [
    Failpoint.FETCHED,
    Failpoint.STORED,
    Failpoint.REGISTERED,
    Failpoint.ADVANCED,
]
_OF_ONE_CONNECTION = [
    Failpoint.BEGIN,
    Failpoint.APPLIED,
    Failpoint.BEFORE_COMMIT,
    Failpoint.WATERMARK_SET,
    Failpoint.AFTER_COMMIT,
]

_OF_STREAMS = [
    f"{Failpoint.BEGIN}@0",
    f"{Failpoint.BEGIN}@1",
    f"{Failpoint.APPLIED}@1",
    f"{Failpoint.VOTED}@0",
    f"{Failpoint.VOTED}@1",
    f"{Failpoint.STREAM_COMMITTED}@1",
    f"{Failpoint.BEFORE_COMMIT}@0",
    f"{Failpoint.WATERMARK_SET}@0",
    f"{Failpoint.AFTER_COMMIT}@0",
]


@pytest.fixture
def site(databases: DatabasesFactory, store: Path | Bucket) -> Site:
    return audited_site(databases(), store)


@pytest.fixture(params=["mounted path", *(pytest.param(it, marks=pytest.mark.slow) for it in ("bucket", *SERVERS))])
def site_of_each_kind(request: pytest.FixtureRequest, databases: DatabasesFactory, tmp_path: Path) -> Site:
    """Return a site with a store of each kind, and one of each kind of Publisher."""
    if request.param == "bucket":
        return audited_site(databases(), request.getfixturevalue("bucket"))
    ends = databases()
    if request.param in SERVERS:
        server: MariaDbServer = request.getfixturevalue("publishing")(request.param)
        ends = replace(ends, publisher=server.connection(new_mariadb_database(server), "publisher"))
    return audited_site(ends, tmp_path / "store")


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("failpoint", _OF_LOG_READER)
def test_a_log_reader_killed_anywhere_stores_all_once_when_rerun(failpoint: Failpoint, site_of_each_kind: Site) -> None:
    site = site_of_each_kind
    make_transactions(site, _TRANSACTIONS)
    _kill_first_and_second_time(LOG_READER, site, failpoint)
    _run(LOG_READER, site)
    assert_each_change_is_stored_once(site)
    _run(DISTRIBUTION, site)
    assert_each_change_was_made_once(site)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("failpoint", [Failpoint.STORED, Failpoint.REGISTERED])
def test_a_log_reader_killed_at_either_of_two_ranges_stores_all_once(
    failpoint: Failpoint, databases: DatabasesFactory, store: Path | Bucket
) -> None:
    site = audited_site(databases(), store, step=1000)
    make_transactions(site, 10 * _TRANSACTIONS)
    _kill_first_and_second_time(LOG_READER_OF_TWO_RANGES, site, failpoint)
    _run_in_child(LOG_READER_OF_TWO_RANGES, site)
    at_least = 2
    if _batches(site) == 1:
        # The ranges are of one length, and what else the server wrote meanwhile may have been one of them.
        insert_transactions(site, *[1] * 5 * _TRANSACTIONS)
        _run_in_child(LOG_READER_OF_TWO_RANGES, site)
        at_least = 3
    assert _batches(site) >= at_least
    assert_each_change_is_stored_once(site)
    _run(DISTRIBUTION, site)
    assert_each_change_was_made_once(site)


def _batches(site: Site) -> int:
    ((batches,),) = distribution_rows(site, "SELECT count(*) FROM msrepl_batches")
    return int(batches)


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("failpoint", _OF_ONE_CONNECTION)
def test_a_delivery_killed_anywhere_makes_every_change_once_when_run_again(
    failpoint: Failpoint, site_of_each_kind: Site
) -> None:
    site = site_of_each_kind
    make_transactions(site, _TRANSACTIONS)
    _run(LOG_READER, site)
    _kill_first_and_second_time(DISTRIBUTION, site, f"{failpoint}@0")
    _run(DISTRIBUTION, site)
    assert_each_change_was_made_once(site)


@pytest.mark.parametrize(
    "failpoint",
    [it if "commit" in it else pytest.param(it, marks=pytest.mark.slow) for it in _OF_ONE_CONNECTION],
)
def test_a_delivery_killed_anywhere_while_it_stays_up_makes_every_change_once(failpoint: Failpoint, site: Site) -> None:
    for nth in (1, 3):
        with ChildJob(deliver_continuously, site, f"{failpoint}:{nth}") as job:
            # Nothing is stored yet: it is its lasting task that is killed.
            wait_until(lambda: _listens(site), job.runs)
            if nth == 1:
                make_transactions(site, _TRANSACTIONS)
            else:
                site.at_publisher(*(f"UPDATE item SET note = 'again' WHERE id = {n}" for n in range(_TRANSACTIONS)))
            _run(LOG_READER, site)
            assert job.killed()
        _run(DISTRIBUTION, site)
    assert_each_change_was_made_once(site)


@pytest.mark.parametrize(
    ("failpoint", "assignment"),
    [
        pytest.param(*it, marks=[pytest.mark.slow] if it[1] is StreamAssignment.DEPENDENCIES else [])
        for it in zip(_OF_STREAMS, cycle(StreamAssignment), strict=False)
    ],
)
def test_streams_killed_anywhere_make_every_change_once_when_run_again(
    failpoint: str, assignment: StreamAssignment, databases: DatabasesFactory, store: Path | Bucket
) -> None:
    site = audited_site(databases(), store, subscription_streams=2, stream_assignment=assignment)
    make_transactions(site, _TRANSACTIONS)
    _run(LOG_READER, site)
    assert ChildJob(DISTRIBUTION, site, f"{failpoint}:2").killed()
    _run(DISTRIBUTION, site)
    assert_each_change_was_made_once_in_any_order(site)


@pytest.fixture(scope="module")
def crashing_server(server_folder: Path) -> Iterator[PostgresServer]:
    """Yield a server of its own: where one backend is killed, all of them end."""
    with PostgresServer(ServerSettings(server_folder / "crashing", fsync=False)) as server:
        server.make_logins_cheap()
        yield server


_BACKEND_KILLED_AT = (f"{Failpoint.STREAM_COMMITTED}@1", f"{Failpoint.BEFORE_COMMIT}@0", f"{Failpoint.AFTER_COMMIT}@0")


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    "failpoint",
    [it if it in _BACKEND_KILLED_AT else pytest.param(it, marks=pytest.mark.slow) for it in _OF_STREAMS],
)
def test_a_killed_subscriber_backend_gets_every_change_once(
    failpoint: str, crashing_server: PostgresServer, databases: DatabasesFactory, tmp_path: Path
) -> None:
    name = f"subscriber_{_OF_STREAMS.index(failpoint)}"
    wait_until(lambda: _accepts(crashing_server.connection("postgres")))
    crashing_server.create_database(name)
    others = databases()
    ends = Databases(others.publisher, crashing_server.connection(name), others.distribution)
    site = audited_site(ends, tmp_path / "store", subscription_streams=2)
    make_transactions(site, _TRANSACTIONS)
    _run(LOG_READER, site)
    with ChildJob(DISTRIBUTION, site, f"{failpoint}:2/stop") as job:
        job.wait_until_it_stands_still()
        rows = site.at_subscriber("SELECT pid FROM pg_stat_activity WHERE application_name = 'tranrepl reporting'")
        # The server ends all others itself.
        os.kill(rows[0][0], signal.SIGKILL)
        job.go_on()
        error = job.result().error
    assert len(rows) == 2
    assert error is None or error.kind is ErrorKind.TRANSIENT
    wait_until(lambda: _finishes(DISTRIBUTION, site))
    assert_each_change_was_made_once_in_any_order(site)


def _accepts(connection: Connection) -> bool:
    try:
        return execute(connection, "SELECT 1") == [(1,)]
    except psycopg.OperationalError:
        return False


def test_a_folder_left_by_a_killed_clean_up_is_removed_later(site: Site) -> None:
    make_transactions(site, _TRANSACTIONS)
    _run(LOG_READER, site)
    _run(DISTRIBUTION, site)
    folders = stored_folders(site)
    assert ChildJob(CLEANUP, site, Failpoint.UNREGISTERED).killed()
    assert distribution_rows(site, "SELECT count(*) FROM msrepl_batches") == [(0,)]
    assert len(folders) > 1
    for _ in range(2):
        # However often it is found, that was not long ago.
        _run(CLEANUP, site)
        assert stored_folders(site) == folders
    assert clean_up_at_once(site).orphan_folders == len(folders)
    assert stored_folders(site) == set()
    site.at_publisher("UPDATE item SET xact = 0")
    _run(LOG_READER, site)
    _run(DISTRIBUTION, site)
    assert_each_change_was_made_once(site)


def _listens(site: Site) -> bool:
    listening = (
        "SELECT 1 FROM pg_stat_activity WHERE application_name = 'tranrepl listening' AND datname = current_database()"
    )
    return bool(distribution_rows(site, listening))


def _kill_first_and_second_time(job: Job, site: Site, failpoint: str) -> None:
    for nth in (1, 2):
        assert ChildJob(job, site, f"{failpoint}:{nth}").killed()


def _run(job: Job, site: Site) -> None:
    """Run it here: only what is killed needs a process of its own."""
    job(site).raise_error()


def _run_in_child(job: Job, site: Site) -> None:
    ChildJob(job, site).result().raise_error()


def _finishes(job: Job, site: Site) -> bool:
    """Return whether the job succeeds. While the server recovers it may not, and the server takes connections until it
    notices that a backend was killed.
    """
    result = ChildJob(job, site).result()
    if result.error is not None and result.error.kind is ErrorKind.TRANSIENT:
        return False
    result.raise_error()
    return True
