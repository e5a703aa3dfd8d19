"""Servers with few replication slots: what `check` asks for is enough, and who takes the last one is waited for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from conftest import DatabasesFactory
from support.embedded_postgres import PostgresServer, ServerSettings
from support.equality import differing_rows
from support.in_process import deliver_stored, read_log_into_store
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.admin.check import check
from tranrepl.connections import Connection
from tranrepl.errors import ErrorKind, TransientError
from tranrepl.log_reader.reading import read_commands
from tranrepl.publisher.log_range import LogRange
from tranrepl.publisher.postgres import slot_messages

pytestmark = pytest.mark.new_sessions

_TABLE = "CREATE TABLE t (id int PRIMARY KEY, text text)"


@pytest.fixture(scope="module")
def two_slots(server_folder: Path) -> Iterator[PostgresServer]:
    options = {"max_replication_slots": "2", "max_wal_senders": "1"}
    with PostgresServer(ServerSettings(server_folder / "two_slots", fsync=False, options=options)) as server:
        server.make_logins_cheap()
        yield server


@pytest.fixture
def short_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut the log in two, however short it is."""
    monkeypatch.setattr(slot_messages, "_WORTH_TWO_SESSIONS", 0)


@pytest.fixture
def site(databases: DatabasesFactory, two_slots: PostgresServer, tmp_path: Path) -> Site:
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
    site = Site(databases(publisher=two_slots), tmp_path / "store", ["public.t"], SparkHere(), [subscription])
    site.at_publisher(_TABLE, "INSERT INTO t SELECT n, 'before' FROM generate_series(1, 10) n")
    return site


@contextmanager
def _slot(publisher: Connection, name: str, *, temporary: bool) -> Iterator[None]:
    """Create a slot that is not ours, for a while."""
    with psycopg.connect(**publisher.libpq_parameters("test"), autocommit=True) as session:  # type: ignore[arg-type]
        session.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput', %s)", [name, temporary])
        yield
        session.execute("SELECT pg_drop_replication_slot(%s)", [name])


def _change(site: Site, first: int) -> None:
    for number in range(first, first + 400, 10):
        site.at_publisher(f"INSERT INTO t SELECT n, repeat('x', 500) FROM generate_series({number}, {number + 9}) n")


@pytest.mark.usefixtures("short_ranges")
def test_one_slot_beside_the_publications_own_is_enough(site: Site) -> None:
    site.set_up()
    assert check(site.topology).problems == []
    site.take_snapshot()
    _change(site, 1000)
    read = read_log_into_store(site)
    assert (read.error, read.commands) == (None, 400)
    deliver_stored(site).raise_error()
    assert differing_rows(site) == {}
    # While the sync point's snapshot is held, the log is read.
    _change(site, 2000)
    site.validate().raise_error()
    assert differing_rows(site) == {}


def test_check_counts_what_setup_will_take(site: Site) -> None:
    with _slot(site.databases.publisher, "anothers", temporary=False):
        problems = check(site.topology).problems
        assert [it.message for it in problems] == [
            f"Publisher {site.databases.publisher.database}: 1 replication slots are free, 2 are needed"
        ]
    given = replace(site.topology.publisher_connection, options={"cursor": "dictcursor"})
    checked = check(replace(site.topology, connections={**site.topology.connections, given.connection_id: given}))
    assert checked.problems == []
    assert [it for it in checked.warnings if "of its extra is not used: cursor (" in it]


@pytest.mark.usefixtures("short_ranges")
def test_two_sessions_are_one_where_the_last_slot_is_gone(site: Site) -> None:
    site.set_up()
    _change(site, 1000)
    slot, start, up_to = site.at_publisher(
        "SELECT slot_name, confirmed_flush_lsn - '0/0'::pg_lsn, pg_current_wal_flush_lsn() - '0/0'::pg_lsn "
        "FROM pg_replication_slots"
    )[0]
    ends = slot_messages.range_ends(int(start), int(up_to))
    assert len(ends) == 2
    batches = slot_messages.slot_messages(site.databases.publisher, slot, int(start), ends)
    kinds = [message[:1] for batch in batches for message in batch.to_pylist()]
    assert kinds.count(b"I") == 400


@pytest.mark.usefixtures("short_ranges")
def test_a_second_range_without_a_free_slot_is_read_later(
    databases: DatabasesFactory, postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another job takes the slot that was free when the readings were planned.
    site = Site(databases(), tmp_path / "store", ["public.t"])
    site.at_publisher(_TABLE)
    site.set_up()
    _change(site, 1000)
    readings = list[LogRange]()

    def overtaken(log: LogRange, tell: Any) -> Iterator[pa.RecordBatch]:
        readings.append(log)
        if len(readings) != 2:
            return read_commands(log, tell)
        with _all_slots(postgres, site.databases.publisher):
            return iter(list(read_commands(log, tell)))

    monkeypatch.setattr("tranrepl.log_reader.storing.read_commands", overtaken)
    read = read_log_into_store(site)
    assert (read.error, read.commands) == (None, 400)
    assert len(readings) == 3
    deliver_stored(site).raise_error()
    assert differing_rows(site) == {}


@contextmanager
def _all_slots(server: PostgresServer, publisher: Connection) -> Iterator[None]:
    """Take all slots for a while."""
    with psycopg.connect(**publisher.libpq_parameters("test"), autocommit=True) as session:  # type: ignore[arg-type]
        with server.connect() as owner:
            ((free,),) = owner.execute(
                "SELECT current_setting('max_replication_slots')::int - count(*) FROM pg_replication_slots"
            ).fetchall()
        for number in range(int(str(free))):
            session.execute("SELECT pg_create_physical_replication_slot(%s, false, true)", [f"taken_{number}"])
        yield


def test_without_a_free_slot_the_reason_is_said(site: Site) -> None:
    site.set_up()
    _change(site, 1000)
    with _slot(site.databases.publisher, "for_now", temporary=True):
        error = read_log_into_store(site).error
        assert error is not None
        assert (error.kind, error.database_code) == (ErrorKind.TRANSIENT, "53400")
        assert "all 2 replication slots are in use" in error.message
        with pytest.raises(TransientError, match="all replication slots are in use") as refused:
            site.take_snapshot()
        assert "max_replication_slots" in (refused.value.report.remedy or "")
    with _slot(site.databases.publisher, "for_good", temporary=False):
        error = read_log_into_store(site).error
        assert error is not None
        assert (error.kind, error.database_code) == (ErrorKind.CONFIGURATION, "53400")
        assert "all 2 replication slots are in use" in error.message
        assert "max_replication_slots" in (error.remedy or "")
    assert read_log_into_store(site).commands == 400


def test_check_needs_a_wal_sender_for_a_snapshot(site: Site) -> None:
    parameters = {**site.databases.publisher.libpq_parameters("test"), "replication": "database"}
    with psycopg.connect(**parameters, autocommit=True):  # type: ignore[arg-type]
        (problem,) = check(site.topology).problems
    assert "max_wal_senders" in problem.message
    assert "max_wal_senders" in (problem.report.remedy or "")
