"""`synchronized_standby_slots`: no Subscriber gets what the Publisher's standby does not have, and waiting for it is
bounded and reported.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.continuous_reader import continuous_reader, registered_commands, wait_for
from support.embedded_postgres import PostgresServer
from support.in_process import read_log_into_store
from support.item_site import DATABASE, assert_goes_on, command, insert, item_site, run
from support.server_copies import STANDBY_SLOT, catch_up, standby_of
from support.site import Site
from tranrepl.errors import TransientError

_LONGEST_RUN_SECONDS = 55.0
"""Less than what a job waits where a standby must have the log."""


@pytest.fixture
def site(own_server: PostgresServer, databases: DatabasesFactory, tmp_path: Path) -> Site:
    site = item_site(own_server, databases(), tmp_path)
    insert(site, 1, 3, "before")
    run(site)
    return site


@pytest.fixture
def standby(own_server: PostgresServer, site: Site, server_folder: Path, tmp_path: Path) -> Iterator[PostgresServer]:
    """Yield the standby that the Publisher waits for."""
    with standby_of(own_server, server_folder / f"{tmp_path.name}_standby", DATABASE) as standby:
        _wait_for(site, STANDBY_SLOT)
        catch_up(own_server, standby)
        yield standby


def _wait_for(site: Site, slots: str) -> None:
    """Change the setting, and return once it holds."""
    site.at_publisher(f"ALTER SYSTEM SET synchronized_standby_slots = '{slots}'", "SELECT pg_reload_conf()")
    while site.at_publisher("SHOW synchronized_standby_slots") != [(slots,)]:
        time.sleep(0.01)


def _ids(site: Site) -> list[int]:
    return [row[0] for row in site.at_subscriber("SELECT id FROM item ORDER BY id")]


def test_what_a_standby_does_not_have_waits_and_the_run_says_for_whom(
    standby: PostgresServer, site: Site, tmp_path: Path
) -> None:
    insert(site, 4, 5, "with the standby")
    run(site)
    assert _ids(site) == [1, 2, 3, 4, 5]
    standby.stop()
    insert(site, 6, 7, "without it")
    started = time.monotonic()
    result = read_log_into_store(site)
    run(site)
    outcome = command(site, tmp_path, "run")
    assert time.monotonic() - started < _LONGEST_RUN_SECONDS
    assert (result.error, _ids(site)) == (None, [1, 2, 3, 4, 5])
    whom = f"no further than the standby of replication slot {STANDBY_SLOT} (inactive, at"
    assert [it for it in result.notices if whom in it] != []
    assert outcome.status == 0
    for text in (outcome.err, command(site, tmp_path, "status").out):
        assert whom in " ".join(text.split())
    standby.start()
    _until_all_is_there(site)
    assert_goes_on(site, tmp_path)


@pytest.mark.new_sessions
def test_a_log_that_is_followed_waits_for_the_standby_and_answers_the_server(
    standby: PostgresServer, site: Site
) -> None:
    stream = "SELECT pid FROM pg_stat_replication WHERE application_name = 'tranrepl log reader'"
    site.at_publisher("ALTER SYSTEM SET wal_sender_timeout = '1s'", "SELECT pg_reload_conf()")
    with continuous_reader(site) as reader:
        insert(site, 4, 5, "with the standby")
        wait_for(lambda: registered_commands(site) == 5, 10.0)
        pid = site.at_publisher(stream)
        standby.stop()
        insert(site, 6, 7, "without it")
        time.sleep(3.0)
        assert registered_commands(site) == 5
        standby.start()
        wait_for(lambda: registered_commands(site) == 7)
        assert site.at_publisher(stream) == pid
        assert reader.stop().error is None
    run(site)
    assert _ids(site) == [1, 2, 3, 4, 5, 6, 7]


def _until_all_is_there(site: Site) -> None:
    deadline = time.monotonic() + _LONGEST_RUN_SECONDS
    while _ids(site) != [1, 2, 3, 4, 5, 6, 7]:
        assert time.monotonic() < deadline
        run(site)


@pytest.mark.slow
def test_a_slot_that_does_not_exist_stops_nothing_that_was_read(site: Site, tmp_path: Path) -> None:
    _wait_for(site, "nobody")
    insert(site, 4, 5, "after")
    result = read_log_into_store(site)
    assert result.error is None
    assert ["replication slot nobody (it does not exist, at 0/0)" in it for it in result.notices] == [True]
    assert _ids(site) == [1, 2, 3]
    _wait_for(site, "")
    run(site)
    assert_goes_on(site, tmp_path)


@pytest.mark.slow
def test_a_snapshot_waits_for_the_standby_too(standby: PostgresServer, site: Site) -> None:
    standby.stop()
    insert(site, 4, 5, "without the standby")
    site.publication = site.publication.model_copy(
        update={"publisher": site.publication.publisher.model_copy(update={"snapshot_timeout": 3})}
    )
    from tranrepl.jobs.requests import SnapshotRequest
    from tranrepl.snapshot.reinitialization import mark_for_reinitialization

    mark_for_reinitialization(SnapshotRequest(publication=site.publication, subscription="reporting"), site.topology)
    with pytest.raises(TransientError, match=f"the standby of replication slot {STANDBY_SLOT}"):
        site.take_snapshot()
    assert _ids(site) == [1, 2, 3]
    standby.start()
    site.take_snapshot()
    assert _ids(site) == [1, 2, 3, 4, 5]
