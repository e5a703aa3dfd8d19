"""Early warnings of what a Publisher keeps for a slot, at real servers that keep it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from conftest import DatabasesFactory
from support.embedded_postgres import PostgresServer, ServerSettings
from support.least_rights import with_login
from support.shell import publication_file, typed
from support.site import Site, execute
from support.spark_here import SparkHere
from tranrepl.admin.early_warnings import EarlyWarning, WarningKind, new_early_warnings
from tranrepl.topology import Topology

_RESTART = "SELECT restart_lsn FROM pg_replication_slots WHERE database = current_database()"
_STATUS = "SELECT wal_status FROM pg_replication_slots WHERE database = current_database()"


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    site = Site(databases(), tmp_path / "store", ["public.item"], SparkHere(), open_transaction_threshold=1)
    site.at_publisher("CREATE TABLE item (id int PRIMARY KEY, note text)", "CREATE TABLE other (id int)")
    site.set_up()
    return site


def _new(site: Site, *kinds: WarningKind) -> list[EarlyWarning]:
    """Return new warnings of these kinds; others are of what other tests do at the same server."""
    found = new_early_warnings(Topology(site.publication, site.connections))
    return [it for it in found if it.kind in kinds]


@contextmanager
def _open_transaction(site: Site, application: str = "held") -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    parameters = {**site.databases.publisher.libpq_parameters(application)}
    with psycopg.connect(**parameters) as session:  # type: ignore[arg-type]
        session.execute("INSERT INTO other VALUES (1)")
        yield session
        session.rollback()


def test_a_transaction_that_is_open_for_long_is_told(site: Site, tmp_path: Path) -> None:
    with _open_transaction(site) as held:
        began = site.at_publisher("SELECT pg_current_wal_lsn()")[0][0]
        time.sleep(1.1)
        # It holds what it is said to hold.
        for row in range(3):
            site.at_publisher(f"INSERT INTO item VALUES ({row})", "CHECKPOINT", "SELECT pg_switch_wal()")
            site.read_log().raise_error()
        assert site.at_publisher(f"SELECT restart_lsn <= '{began}' FROM ({_RESTART}) AS slot") == [(True,)]
        (told,) = _new(site, WarningKind.OPEN_TRANSACTION)
        assert f"session {held.info.backend_pid} (role " in told.text
        assert ", held)" in told.text
        assert "restart_lsn does not pass its beginning" in told.text
        assert _new(site, WarningKind.OPEN_TRANSACTION) == []
        time.sleep(0.1)
        file = publication_file(tmp_path, [{"source": "public.item"}], replicate_ddl=False)
        metrics = typed("metrics", file, environment=site.databases.environment).out
        assert 'tranrepl_oldest_transaction_seconds{publication="purchasing"}' in metrics
    assert _new(site, WarningKind.OPEN_TRANSACTION) == []
    with _open_transaction(site):
        time.sleep(1.1)
        assert len(_new(site, WarningKind.OPEN_TRANSACTION)) == 1


def test_a_prepared_transaction_is_told_without_any_right(site: Site) -> None:
    """Another role's open one is not: since when is hidden."""
    role = "watching"
    publisher = site.databases.publisher
    execute(publisher, f"DROP ROLE IF EXISTS {role}", f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'w'")
    execute(publisher, f"GRANT CREATE, CONNECT ON DATABASE {publisher.database} TO {role}")
    site.connections["publisher"] = with_login(publisher, role, "w")
    with _open_transaction(site):
        time.sleep(1.1)
        assert _new(site, WarningKind.OPEN_TRANSACTION) == []
    site.at_publisher("BEGIN; INSERT INTO other VALUES (2); PREPARE TRANSACTION 'forgotten'")
    try:
        time.sleep(1.1)
        (told,) = _new(site, WarningKind.OPEN_TRANSACTION)
        assert "prepared transaction 'forgotten' (role " in told.text
    finally:
        site.at_publisher("ROLLBACK PREPARED 'forgotten'")
    assert _new(site, WarningKind.OPEN_TRANSACTION) == []


def test_an_old_catalog_xmin_is_told(site: Site) -> None:
    # Slots of other tests at the same server may hold it back.
    age = "SELECT age(catalog_xmin) FROM pg_replication_slots WHERE database = current_database()"
    ((begun,),) = site.at_publisher(age)
    threshold = begun + 1000
    site.publication = site.publication.model_copy(update={"catalog_xmin_threshold": threshold})
    assert _new(site, WarningKind.CATALOG_XMIN) == []
    site.at_publisher("DO $$ BEGIN FOR n IN 1..1100 LOOP INSERT INTO other VALUES (n); COMMIT; END LOOP; END $$")
    (told,) = _new(site, WarningKind.CATALOG_XMIN)
    assert f"transactions old (catalog_xmin_threshold: {threshold})" in told.text
    # As the server does it every 15 seconds by itself: what runs, and so what is needed, is told in the log.
    for row in range(3):
        site.at_publisher(f"INSERT INTO item VALUES ({row})", "CHECKPOINT")
        site.read_log().raise_error()
    assert _new(site, WarningKind.CATALOG_XMIN) == []
    assert site.at_publisher(age)[0][0] < threshold


def test_a_slot_that_the_server_may_drop_is_told(databases: DatabasesFactory, tmp_path: Path) -> None:
    # The next checkpoint, which is far away, would invalidate the slot.
    options = {"max_slot_wal_keep_size": "64MB", "max_wal_size": "2GB", "checkpoint_timeout": "1d"}
    with PostgresServer(ServerSettings(tmp_path / "home", fsync=False, options=options)) as server:
        server.create_database("losing")
        ends = replace(databases(), publisher=server.connection("losing", "publisher"))
        site = Site(ends, tmp_path / "store", ["public.item"], SparkHere(), publication="losing")
        site.at_publisher("CREATE TABLE item (id int PRIMARY KEY)", "CREATE TABLE other (id int)")
        site.set_up()
        assert _new(site, WarningKind.LOG_IN_DANGER) == []
        told: list[EarlyWarning] = []
        for _ in range(40):
            site.at_publisher("SELECT pg_logical_emit_message(false, 'filler', repeat('x', 3000000))")
            ((status,),) = site.at_publisher(_STATUS)
            if status in ("unreserved", "lost"):
                break
            told += _new(site, WarningKind.LOG_IN_DANGER)
        assert status == "unreserved"
        (warning,) = told
        assert "wal_status reserved; " in warning.text
        assert "MB may be written before it may be lost" in warning.text
        # Told, and it stands; read, it passes.
        assert _new(site, WarningKind.LOG_IN_DANGER) == []
        for row in range(2):
            site.at_publisher(f"INSERT INTO item VALUES ({row})", "SELECT pg_log_standby_snapshot()")
            site.read_log().raise_error()
        assert site.at_publisher(_STATUS) == [("reserved",)]
        assert _new(site, WarningKind.LOG_IN_DANGER) == []
        site.publication = site.publication.model_copy(update={"retained_log_threshold": 1})
        site.at_publisher("INSERT INTO other VALUES (9)", "SELECT pg_switch_wal()", "INSERT INTO other VALUES (10)")
        assert [it.kind for it in _new(site, *WarningKind)] == [WarningKind.RETAINED_LOG]
        server.drop_database("losing")
