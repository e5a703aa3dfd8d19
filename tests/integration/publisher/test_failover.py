"""The Publisher's server crashes under load and its standby is promoted: a connection with both hosts goes on."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from conftest import DatabasesFactory
from support.embedded_postgres import PostgresServer
from support.item_site import DATABASE, item_site, run
from support.server_copies import STANDBY_SLOT, catch_up, promote, standby_of
from support.site import Site
from tranrepl.connections import Connection, from_environment
from tranrepl.errors import TransientError

_PATIENCE_SECONDS = 120.0


@pytest.fixture
def site(own_server: PostgresServer, databases: DatabasesFactory, tmp_path: Path) -> Site:
    return item_site(own_server, databases(), tmp_path)


@pytest.fixture
def standby(own_server: PostgresServer, site: Site, server_folder: Path, tmp_path: Path) -> Iterator[PostgresServer]:
    """Yield a standby configured by restore.md; besides, a commit waits for it, so that none is lost."""
    with standby_of(own_server, server_folder / f"{tmp_path.name}_standby", DATABASE) as standby:
        site.at_publisher(
            f"ALTER SYSTEM SET synchronized_standby_slots = '{STANDBY_SLOT}'",
            "ALTER SYSTEM SET synchronous_standby_names = '*'",
            "SELECT pg_reload_conf()",
        )
        with standby.connect() as session:
            session.execute("ALTER SYSTEM SET sync_replication_slots = on")
            session.execute("SELECT pg_reload_conf()")
        catch_up(own_server, standby)
        yield standby


def test_a_crash_under_load_loses_nothing_and_the_next_run_goes_on(
    own_server: PostgresServer, standby: PostgresServer, site: Site
) -> None:
    both = _both_hosts(own_server, standby)
    site.databases = replace(site.databases, publisher=both)
    site.connections["publisher"] = both
    committed: set[int] = set()
    with _load(both, committed):
        _until_synchronized(standby, site)
        _until_more_than(len(committed) + 50, committed)
        run(site)
        own_server.kill()
        with pytest.raises(TransientError):
            run(site)
        promote(standby)
        _until_more_than(len(committed) + 50, committed)
        run(site)
    run(site)
    assert site.differences() == []
    assert committed <= {number for (number,) in site.at_subscriber("SELECT id FROM item")}


def _both_hosts(primary: PostgresServer, standby: PostgresServer) -> Connection:
    """Return a connection to both hosts, as restore.md writes it."""
    one = primary.connection(DATABASE)
    return from_environment(
        "publisher",
        {
            "AIRFLOW_CONN_PUBLISHER": json.dumps(
                {
                    "conn_type": "postgres",
                    "host": "127.0.0.1,127.0.0.1",
                    "login": one.login,
                    "password": one.password,
                    "schema": one.database,
                    "extra": {"port": f"{primary.port},{standby.port}", "target_session_attrs": "read-write"},
                }
            )
        },
    )


@contextmanager
def _load(connection: Connection, committed: set[int]) -> Iterator[None]:
    """Insert like an application that reconnects when its session is ended; it remembers what was committed."""
    ended = threading.Event()

    def insert() -> None:
        number = 0
        while not ended.is_set():
            with (
                suppress(psycopg.OperationalError),
                psycopg.connect(**connection.libpq_parameters("load"), autocommit=True) as session,  # type: ignore[arg-type]
            ):
                while not ended.is_set():
                    number += 1
                    session.execute("INSERT INTO item VALUES (%s, 'load')", [number])
                    committed.add(number)
            time.sleep(0.05)

    thread = threading.Thread(target=insert)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _until_synchronized(standby: PostgresServer, site: Site) -> None:
    """Run until the slot can be read after a promotion."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    with standby.connect() as session:
        while not session.execute("SELECT FROM pg_replication_slots WHERE synced AND NOT temporary").fetchall():
            assert time.monotonic() < deadline, "the slot is not synchronised"
            run(site)
            site.at_publisher("SELECT pg_log_standby_snapshot()")
            time.sleep(0.2)


def _until_more_than(number: int, committed: set[int]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while len(committed) <= number:
        assert time.monotonic() < deadline, "nothing is committed"
        time.sleep(0.05)
