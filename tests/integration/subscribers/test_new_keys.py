"""A table that gets another primary key, where its article stops instead of waiting for a snapshot: the message's
remedy brings the Subscriber's rows and key to the Publisher's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.mariadb import MariaDbServer
from support.site import Rows, Site
from support.spark_here import SparkHere
from support.subscribers import sqlite_execute
from support.whole_run import good_run, whole_run
from tranrepl.connections import Connection
from tranrepl.jobs.requests import Repair, SnapshotRequest
from tranrepl.snapshot.reinitialization import mark_for_reinitialization

_SUBSCRIPTIONS = [
    {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"},
    {"name": "mariadb", "connection": "mariadb", "sync_type": "automatic"},
    {"name": "sqlite", "connection": "sqlite", "sync_type": "automatic"},
]
_ROWS = "SELECT id, code, name FROM {}vendor ORDER BY id, code"
_KEYS = {
    "reporting": """SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid
                      AND a.attnum = ANY (i.indkey) WHERE i.indisprimary AND i.indrelid = '{}vendor'::regclass""",
    "mariadb": """SELECT column_name FROM information_schema.key_column_usage
                   WHERE table_schema = DATABASE() AND table_name = 'vendor' AND constraint_name = 'PRIMARY'""",
    "sqlite": "SELECT name FROM pragma_table_info('vendor') WHERE pk > 0",
}
Execute = Callable[[str, str], Rows]
"""Run a statement at the Subscriber of a subscription; `{}` is where the table is."""


@pytest.fixture
def site(databases: DatabasesFactory, mariadb: MariaDbServer, mariadb_database: str, tmp_path: Path) -> Site:
    article = {
        "source": "public.vendor",
        "destination": f"{mariadb_database}.vendor",
        "pre_creation_cmd": "delete",
        "on_unknown_rows": "stop",
        **dict.fromkeys(["ins_cmd", "upd_cmd", "del_cmd"], "SQL"),
    }
    site = Site(databases(), tmp_path / "store", [article], SparkHere(), _SUBSCRIPTIONS, replicate_ddl=True)
    site.connections["mariadb"] = mariadb.connection(mariadb_database, "mariadb")
    file = str(tmp_path / "subscriber.db")
    site.connections["sqlite"] = Connection(connection_id="sqlite", kind="sqlite", database=file)
    site.at_publisher(
        "CREATE TABLE vendor (id int PRIMARY KEY, code text NOT NULL, name text)",
        "INSERT INTO vendor SELECT n, 'code ' || n, 'name ' || n FROM generate_series(1, 30) n",
    )
    site.set_up()
    good_run(site)
    return site


@pytest.fixture
def execute(site: Site, mariadb: MariaDbServer) -> Execute:
    database = site.connections["mariadb"].database or ""

    def run(name: str, statement: str) -> Rows:
        if name == "reporting":
            return site.at_subscriber(statement.format(f"{database}."))
        if name == "mariadb":
            return list(mariadb.execute(statement.format(""), database=database))
        return sqlite_execute(site.connections["sqlite"].database or "")(statement.format(""))

    return run


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("key", ["code", pytest.param("name, code", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["reporting", "mariadb"])
def test_repair_brings_a_new_key_and_the_rows_that_follow(site: Site, execute: Execute, name: str, key: str) -> None:
    """Rows that the Subscriber has are kept, so that what was changed by the new key finds them."""
    remedy = _give_key(site, name, key)
    assert f"`tranrepl validate FILE -s {name} --article public.vendor --repair`" in remedy
    execute(name, "UPDATE {}vendor SET name = 'differs' WHERE id = 20")
    site.validate(name, articles=("public.vendor",), repair=Repair.APPLY).raise_error()
    assert execute(name, _ROWS) == site.at_publisher(_ROWS.format(""))
    assert {it for (it,) in execute(name, _KEYS[name])} == set(key.split(", "))
    _assert_goes_on(site, execute, name)


def test_a_snapshot_brings_a_new_key_to_sqlite(site: Site, execute: Execute) -> None:
    assert "`tranrepl reinitialize FILE -s sqlite --article public.vendor` copies" in _give_key(site, "sqlite", "code")
    _reinitialize(site, "sqlite")
    assert execute("sqlite", _KEYS["sqlite"]) == [("code",)]
    _assert_goes_on(site, execute, "sqlite")


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", ["reporting", "mariadb"])
def test_rows_that_do_not_fit_a_new_key_are_not_deleted_by_repair(site: Site, execute: Execute, name: str) -> None:
    """Changes by the new key would not find them. The message has two ways on, and both are gone."""
    execute(name, "INSERT INTO {}vendor VALUES (99, 'code 4', 'twice')")
    before = execute(name, _ROWS)
    _give_key(site, name, "code")
    error = site.validate(name, articles=("public.vendor",), repair=Repair.APPLY).error
    assert error is not None
    assert "do not fit its new primary key (code)" in error.message
    assert f"`tranrepl reinitialize FILE -s {name} --article public.vendor` copies them" in (error.remedy or "")
    assert [it for it in execute(name, _ROWS) if it[0] != 3] == [it for it in before if it[0] != 3]
    if name == "reporting":
        execute(name, "DELETE FROM {}vendor WHERE id = 99")
        site.validate(name, articles=("public.vendor",), repair=Repair.APPLY).raise_error()
    else:
        _reinitialize(site, name)
    _assert_goes_on(site, execute, name)


def _give_key(site: Site, name: str, key: str) -> str:
    """Give the Publisher's table another key, change rows before and after it; return the remedy of the delivery."""
    site.at_publisher(
        "UPDATE vendor SET name = 'before' WHERE id = 3",
        "ALTER TABLE vendor ALTER COLUMN name SET NOT NULL",
        f"ALTER TABLE vendor DROP CONSTRAINT vendor_pkey, ADD PRIMARY KEY ({key})",
        "UPDATE vendor SET id = 1 WHERE id < 6",
        "UPDATE vendor SET code = 'moved' WHERE id = 7",
        "DELETE FROM vendor WHERE id = 8",
        "INSERT INTO vendor VALUES (1, 'new', 'one')",
    )
    error = whole_run(site)[name].error
    assert error is not None
    assert f"article public.vendor of subscription {name} is stopped: its primary key is another one" in error.message
    return error.remedy or ""


def _reinitialize(site: Site, name: str) -> None:
    """`tranrepl reinitialize FILE -s NAME --article public.vendor`."""
    request = SnapshotRequest(publication=site.publication, subscription=name, articles=("public.vendor",))
    mark_for_reinitialization(request, site.topology)
    site.take_snapshot("public.vendor", subscription=name).raise_error()


def _assert_goes_on(site: Site, execute: Execute, name: str) -> None:
    site.at_publisher("UPDATE vendor SET id = 2 WHERE code = 'moved'", "DELETE FROM vendor WHERE code = 'new'")
    site.read_log().raise_error()
    site.deliver(name).raise_error()
    assert execute(name, _ROWS) == site.at_publisher(_ROWS.format(""))
