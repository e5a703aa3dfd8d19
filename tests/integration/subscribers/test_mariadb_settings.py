"""What a DBA set for all sessions of a MariaDB stops nothing: ours set what they need."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from conftest import DatabasesFactory
from support.in_process import deliver_stored, read_log_into_store
from support.least_rights import with_login
from support.mariadb import MariaDbServer, installed
from support.site import Site
from support.spark_here import SparkHere
from support.subscribers import KEY, STATEMENTS
from tranrepl.admin.check import check
from tranrepl.errors import ReplicationError, TransientError
from tranrepl.mysql.session import connect
from tranrepl.subscriber.mariadb.database import MariaDb
from tranrepl.subscriber.registry import dialect_of

_SETTINGS = {
    "max_statement_time": "0.3",
    "lock_wait_timeout": "1",
    "innodb_lock_wait_timeout": "1",
    "wait_timeout": "1",
    "idle_transaction_timeout": "1",
    "idle_write_transaction_timeout": "1",
    "idle_readonly_transaction_timeout": "1",
    "net_read_timeout": "1",
    "net_write_timeout": "1",
    "tx_isolation": "'SERIALIZABLE'",
    "autocommit": "0",
    "sql_select_limit": "1",
    "sql_safe_updates": "1",
    "sql_big_selects": "0",
    "max_join_size": "1",
    "sql_auto_is_null": "1",
    "sql_quote_show_create": "0",
    "completion_type": "'CHAIN'",
    "foreign_key_checks": "0",
    "unique_checks": "0",
    "check_constraint_checks": "0",
    "max_error_count": "0",
    "default_storage_engine": "'Aria'",
    "sql_mode": "'ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES'",
    "time_zone": "'+05:00'",
    "tx_read_only": "1",
}
_AS_USUAL = (
    "SET SESSION TRANSACTION READ WRITE",
    (
        "SET SESSION sql_select_limit = 1000000, sql_big_selects = 1, max_statement_time = 0, lock_wait_timeout = 100, "
        "completion_type = 'NO_CHAIN', wait_timeout = 100, idle_transaction_timeout = 0, "
        "idle_write_transaction_timeout = 0, autocommit = 1"
    ),
)
"""For the test's own sessions."""
_LOCKED_SECONDS = 1.5
_TABLE = (
    'CREATE TABLE "item" (id int PRIMARY KEY, code text NOT NULL, "order" text, note text, at timestamptz, '
    "price numeric(9, 2))"
)


@pytest.fixture(scope="module")
def strange(server_folder: Path) -> Iterator[MariaDbServer]:
    if not installed():
        pytest.skip("mariadbd is not installed; on Debian, as root: apt-get install mariadb-server-core")
    with MariaDbServer(server_folder / "mariadb_settings", ["--log-bin"]) as server:
        yield server


@pytest.fixture
def site(databases: DatabasesFactory, strange: MariaDbServer, tmp_path: Path) -> Iterator[Site]:
    name = f"subscriber_{uuid4().hex[:8]}"
    with strange.connect() as owner, owner.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
        for setting, value in _SETTINGS.items():
            cursor.execute(f"SET GLOBAL {setting} = {value}")
        site = _site(databases, strange, name, tmp_path)
        site.at_publisher(_TABLE)
        yield site
        for setting in _SETTINGS:
            cursor.execute(f"SET GLOBAL {setting} = @@SESSION.{setting}")
        cursor.execute(f"DROP DATABASE {name}")


def _site(databases: DatabasesFactory, server: MariaDbServer, name: str, tmp_path: Path) -> Site:
    article = {"source": "public.item", "destination": f"{name}.item"}
    subscription = {"name": "reporting", "connection": "mariadb", "sync_type": "automatic"}
    site = Site(databases(), tmp_path / "store", [article], SparkHere(), [subscription])
    site.connections["mariadb"] = server.connection(name, "mariadb")
    return site


@contextmanager
def _locked(server: MariaDbServer, name: str) -> Iterator[None]:
    session = server.connect(name)
    with session.cursor() as cursor:
        for statement in _AS_USUAL:
            cursor.execute(statement)
        cursor.execute("LOCK TABLES item WRITE")

    def release() -> None:
        time.sleep(_LOCKED_SECONDS)
        session.close()

    releasing = threading.Thread(target=release)
    releasing.start()
    yield
    releasing.join()


def _rows(site: Site, server: MariaDbServer) -> list[tuple[object, ...]]:
    name = site.connections["mariadb"].database
    return server.execute(
        *_AS_USUAL,
        "SELECT id, code, `order`, note, CAST(at AS char), price FROM item ORDER BY 1",
        database=name,
    )


def _published(site: Site) -> list[tuple[object, ...]]:
    return site.at_publisher(
        "SELECT id, code, \"order\", note, to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'), price "
        "FROM item ORDER BY 1"
    )


@pytest.mark.parametrize(
    ("commands", "subscription"),
    [
        pytest.param(STATEMENTS, {}, id="in bulk", marks=pytest.mark.slow),
        pytest.param({}, {"apply": "serial"}, id="serial"),
        pytest.param(STATEMENTS, {"subscription_streams": 2}, id="streams", marks=pytest.mark.slow),
    ],
)
def test_settings_of_a_server_stop_nothing(
    site: Site, strange: MariaDbServer, commands: Mapping[str, str], subscription: Mapping[str, object]
) -> None:
    name = site.connections["mariadb"].database or ""
    site = _with(site, commands, subscription)
    site.at_publisher(
        "INSERT INTO item SELECT n, 'c' || n, 'o\\\"''' || n, NULL, '2026-01-02 03:04:05.6Z', n / 7.0 "
        "FROM generate_series(1, 500) n"
    )
    site.set_up()
    engines = "SELECT DISTINCT engine FROM information_schema.tables WHERE table_schema = DATABASE()"
    assert strange.execute(*_AS_USUAL, engines, database=name) == [("InnoDB",)]
    with _locked(strange, name):
        site.take_snapshot()
    assert _rows(site, strange) == _published(site)
    site.at_publisher(
        "INSERT INTO item SELECT n, 'c' || n, '€', 'note', now(), 1 FROM generate_series(501, 3000) n",
        "UPDATE item SET note = 'changed', price = -price WHERE id % 2 = 0",
        "UPDATE item SET id = id + 10000 WHERE id % 100 = 0",
        "DELETE FROM item WHERE id % 7 = 0",
    )
    read_log_into_store(site).raise_error()
    with _locked(strange, name):
        deliver_stored(site).raise_error()
    assert _rows(site, strange) == _published(site)
    with _locked(strange, name):
        site.validate().raise_error()


def _with(site: Site, commands: Mapping[str, str], subscription: Mapping[str, object]) -> Site:
    """Return the same site with other ways to apply."""
    (article,) = site.publication.articles
    changed = Site(
        site.databases,
        site.publication.distributor.store,
        [{"source": "public.item", "destination": str(article.destination_table), **commands}],
        site.spark,
        [{"name": "reporting", "connection": "mariadb", "sync_type": "automatic", **subscription}],
    )
    changed.connections.update(site.connections)
    return changed


def test_a_session_that_waits_is_not_ended(site: Site) -> None:
    site.set_up()
    connection = site.connections["mariadb"]
    with dialect_of(connection).subscriber(connection, KEY, "test") as subscriber:
        time.sleep(1.5)
        assert subscriber.find_watermark() is None


def test_constraints_act_whatever_the_server_leaves_out(site: Site, strange: MariaDbServer) -> None:
    """Give a value that comes twice and one that a check refuses, and find an error and no row."""
    site.set_up()
    name = site.connections["mariadb"].database or ""
    strange.execute(
        *_AS_USUAL,
        "ALTER TABLE item ADD CONSTRAINT positive CHECK (price > 0)",
        database=name,
    )
    site.take_snapshot()
    site.at_publisher("INSERT INTO item VALUES (1, 'c', NULL, NULL, now(), -1)")
    read_log_into_store(site).raise_error()
    error = deliver_stored(site).error
    assert error is not None
    assert error.shown_number == "547 (4025)"
    assert _rows(site, strange) == []


def test_a_binary_log_of_statements_is_found_by_check(site: Site, strange: MariaDbServer) -> None:
    strange.execute("SET GLOBAL binlog_format = 'STATEMENT'")
    (problem,) = check(site.topology).problems
    assert problem.message == (
        "Subscriber reporting: its binary log holds statements (binlog_format = STATEMENT), and so takes none of a "
        "READ COMMITTED session"
    )
    assert problem.report.shown_number == "without number (1665)"
    strange.execute(_pasted(problem, "SET GLOBAL"))
    assert check(site.topology).problems == []
    site.set_up()


def test_a_server_that_is_read_only_is_tried_again(
    databases: DatabasesFactory, strange: MariaDbServer, tmp_path: Path
) -> None:
    name, password = f"replica_{uuid4().hex[:8]}", uuid4().hex
    strange.execute(
        f"CREATE DATABASE {name}",
        f"CREATE USER '{name}'@'%' IDENTIFIED BY '{password}'",
        f"GRANT ALL ON {name}.* TO '{name}'@'%'",
    )
    site = _site(databases, strange, name, tmp_path)
    site.connections["mariadb"] = with_login(site.connections["mariadb"], name, password)
    site.at_publisher(_TABLE)
    site.set_up()
    site.take_snapshot()
    site.at_publisher("INSERT INTO item VALUES (1, 'c', NULL, NULL, now(), 1)")
    read_log_into_store(site).raise_error()
    strange.execute("SET GLOBAL read_only = 1")
    with pytest.raises(TransientError) as refused:
        deliver_stored(site)
    strange.execute("SET GLOBAL read_only = 0")
    assert refused.value.report.shown_number == "3906 (1290)"
    deliver_stored(site).raise_error()
    assert _rows(site, strange) == _published(site)
    strange.execute(f"DROP USER '{name}'@'%'", f"DROP DATABASE {name}")


def test_a_server_that_is_gone_is_noticed_within_minutes(site: Site) -> None:
    connection = site.connections["mariadb"]
    settings = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
    with MariaDb("mariadb").engine(connection).connect() as subscribers, connect(connection) as publishers:
        for driver in (subscribers.connection.dbapi_connection, publishers.driver):
            opened: socket.socket = getattr(driver, "_sock")  # noqa: B009 - the driver's own
            assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert [opened.getsockopt(socket.IPPROTO_TCP, it) for it in settings] == [60, 10, 6, 120_000]


def _pasted(problem: ReplicationError, begin: str) -> str:
    """Return the statement of a remedy that begins so."""
    (found,) = re.findall(rf"{begin} [^;]+;", problem.report.remedy or "")
    return str(found)
