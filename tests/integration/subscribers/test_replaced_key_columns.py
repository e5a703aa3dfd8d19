"""A column of the primary key that is dropped in the transaction in which the table gets another key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.child_job import ChildJob
from support.killed_jobs import SiteJob
from support.mariadb import MariaDbServer
from support.site import Rows, Site
from support.spark_here import SparkHere
from support.subscribers import STATEMENTS, sqlite_execute
from support.whole_run import good_run, whole_run
from tranrepl.connections import Connection
from tranrepl.failpoint import Failpoint

_KEYS = {
    "reporting": """SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid
                      AND a.attnum = ANY (i.indkey) WHERE i.indisprimary AND i.indrelid = '{}vendor'::regclass""",
    "mariadb": """SELECT column_name FROM information_schema.key_column_usage
                   WHERE table_schema = DATABASE() AND table_name = 'vendor' AND constraint_name = 'PRIMARY'""",
    "sqlite": "SELECT name FROM pragma_table_info('vendor') WHERE pk > 0",
}
_REKEYED = "ALTER TABLE vendor DROP CONSTRAINT vendor_pkey, ADD PRIMARY KEY"
_REPLACED = (
    "BEGIN; ALTER TABLE vendor ADD new_id bigint; UPDATE vendor SET new_id = id * 10; "
    f"{_REKEYED} (new_id); ALTER TABLE vendor DROP id; "
    "ALTER TABLE vendor RENAME new_id TO id; COMMIT"
)
_CHANGES = {
    "replaced": ("id", _REPLACED, ["id"]),
    "of a text that is there": ("id", f"BEGIN; {_REKEYED} (code); ALTER TABLE vendor DROP id; COMMIT", ["code"]),
    "one of two": ("id, part", f"BEGIN; {_REKEYED} (id); ALTER TABLE vendor DROP part; COMMIT", ["id"]),
}
_STEPS = (
    *(Failpoint.CHANGE_BEGUN, Failpoint.COLUMNS_CHANGED, Failpoint.PROCEDURES_FOLLOWED, Failpoint.DEFINITION_RECORDED),
)
Execute = Callable[[str, str], Rows]
"""Run a statement at the Subscriber of a subscription; `{}` is where the table is."""
Make = Callable[..., tuple[Site, Execute]]


@pytest.fixture
def make_vendor(databases: DatabasesFactory, mariadb: MariaDbServer, mariadb_database: str, tmp_path: Path) -> Make:
    """Return a function that makes a publication of a table with such a key, and runs statements at its Subscribers."""

    def make(key: str, *names: str, **settings: str) -> tuple[Site, Execute]:
        article = {"source": "public.vendor", "destination": f"{mariadb_database}.vendor", "pre_creation_cmd": "delete"}
        ends = {"reporting": "subscriber"}
        subscriptions = [{"name": it, "connection": ends.get(it, it), "sync_type": "automatic"} for it in names]
        article = {**article, **STATEMENTS, **settings}
        site = Site(databases(), tmp_path / "store", [article], SparkHere(), subscriptions, replicate_ddl=True)
        file = str(tmp_path / "subscriber.db")
        site.connections["mariadb"] = mariadb.connection(mariadb_database, "mariadb")
        site.connections["sqlite"] = Connection("sqlite", "sqlite", database=file)
        site.at_publisher(
            f"CREATE TABLE vendor (id int, part int, code text NOT NULL, name text, PRIMARY KEY ({key}))",
            "INSERT INTO vendor SELECT n, n, 'code ' || n, 'name ' || n FROM generate_series(1, 20) n",
        )
        site.set_up()
        good_run(site)

        def execute(name: str, statement: str) -> Rows:
            if name == "reporting":
                return site.at_subscriber(statement.format(f"{mariadb_database}."))
            if name == "mariadb":
                return list(mariadb.execute(statement.format(""), database=mariadb_database))
            return sqlite_execute(file)(statement.format(""))

        return site, execute

    return make


def _assert_same(site: Site, execute: Execute, key: list[str]) -> None:
    columns = ", ".join(sorted(it for (it,) in site.at_publisher(_COLUMNS)))
    rows = f"SELECT {columns} FROM {{}}vendor ORDER BY code"
    for it in site.publication.subscriptions:
        assert execute(it.name, rows) == site.at_publisher(rows.format("")), it.name
        assert [name for (name,) in execute(it.name, _KEYS[it.name])] == key, it.name


_COLUMNS = "SELECT attname FROM pg_attribute WHERE attrelid = 'vendor'::regclass AND attnum > 0 AND NOT attisdropped"


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("change", _CHANGES)
def test_a_key_whose_column_is_dropped_gives_way_to_the_new_one(make_vendor: Make, change: str) -> None:
    before, statements, key = _CHANGES[change]
    site, execute = make_vendor(before, "reporting", "mariadb", "sqlite")
    site.at_publisher("UPDATE vendor SET name = 'before' WHERE code = 'code 3'", statements)
    good_run(site)
    site.at_publisher(
        "UPDATE vendor SET name = 'after' WHERE code = 'code 5'", "DELETE FROM vendor WHERE code = 'code 6'"
    )
    good_run(site)
    _assert_same(site, execute, key)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("change", _CHANGES)
def test_a_key_whose_column_is_dropped_is_replaced_once_where_jobs_are_killed(make_vendor: Make, change: str) -> None:
    before, statements, key = _CHANGES[change]
    site, execute = make_vendor(before, "mariadb")
    site.at_publisher(statements, "UPDATE vendor SET name = 'after' WHERE code = 'code 5'")
    site.read_log().raise_error()
    snapshot = SiteJob("snapshot", "mariadb")
    assert [step for step in _STEPS if ChildJob(snapshot, site, str(step)).killed()] == list(_STEPS)
    good_run(site)
    _assert_same(site, execute, key)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", ["mariadb", "reporting"])
def test_repair_brings_a_key_whose_column_is_dropped(make_vendor: Make, name: str) -> None:
    site, execute = make_vendor("id", name, on_unknown_rows="stop")
    site.at_publisher(_REPLACED)
    assert whole_run(site)[name].error is not None
    SiteJob("repair", name)(site).raise_error()
    good_run(site)
    _assert_same(site, execute, ["id"])


def test_an_sqlite_key_to_which_foreign_keys_refer_is_not_dropped(make_vendor: Make) -> None:
    site, execute = make_vendor("id", "sqlite")
    execute("sqlite", "CREATE TABLE invoice (id INTEGER PRIMARY KEY, vendor INTEGER REFERENCES vendor (id))")
    site.at_publisher(_REPLACED)
    error = whole_run(site)["sqlite snapshot"].error
    assert error is not None
    assert "column id is to be dropped" in error.message
    assert "without these foreign keys" in (error.remedy or "")
    execute("sqlite", "DROP TABLE invoice")
    good_run(site)
    _assert_same(site, execute, ["id"])
