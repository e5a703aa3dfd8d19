"""UPDATEs of columns that are GENERATED ALWAYS AS IDENTITY there: a DELETE and an INSERT that lose nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.databases import Databases
from support.embedded_postgres import PostgresServer
from support.in_process import deliver_commands, read_commands, replicate
from support.site import Site, execute
from support.spark_here import SparkHere
from tranrepl.jobs.requests import Repair

_HERE = "CREATE TABLE item (id int PRIMARY KEY, n bigint, name text, price numeric(9, 2))"
_THERE = """
CREATE TABLE item (own text DEFAULT 'nobody', price numeric(9, 2), dropped int, id int PRIMARY KEY,
    n bigint GENERATED ALWAYS AS IDENTITY, twice int GENERATED ALWAYS AS (id * 2) STORED, name text,
    at timestamptz DEFAULT now(), "Own 2" int[]);
ALTER TABLE item DROP dropped;
CREATE TABLE line (id int PRIMARY KEY, item int REFERENCES item,
    later int REFERENCES item DEFERRABLE INITIALLY DEFERRED);
"""
_ROWS = "INSERT INTO item SELECT g, g * 10, 'name ' || g, g / 7.0 FROM generate_series(1, 6) g"
_OWN = (
    "UPDATE item SET own = 'of ' || id, at = '2000-01-01', \"Own 2\" = ARRAY[id, NULL]",
    "INSERT INTO line VALUES (1, 1, 2), (2, 2, 1)",
)
_CHANGES = (
    "UPDATE item SET n = 500 WHERE id = 1",
    "UPDATE item SET n = n + 1, name = NULL, price = 9 WHERE id = 2",
    "UPDATE item SET name = 'only the name' WHERE id = 3",
    "BEGIN; UPDATE item SET n = 700 WHERE id = 4; UPDATE item SET n = 701, name = 'twice' WHERE id = 4; COMMIT",
    "UPDATE item SET id = 50, n = 5 WHERE id = 5",
)
_STYLES: dict[str, Mapping[str, str]] = {
    "scall": {},
    "call": {"upd_cmd": "CALL"},
    "mcall": {"upd_cmd": "MCALL"},
    "xcall": {"upd_cmd": "XCALL"},
    "sql": {"ins_cmd": "SQL", "upd_cmd": "SQL", "del_cmd": "SQL"},
}


def _site(
    ends: Databases, tmp_path: Path, article: Mapping[str, str], apply: str = "serial", **settings: object
) -> Site:
    reporting = {"name": "reporting", "connection": "subscriber", "apply": apply, **settings}
    return Site(ends, tmp_path / "store", [{"source": "public.item", **article}], SparkHere(), [reporting])


def _compared(site: Site) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    columns = "id, n, name, price"
    return (
        site.at_subscriber(f"SELECT {columns} FROM item ORDER BY id"),
        site.at_publisher(f"SELECT {columns} FROM item ORDER BY id"),
    )


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("apply", ["auto", pytest.param("serial", marks=pytest.mark.slow)])
@pytest.mark.parametrize("style", _STYLES)
def test_an_identity_is_updated_and_nothing_of_the_row_is_lost(
    style: str, apply: str, databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases(), tmp_path, _STYLES[style], apply)
    site.at_publisher(_HERE)
    site.at_subscriber(_THERE)
    site.set_up()
    site.at_publisher(_ROWS)
    site.run()
    site.at_subscriber(*_OWN)
    site.at_publisher(*_CHANGES)
    site.run()
    there, here = _compared(site)
    assert there == here
    kept = [(f"of {number}", number * 2, [number, None]) for number in (1, 2, 3, 4, 6)]
    # The key's UPDATE goes out as DELETE and INSERT: a new row.
    assert site.at_subscriber('SELECT own, twice, "Own 2" FROM item ORDER BY id') == [*kept, ("nobody", 100, None)]
    assert site.at_subscriber("SELECT count(*) FROM item WHERE at = '2000-01-01'") == [(5,)]
    assert site.at_subscriber("SELECT * FROM line ORDER BY id") == [(1, 1, 2), (2, 2, 1)]


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("style", _STYLES)
def test_an_update_of_an_identity_whose_row_is_gone_says_so(
    style: str, databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases(), tmp_path, _STYLES[style])
    site.at_publisher(_HERE)
    site.at_subscriber(_THERE)
    site.set_up()
    site.at_publisher(_ROWS)
    replicate(site)
    site.at_subscriber("DELETE FROM item WHERE id = 2")
    site.at_publisher("UPDATE item SET n = 7 WHERE id = 2")
    error = deliver_commands(site, read_commands(site)).error
    assert error is not None
    assert error.number == "20598"
    assert error.message.endswith("UPDATE command for Table 'public.item' with Primary Key(s): id = 2")


_CASCADES = ("ON DELETE CASCADE", "ON DELETE SET NULL", "ON DELETE RESTRICT")


@pytest.mark.parametrize("action", _CASCADES)
def test_a_foreign_key_that_would_act_on_the_delete_stops_it(
    action: str, databases: DatabasesFactory, tmp_path: Path
) -> None:
    # Nothing of the children is touched. With not_for_replication no foreign key acts, and the UPDATE goes through.
    ends = databases()
    site = _site(ends, tmp_path, {})
    site.at_publisher(_HERE)
    site.at_subscriber(_THERE, f"CREATE TABLE note (id int PRIMARY KEY, item int REFERENCES item {action})")
    site.set_up()
    site.at_publisher(_ROWS)
    site.run()
    site.at_subscriber("INSERT INTO note VALUES (1, 1)", *_OWN)
    site.at_publisher("UPDATE item SET n = 500 WHERE id = 1")
    site.read_log().raise_error()
    error = site.deliver().error
    assert error is not None
    assert "column n of public.item is GENERATED ALWAYS AS IDENTITY and cannot be updated" in error.message
    assert "foreign key" in error.message
    assert "note_item_fkey" in error.message
    assert error.remedy is not None
    assert "ALTER TABLE public.item ALTER COLUMN n SET GENERATED BY DEFAULT" in error.remedy
    assert "not_for_replication" in error.remedy
    assert site.at_subscriber("SELECT * FROM note") == [(1, 1)]
    assert site.at_subscriber("SELECT own, n FROM item WHERE id = 1") == [("of 1", 10)]
    replica = _site(ends, tmp_path, {}, not_for_replication=True)
    replica.deliver().raise_error()
    assert site.at_subscriber("SELECT * FROM note") == [(1, 1)]
    assert site.at_subscriber("SELECT own, n FROM item WHERE id = 1") == [("of 1", 500)]


def test_the_way_out_of_such_a_foreign_key_is_one(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases(), tmp_path, {})
    site.at_publisher(_HERE)
    site.at_subscriber(_THERE, "CREATE TABLE note (id int PRIMARY KEY, item int REFERENCES item ON DELETE CASCADE)")
    site.set_up()
    site.at_publisher(_ROWS)
    site.run()
    site.at_subscriber("INSERT INTO note VALUES (1, 1)")
    site.at_publisher("UPDATE item SET n = 500 WHERE id = 1")
    site.read_log().raise_error()
    assert site.deliver().error is not None
    site.at_subscriber("ALTER TABLE public.item ALTER COLUMN n SET GENERATED BY DEFAULT")
    site.set_up()
    site.deliver().raise_error()
    there, here = _compared(site)
    assert there == here
    assert site.at_subscriber("SELECT * FROM note") == [(1, 1)]


@pytest.mark.parametrize("script", [False, True], ids=["repair", "script"])
def test_a_repair_corrects_identities(
    script: bool, databases: DatabasesFactory, tmp_path: Path, postgres: PostgresServer
) -> None:
    site = _site(databases(), tmp_path, {})
    site.at_publisher(_HERE)
    site.at_subscriber(_THERE)
    site.set_up()
    site.at_publisher(_ROWS)
    site.run()
    site.at_subscriber(
        *_OWN,
        "ALTER TABLE item ALTER n SET GENERATED BY DEFAULT",
        "UPDATE item SET n = 99, name = 'x' WHERE id = 1",
        "UPDATE item SET name = 'x' WHERE id = 2",
        "DELETE FROM item WHERE id = 3",
        "INSERT INTO item (id, n) VALUES (9, 9)",
        "ALTER TABLE item ALTER n SET GENERATED ALWAYS",
    )
    if script:
        path = tmp_path / "repair.sql"
        assert site.validate(repair=Repair.SCRIPT, repair_script=path).error is not None
        postgres.run(
            "psql", "-q", "-v", "ON_ERROR_STOP=1", "-f", str(path), database=site.databases.subscriber.database or ""
        )
    else:
        assert site.validate(repair=Repair.APPLY).error is None
    there, here = _compared(site)
    assert there == here
    assert site.at_subscriber("SELECT own FROM item WHERE id < 3") == [("of 1",), ("of 2",)]
    assert site.at_subscriber("SELECT * FROM line ORDER BY id") == [(1, 1, 2), (2, 2, 1)]


def test_a_key_that_is_an_identity_is_updated(databases: DatabasesFactory, tmp_path: Path) -> None:
    # As an UPDATE, and as the DELETE and INSERT that it is by default.
    for policy in ("pairs", "singleton_update"):
        site = _site(databases(), tmp_path / policy, {"update_policy": policy})
        site.at_publisher(_HERE)
        site.at_subscriber(
            "CREATE TABLE item (own text DEFAULT 'new', id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n bigint, "
            "name text, price numeric(9, 2))"
        )
        site.set_up()
        site.at_publisher(_ROWS)
        site.run()
        site.at_subscriber("UPDATE item SET own = 'old'")
        site.at_publisher("UPDATE item SET id = 80, name = 'moved' WHERE id = 1")
        site.run()
        there, here = _compared(site)
        assert there == here
        own = "old" if policy == "singleton_update" else "new"
        assert site.at_subscriber("SELECT own FROM item WHERE id = 80") == [(own,)]


def test_a_table_with_heirs_is_left_alone(databases: DatabasesFactory, tmp_path: Path) -> None:
    # The row may be in a child table, with columns that its parent does not have.
    site = _site(databases(), tmp_path, {})
    site.at_publisher(_HERE)
    site.at_subscriber(_THERE, "CREATE TABLE heir (more text) INHERITS (item)")
    site.set_up()
    site.at_publisher("INSERT INTO item VALUES (1, 10)")
    site.run()
    site.at_subscriber("DELETE FROM item", "INSERT INTO heir (id, n, more) VALUES (1, 10, 'more')")
    site.at_publisher("UPDATE item SET n = 11 WHERE id = 1")
    error = deliver_commands(site, read_commands(site)).error
    assert error is not None
    assert "cannot be updated: other tables inherit from it" in error.message
    assert execute(site.databases.subscriber, "SELECT n, more FROM heir") == [(10, "more")]
