"""Custom and edited procedures over schema changes: a delivery waits before the first call that they do not take, what
`tranrepl script --custom` prints by then takes it, and the delivery goes on."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.mariadb import MariaDbServer
from support.site import Rows, Site
from support.spark_here import SparkHere
from tranrepl.admin.check import check
from tranrepl.settings.registration import registered_article
from tranrepl.subscriber.procedure_names import Scripted

_SUBSCRIPTIONS = [
    {"name": "reporting", "connection": "subscriber"},
    {"name": "mariadb", "connection": "mariadb"},
]
_CREATE = {
    "reporting": "CREATE PROCEDURE put_vendor(a int, b text, c int) LANGUAGE plpgsql AS "
    "$$ BEGIN INSERT INTO {0}.vendor (id, name, rating) VALUES (a, upper(b), c); END $$",
    "mariadb": "CREATE PROCEDURE {0}.put_vendor (IN a int, IN b text, IN c int) "
    "INSERT INTO vendor (id, name, rating) VALUES (a, UPPER(b), c)",
}
_BY_NEW_NAME = {
    "reporting": "CREATE OR REPLACE PROCEDURE put_vendor(a int, b text, c int) LANGUAGE plpgsql AS "
    "$$ BEGIN INSERT INTO {0}.vendor (id, title, rating) VALUES (a, upper(b), c); END $$",
    "mariadb": "CREATE OR REPLACE PROCEDURE {0}.put_vendor (IN a int, IN b text, IN c int) "
    "INSERT INTO vendor (id, title, rating) VALUES (a, UPPER(b), c)",
}
_SIGNATURE = {
    "reporting": '"c1" integer, "c2" text, "c3" integer, "c4" text',
    "mariadb": "it must take (c1 integer, c2 text, c3 integer, c4 text)",
}
Execute = Callable[[str, str], Rows]


@pytest.fixture
def site(databases: DatabasesFactory, mariadb: MariaDbServer, mariadb_database: str, tmp_path: Path) -> Site:
    article = {
        "source": "public.vendor",
        "destination": f"{mariadb_database}.vendor",
        "ins_cmd": "CALL put_vendor",
    }
    site = Site(databases(), tmp_path / "store", [article], SparkHere(), _SUBSCRIPTIONS, replicate_ddl=True)
    site.connections["mariadb"] = mariadb.connection(mariadb_database, "mariadb")
    site.at_publisher("CREATE TABLE vendor (id int PRIMARY KEY, name text, rating int)")
    site.at_subscriber(_CREATE["reporting"].format(mariadb_database))
    mariadb.execute(_CREATE["mariadb"].format(mariadb_database))
    site.set_up()
    return site


@pytest.fixture
def execute(site: Site, mariadb: MariaDbServer, mariadb_database: str) -> Execute:
    def run(name: str, statement: str) -> Rows:
        if name == "reporting":
            return site.at_subscriber(statement.format(mariadb_database))
        return list(mariadb.execute(statement.format(mariadb_database), database=mariadb_database))

    return run


def _run_skeletons(site: Site, execute: Execute, name: str) -> None:
    """Run what `tranrepl script FILE -s NAME --custom` prints; at PostgreSQL it stands beside the old one."""
    printed = _printed(site, name, Scripted.CUSTOM)
    assert any("put_vendor" in it for it in printed)
    for statement in printed:
        execute(name, statement.replace("{", "{{").replace("}", "}}"))


def _printed(site: Site, name: str, what: Scripted) -> list[str]:
    checked = check(site.topology)
    assert [it for it in checked.in_scripts if "vendor" not in it.message] == []
    with site.topology.subscriber(name, None, "test") as subscriber:
        return [
            statement
            for article, table in checked.tables
            for statement in subscriber.scripts(registered_article(article, table), table, what)
        ]


def _edit_the_insert(site: Site, execute: Execute, name: str) -> None:
    """Have the procedure of INSERTs, as `tranrepl script FILE -s NAME` prints it, write names in capital letters."""
    for printed in _printed(site, name, Scripted.GENERATED):
        if "sp_MSins" in printed:
            head, insert, body = printed.partition("INSERT INTO")
            edited = head + insert + re.sub(r'(["`]?)\bc2\b\1', r"upper(\g<0>)", body)
            execute(name, edited.replace("{", "{{").replace("}", "}}"))


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", ["reporting", "mariadb"])
def test_the_printed_procedure_takes_the_calls_that_a_delivery_waits_with(
    site: Site, execute: Execute, name: str
) -> None:
    site.at_publisher(
        "INSERT INTO vendor VALUES (1, 'before', 1)",
        "ALTER TABLE vendor ADD COLUMN note text DEFAULT 'added'",
        "INSERT INTO vendor VALUES (2, 'after', 2, 'two')",
        "UPDATE vendor SET note = 'changed' WHERE id = 1",
    )
    site.read_log().raise_error()
    for _ in range(2):
        error = site.deliver(name).error
        assert error is not None
        assert "put_vendor" in error.message
        assert "`tranrepl script FILE --custom` prints a skeleton" in (error.remedy or "")
        assert execute(name, "SELECT id, name, rating FROM {0}.vendor") == [(1, "BEFORE", 1)]
    _run_skeletons(site, execute, name)
    site.deliver(name).raise_error()
    rows = "SELECT id, note FROM {}vendor ORDER BY id"
    assert execute(name, rows.format("{0}.")) == site.at_publisher(rows.format(""))


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", ["reporting", "mariadb"])
def test_a_procedure_that_was_edited_by_hand_is_waited_for(
    site: Site, execute: Execute, name: str, mariadb_database: str
) -> None:
    article = {"source": "public.vendor", "destination": f"{mariadb_database}.vendor"}
    store = site.publication.distributor.store
    generated = Site(site.databases, store, [article], site.spark, _SUBSCRIPTIONS, replicate_ddl=True)
    generated.connections["mariadb"] = site.connections["mariadb"]
    generated.set_up()
    generated.read_log().raise_error()
    generated.deliver(name).raise_error()
    _edit_the_insert(generated, execute, name)
    site.at_publisher(
        "INSERT INTO vendor VALUES (1, 'before', 1)",
        "ALTER TABLE vendor ADD COLUMN note text DEFAULT 'added'",
        "INSERT INTO vendor VALUES (2, 'after', 2, 'two')",
    )
    generated.read_log().raise_error()
    for _ in range(2):
        error = generated.deliver(name).error
        assert error is not None
        assert "sp_MSins" in error.message
        assert _SIGNATURE[name] in f"{error.message}; {error.remedy}"
        if name == "reporting":
            assert "`tranrepl script FILE -s NAME` prints the generated one" in (error.remedy or "")
        assert execute(name, "SELECT id, name, rating FROM {0}.vendor") == [(1, "BEFORE", 1)]
    _edit_the_insert(generated, execute, name)
    generated.deliver(name).raise_error()
    assert execute(name, "SELECT id, name, note FROM {0}.vendor ORDER BY id") == [
        (1, "BEFORE", "added"),
        (2, "AFTER", "two"),
    ]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", ["reporting", "mariadb"])
def test_a_renamed_column_is_told_of_a_custom_procedure_and_its_body_may_be_replaced(
    site: Site, execute: Execute, name: str
) -> None:
    """What it is called with stays the same: only a call shows which columns it names."""
    site.at_publisher(
        "INSERT INTO vendor VALUES (1, 'before', 1)",
        "ALTER TABLE vendor RENAME COLUMN name TO title",
        "INSERT INTO vendor VALUES (2, 'after', 2)",
    )
    site.read_log().raise_error()
    result = site.deliver(name)
    assert result.error is not None
    assert "name" in result.error.message
    assert any("put_vendor is your own" in it and "name is title now" in it for it in result.notices), result.notices
    execute(name, _BY_NEW_NAME[name])
    site.deliver(name).raise_error()
    rows = "SELECT id, title, rating FROM {0}.vendor ORDER BY id"
    assert execute(name, rows) == [(1, "BEFORE", 1), (2, "AFTER", 2)]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", ["reporting", "mariadb"])
def test_a_procedure_that_was_renewed_before_the_rename_goes_on_at_once(
    site: Site, execute: Execute, name: str
) -> None:
    site.at_publisher("INSERT INTO vendor VALUES (1, 'before', 1)")
    site.read_log().raise_error()
    site.deliver(name).raise_error()
    site.at_publisher("ALTER TABLE vendor RENAME COLUMN name TO title", "INSERT INTO vendor VALUES (2, 'after', 2)")
    execute(name, _BY_NEW_NAME[name])
    site.read_log().raise_error()
    site.deliver(name).raise_error()
    assert execute(name, "SELECT title FROM {0}.vendor ORDER BY id") == [("BEFORE",), ("AFTER",)]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", ["reporting", "mariadb"])
def test_as_many_other_columns_stop_a_custom_procedure_and_are_told(site: Site, execute: Execute, name: str) -> None:
    """At PostgreSQL before the change, by the types; at MariaDB by the first call, which names a column that went."""
    site.at_publisher(
        "INSERT INTO vendor VALUES (1, 'before', 1)",
        "ALTER TABLE vendor DROP COLUMN rating, ADD COLUMN note text",
        "INSERT INTO vendor VALUES (2, 'after', 'two')",
    )
    site.read_log().raise_error()
    result = site.deliver(name)
    assert result.error is not None
    if name == "mariadb":
        assert any("put_vendor is your own, and stays: rating is note now" in it for it in result.notices)
    else:
        assert "does not take the calls that come after the schema change" in result.error.message
    # Whatever came before is there, and nothing behind it.
    assert execute(name, "SELECT id, name FROM {0}.vendor") == [(1, "BEFORE")]
    _run_skeletons(site, execute, name)
    site.deliver(name).raise_error()
    rows = "SELECT id, note FROM {}vendor ORDER BY id"
    assert execute(name, rows.format("{0}.")) == site.at_publisher(rows.format(""))
