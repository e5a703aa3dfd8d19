"""Publishers whose server or replication slot cannot be read: refused with what to do, and left as they were."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.embedded_postgres import PostgresServer, ServerSettings, embedded_bindir
from support.observed import wait_until
from support.refusals import STATE, assert_kept_secret, assert_refused, state_of
from support.shell import publication_file, typed
from support.site import Site, execute
from tranrepl.admin.check import check
from tranrepl.connections import Connection


@pytest.fixture(scope="module")
def second_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the home of a second cluster, which each test that needs one starts with other options."""
    return tmp_path_factory.mktemp("second")


def _second(home: Path, **options: str) -> PostgresServer:
    return PostgresServer(ServerSettings(home, fsync=False, options=options))


def _publisher_with_a_table(server: PostgresServer) -> Connection:
    publisher = server.connection("postgres", "publisher")
    execute(publisher, "DROP TABLE IF EXISTS t", "CREATE TABLE t (id int PRIMARY KEY)")
    return publisher


def test_a_server_whose_log_is_not_logical_is_refused(
    databases: DatabasesFactory, second_home: Path, tmp_path: Path
) -> None:
    with _second(second_home, wal_level="replica") as server:
        ends = replace(databases(), publisher=_publisher_with_a_table(server))
        before = state_of(ends)
        file = publication_file(tmp_path, [{"source": "public.t"}])
        outcome = typed("setup", file, environment=ends.environment)
        assert_refused(
            outcome, "Publisher postgres: wal_level is 'replica'\n  → allowed: logical. ALTER SYSTEM SET wal_level"
        )
        assert_kept_secret(outcome, ends.publisher)
        assert state_of(ends) == before


def test_a_server_of_a_version_that_was_never_run_is_refused(
    databases: DatabasesFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tranrepl.postgres.session.NEWEST_VERSION", 17)
    site = Site(databases(), tmp_path / "store", ["public.t"])
    site.at_publisher("CREATE TABLE t (id int PRIMARY KEY)")
    publisher, subscriber = sorted(check(site.topology).blocking, key=str)
    for it, end in ((publisher, "Publisher"), (subscriber, "Subscriber")):
        assert it.message.startswith(f"{end} ")
        assert re.search(": PostgreSQL 1[89], which nobody has run yet$", it.message)
        assert it.report.remedy == "allowed: PostgreSQL 14 to 17, or a newer tranrepl"


def test_a_server_without_wal_senders_is_told(databases: DatabasesFactory, second_home: Path, tmp_path: Path) -> None:
    with _second(second_home, max_wal_senders="0") as server:
        ends = replace(databases(), publisher=_publisher_with_a_table(server))
        outcome = typed("check", publication_file(tmp_path, [{"source": "public.t"}]), environment=ends.environment)
        assert_refused(outcome, "Publisher postgres: no replication connection: ")
        assert "wait for other jobs; or raise max_wal_senders and restart the server" in outcome.err


def test_an_invalidated_slot_is_refused(databases: DatabasesFactory, second_home: Path, tmp_path: Path) -> None:
    with _second(second_home, max_slot_wal_keep_size="1MB", max_wal_size="32MB", min_wal_size="32MB") as server:
        server.create_database("losing")
        site = Site(
            replace(databases(), publisher=server.connection("losing", "publisher")),
            tmp_path / "store",
            ["public.t"],
            publication="losing",
        )
        site.at_publisher("CREATE TABLE t (id int PRIMARY KEY)")
        site.set_up()
        site.at_publisher("INSERT INTO t VALUES (1)")
        for _ in range(3):
            site.at_publisher("CREATE TABLE filler AS SELECT 1", "DROP TABLE filler", "SELECT pg_switch_wal()")
        site.at_publisher("CHECKPOINT")
        assert site.at_publisher("SELECT wal_status FROM pg_replication_slots") == [("lost",)]
        before = state_of(site.databases)
        file = publication_file(tmp_path, [{"source": "public.t"}], publication="losing")
        for verb in ("check", "setup", "log-reader"):
            outcome = typed(verb, file, environment=site.databases.environment)
            assert outcome.status == 1
            (error,) = outcome.errors
            assert "Publisher losing: replication slot tranrepl_losing_" in error
            assert f"the log it needs is gone\n  → `tranrepl reinitialize {file}`" in error
            assert_kept_secret(outcome, site.databases.publisher)
        assert state_of(site.databases) == before
        # With its slot, for which a server whose log is not logical does not even start.
        server.drop_database("losing")


@pytest.fixture
def purchasing(databases: DatabasesFactory, tmp_path: Path) -> Site:
    site = Site(databases(), tmp_path / "store", ["public.t"])
    site.at_publisher("CREATE TABLE t (id int PRIMARY KEY, v text)")
    site.set_up()
    site.at_publisher("INSERT INTO t VALUES (1, 'a')")
    return site


def _slot(site: Site) -> str:
    return str(
        site.at_publisher("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")[0][0]
    )


def test_a_missing_slot_is_refused(purchasing: Site, tmp_path: Path) -> None:
    slot = _slot(purchasing)
    purchasing.at_publisher(f"SELECT pg_drop_replication_slot('{slot}')")
    before = state_of(purchasing.databases)
    file = publication_file(tmp_path, [{"source": "public.t"}])
    for verb in ("log-reader", "setup", "run"):
        outcome = typed(verb, file, environment=purchasing.databases.environment)
        assert outcome.status == 1
        (error,) = outcome.errors
        assert f"replication slot {slot} does not exist: changes made since it was lost cannot be read" in error
        assert f"\n  → `tranrepl reinitialize {file}`" in error
        assert_kept_secret(outcome, purchasing.databases.publisher)
    assert state_of(purchasing.databases) == before


def test_a_slot_in_use_is_refused(purchasing: Site, tmp_path: Path) -> None:
    slot = _slot(purchasing)
    file = publication_file(tmp_path, [{"source": "public.t"}])
    with _reading(purchasing.databases.publisher, slot):
        before = purchasing.at_publisher(STATE)
        outcome = typed("log-reader", file, environment=purchasing.databases.environment)
        assert outcome.status == 1
        assert (
            f"replication slot {slot} is in use by another session\n  → one log reader at a time" in outcome.errors[0]
        )
        assert len(outcome.errors) == 1
        assert_kept_secret(outcome, purchasing.databases.publisher)
        assert purchasing.at_publisher(STATE) == before


@contextmanager
def _reading(publisher: Connection, slot: str) -> Iterator[None]:
    """Hold the slot by another session."""
    parameters = publisher.libpq_parameters("other reader")
    names = " ".join(f"{name}={parameters[name]}" for name in ("host", "port", "user", "dbname"))
    command = [
        str(embedded_bindir() / "pg_recvlogical"),
        *("--slot", slot, "--start", "--no-loop", "--file", os.devnull, "--dbname", names),
        *("--option", "proto_version=1", "--option", f"publication_names={slot}"),
    ]
    is_active = f"SELECT active FROM pg_replication_slots WHERE slot_name = '{slot}'"
    environment = {**os.environ, "PGPASSWORD": str(parameters["password"])}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: execute(publisher, is_active) == [(True,)], lambda: process.poll() is None)
            yield
        finally:
            process.terminate()
