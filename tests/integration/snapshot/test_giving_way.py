"""A snapshot and a validation give way to a statement that waits for a table they read, and start again."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from conftest import DatabasesFactory
from support.databases import Databases
from support.equality import differing_rows
from support.site import Site
from support.snapshot_races import BOUND_SECONDS, statement_beside
from support.spark_here import SparkHere
from tranrepl.connections import Connection
from tranrepl.errors import ErrorKind, TransientError
from tranrepl.failpoint import Failpoint
from tranrepl.snapshot import initialization
from tranrepl.subscriber.base import snapshot as loading
from tranrepl.validation import differences

_ARTICLES = ("public.first", "public.second")


def _site(databases: Databases, tmp_path: Path) -> Site:
    articles = [{"source": it, "pre_creation_cmd": "truncate"} for it in _ARTICLES]
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
    site = Site(databases, tmp_path / "store", articles, SparkHere(), [subscription], replicate_ddl=True)
    for table in ("first", "second"):
        site.at_publisher(
            f"CREATE TABLE {table} (id int PRIMARY KEY, note text)",
            f"INSERT INTO {table} SELECT n, 'note ' || n FROM generate_series(1, 300) n",
        )
    site.set_up()
    return site


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    return _site(databases(), tmp_path)


def _once(point: Failpoint, act: Callable[[], None]) -> Callable[..., None]:
    reached: list[Failpoint] = []

    def reach(here: Failpoint, _stream: int = 0) -> None:
        if here is point and not reached:
            reached.append(here)
            act()

    return reach


def _interrupted_snapshot(
    site: Site, statement: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[TransientError, list[float]]:
    """Take a snapshot; the statement comes while the first table is copied and the second is not yet."""
    with statement_beside(site.databases.publisher) as beside, monkeypatch.context() as patch:
        patch.setattr(loading, "reach", _once(Failpoint.RANGE_COMMITTED, lambda: beside.start(statement)))
        with pytest.raises(TransientError) as stopped:
            site.take_snapshot()
        return stopped.value, beside.seconds()


def test_ddl_on_a_table_that_is_yet_to_be_copied_waits_a_moment(
    from_15_to_18: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = _site(from_15_to_18, tmp_path)
    error, seconds = _interrupted_snapshot(site, "ALTER TABLE second ADD COLUMN extra int DEFAULT 5", monkeypatch)
    assert max(seconds) < BOUND_SECONDS
    assert "gave way to process" in error.message
    assert "(postgres, migration), which waited for table public.second" in error.message
    site.read_log().raise_error()
    site.take_snapshot()
    site.at_publisher("INSERT INTO second VALUES (301, 'new', 6)")
    site.run()
    assert differing_rows(site) == {}
    assert site.at_subscriber("SELECT count(extra) FROM second") == [(301,)]


def test_an_index_that_is_made_concurrently_beside_a_snapshot_waits_a_moment(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.at_publisher("CREATE TABLE aside (id int)")
    error, seconds = _interrupted_snapshot(site, "CREATE INDEX CONCURRENTLY ON aside (id)", monkeypatch)
    assert max(seconds) < BOUND_SECONDS
    assert "(postgres, migration), which waited for older snapshots to end" in error.message
    site.take_snapshot()
    assert differing_rows(site) == {}


def test_a_snapshot_by_a_login_in_another_role_gives_way_too(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    role, connection = f"reader_{uuid4().hex[:8]}", site.databases.publisher
    site.at_publisher(f"CREATE ROLE {role} SUPERUSER REPLICATION")
    try:
        options = {**connection.options, "options": f"-c role={role}"}
        site.connections["publisher"] = replace(connection, options=options)
        _, seconds = _interrupted_snapshot(site, "TRUNCATE second", monkeypatch)
        assert max(seconds) < BOUND_SECONDS
    finally:
        site.at_publisher(f"DROP ROLE {role}")


def test_a_transaction_that_alters_tables_in_another_order_gets_no_deadlock(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It begins when the snapshot is exported, which waits for older ones, and goes on when the first table is locked.
    with ExitStack() as stack:
        executor = stack.enter_context(ThreadPoolExecutor(1))
        parameters: dict[str, Any] = dict(site.databases.publisher.libpq_parameters("migration"))
        session = stack.enter_context(psycopg.connect(**parameters))
        altering: list[Future[None]] = []

        def alter() -> None:
            session.execute("ALTER TABLE second ADD COLUMN extra int")
            altering.append(executor.submit(go_on))

        def go_on() -> None:
            time.sleep(0.5)
            session.execute("ALTER TABLE first ADD COLUMN extra int")
            session.commit()

        monkeypatch.setattr(initialization, "reach", _once(Failpoint.SNAPSHOT_EXPORTED, alter))
        with pytest.raises(TransientError, match="was altered while its snapshot began"):
            site.take_snapshot()
        altering[0].result(60)


def _delivered(site: Site) -> Site:
    site.take_snapshot()
    site.run()
    return site


@pytest.mark.parametrize("end", ["publisher", "subscriber"])
def test_a_validation_gives_way_at_either_end(end: str, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    _delivered(site)
    connection: Connection = site.connections[end]
    with statement_beside(connection) as beside, monkeypatch.context() as patch:

        def compare(*arguments: Any, **named: Any) -> list[differences.Found]:
            beside.start("ALTER TABLE second ADD COLUMN extra int")
            return differences.compare(*arguments, **named)

        patch.setattr("tranrepl.validation.job.compare", compare)
        result = site.validate()
        assert max(beside.seconds()) < BOUND_SECONDS
    assert result.error is not None
    assert result.error.kind is ErrorKind.TRANSIENT
    assert "which waited for table public.second" in result.error.message
    again = site.validate()
    assert again.error is None, again.error


def test_a_snapshot_whose_tables_were_not_held_to_the_end_begins_anew(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end_holder() -> None:
        site.at_publisher(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE relation = 'second'::regclass AND granted"
        )

    with monkeypatch.context() as patch:
        patch.setattr(loading, "reach", _once(Failpoint.RANGE_COMMITTED, end_holder))
        with pytest.raises(TransientError, match="terminating connection"):
            site.take_snapshot()
    site.take_snapshot()
    site.run()
    assert differing_rows(site) == {}
