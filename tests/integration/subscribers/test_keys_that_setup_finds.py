"""A table that gets another primary key in a way that stops the log reader: setup, as the message says, brings the key
to the Subscribers' tables, and their rows follow."""

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
from tranrepl.errors import ConfigurationError
from tranrepl.jobs.requests import Repair

_NAMES = ("reporting", "mariadb", "sqlite")
_KEYS = {
    "reporting": """SELECT a.attname::text FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid
                      AND a.attnum = ANY (i.indkey) WHERE i.indisprimary AND i.indrelid = '{}vendor'::regclass
                    ORDER BY 1""",
    "mariadb": """SELECT column_name FROM information_schema.key_column_usage WHERE table_schema = DATABASE()
                     AND table_name = 'vendor' AND constraint_name = 'PRIMARY' ORDER BY 1""",
    "sqlite": "SELECT name FROM pragma_table_info('vendor') WHERE pk > 0 ORDER BY 1",
}
Execute = Callable[[str, str], Rows]
"""Run a statement at the Subscriber of a subscription; `{}` is where the table is."""


@pytest.fixture
def made(databases: DatabasesFactory, mariadb: MariaDbServer, mariadb_database: str, tmp_path: Path) -> Site:
    """Return a site with four vendors at the Publisher, before its setup."""
    article = {
        "source": "public.vendor",
        "destination": f"{mariadb_database}.vendor",
        "pre_creation_cmd": "delete",
        **dict.fromkeys(["ins_cmd", "upd_cmd", "del_cmd"], "SQL"),
    }
    connections = dict(zip(_NAMES, ("subscriber", "mariadb", "sqlite"), strict=True))
    subscriptions = [{"name": it, "connection": to, "sync_type": "automatic"} for it, to in connections.items()]
    site = Site(databases(), tmp_path / "store", [article], SparkHere(), subscriptions, replicate_ddl=True)
    site.connections["mariadb"] = mariadb.connection(mariadb_database, "mariadb")
    site.connections["sqlite"] = Connection("sqlite", "sqlite", database=str(tmp_path / "subscriber.db"))
    site.at_publisher(
        "CREATE TABLE vendor (id int PRIMARY KEY, code varchar(20) NOT NULL, name text)",
        "INSERT INTO vendor SELECT n, 'code ' || n, 'name ' || n FROM generate_series(1, 4) n",
    )
    return site


@pytest.fixture
def execute(made: Site, mariadb: MariaDbServer) -> Execute:
    database = made.connections["mariadb"].database or ""

    def run(name: str, statement: str) -> Rows:
        if name == "reporting":
            return made.at_subscriber(statement.format(f"{database}."))
        if name == "mariadb":
            return list(mariadb.execute(statement.format(""), database=database))
        return sqlite_execute(made.connections["sqlite"].database or "")(statement.format(""))

    return run


@pytest.fixture
def site(made: Site) -> Site:
    """Return the site with the rows at its Subscribers, where nothing was stored since."""
    made.set_up()
    good_run(made)
    return made


def _assert_follow(site: Site, execute: Execute, key: list[str], rows: str = "id, code, name") -> None:
    """Assert that each Subscriber's table has the key and the Publisher's rows, also after changes by the new key."""
    site.at_publisher("UPDATE vendor SET name = 'changed' WHERE code = 'code 2'", "DELETE FROM vendor WHERE code = 'x'")
    good_run(site)
    query = f"SELECT {rows} FROM {{}}vendor ORDER BY code, name"
    expected = site.at_publisher(query.format(""))
    for name in _NAMES:
        assert (name, execute(name, query)) == (name, expected)
        assert (name, execute(name, _KEYS[name])) == (name, [(it,) for it in key])


@pytest.mark.parametrize("stored", [False, True], ids=["nothing stored", "commands stored"])
def test_a_key_dropped_and_added_again_while_the_log_is_read(site: Site, execute: Execute, *, stored: bool) -> None:
    if stored:
        site.at_publisher("UPDATE vendor SET name = 'before' WHERE id = 3")
        site.read_log().raise_error()
    site.at_publisher("ALTER TABLE vendor DROP CONSTRAINT vendor_pkey")
    error = whole_run(site)["log reader"].error
    assert error is not None
    assert error.remedy == "add one, or take the article out of the file; then run `tranrepl setup FILE`"
    site.at_publisher(
        "ALTER TABLE vendor ADD PRIMARY KEY (id, code)",
        "INSERT INTO vendor VALUES (1, 'x', 'the same id'), (1, 'y', 'once more')",
    )
    assert any("its primary key is another one" in it for it in site.set_up())
    good_run(site)
    assert site.set_up() == []
    _assert_follow(site, execute, ["code", "id"])


def test_a_key_whose_column_was_dropped(site: Site, execute: Execute) -> None:
    site.at_publisher(
        "UPDATE vendor SET name = 'before' WHERE id = 3",
        "BEGIN; ALTER TABLE vendor DROP COLUMN id; ALTER TABLE vendor ADD PRIMARY KEY (code); COMMIT",
        "INSERT INTO vendor VALUES ('x', 'behind it'), ('y', 'too')",
    )
    error = whole_run(site)["log reader"].error
    assert error is not None
    assert error.remedy == "give the table another primary key, where it has none yet; then run `tranrepl setup FILE`"
    site.set_up()
    good_run(site)
    _assert_follow(site, execute, ["code"], "code, name")
    assert "id" not in {it for (it,) in execute("sqlite", "SELECT name FROM pragma_table_info('vendor')")}


def test_a_key_changed_between_two_setups(made: Site, execute: Execute) -> None:
    made.set_up()
    made.at_publisher(
        "ALTER TABLE vendor DROP CONSTRAINT vendor_pkey, ADD PRIMARY KEY (id, code)",
        "INSERT INTO vendor VALUES (1, 'x', 'the same id'), (1, 'y', 'once more')",
    )
    made.set_up()
    good_run(made)
    _assert_follow(made, execute, ["code", "id"])


def test_setup_alters_a_stopped_article_that_stands_behind_the_change(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    """Its snapshot is newer than all that is stored, so no delivery brings the change. Rows that do not fit the key
    are not deleted; the message has the way on."""
    article = {"source": "public.vendor", "pre_creation_cmd": "delete", "on_unknown_rows": "stop"}
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
    site = Site(databases(), tmp_path / "store", [article], SparkHere(), [subscription], replicate_ddl=True)
    site.at_publisher("CREATE TABLE vendor (id int PRIMARY KEY, code text)", "INSERT INTO vendor VALUES (1, 'a')")
    site.set_up()
    good_run(site)
    site.at_publisher("ALTER TABLE vendor DROP CONSTRAINT vendor_pkey")
    assert site.read_log().error is not None
    site.at_publisher("ALTER TABLE vendor ADD PRIMARY KEY (code)")
    site.at_subscriber("INSERT INTO vendor VALUES (2, 'a')")
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="do not fit its new primary key") as raised:
            site.set_up()
        assert (raised.value.report.remedy or "").endswith("; then `tranrepl setup FILE`")
    site.at_subscriber("DELETE FROM vendor WHERE id = 2")
    site.set_up()
    site.at_publisher("INSERT INTO vendor VALUES (1, 'b')")
    site.read_log().raise_error()
    site.validate(repair=Repair.APPLY).raise_error()
    good_run(site)
    rows = "SELECT * FROM vendor ORDER BY code"
    assert site.at_subscriber(rows) == site.at_publisher(rows)
    assert site.at_subscriber(_KEYS["reporting"].format("")) == [("code",)]
