"""A new subscription that takes no snapshot, where what is stored is of earlier definitions of the tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import DatabaseFactory, DatabasesFactory
from support.site import Site, execute
from support.spark_here import SparkHere
from support.whole_run import good_run
from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError

_REPORTING = {"name": "reporting", "connection": "subscriber"}
_SWAP = "ALTER TABLE t RENAME note TO o; ALTER TABLE t RENAME other TO note; ALTER TABLE t RENAME o TO other"
_CHANGES = {"added": "ALTER TABLE t ADD COLUMN extra int DEFAULT 7", "swapped": _SWAP}
_ROWS = "SELECT * FROM t ORDER BY id"


@pytest.fixture
def late(database: DatabaseFactory) -> Connection:
    return database("late")


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    site = Site(databases(), tmp_path / "store", ["public.t"], SparkHere(), [_REPORTING], replicate_ddl=True)
    site.at_publisher("CREATE TABLE t (id int PRIMARY KEY, note text, other text)")
    site.set_up()
    site.at_publisher("INSERT INTO t VALUES (1, 'a', 'x'), (2, 'b', 'y')", "UPDATE t SET note = 'c' WHERE id = 2")
    site.read_log().raise_error()
    return site


def _with(site: Site, late: Connection, **settings: str) -> Site:
    subscriptions = [_REPORTING, {"name": "late", "connection": "late", **settings}]
    store = site.publication.distributor.store
    made = Site(site.databases, store, ["public.t"], SparkHere(), subscriptions, replicate_ddl=True)
    made.connections["late"] = late
    return made


@pytest.mark.parametrize("change", ["added", pytest.param("swapped", marks=pytest.mark.slow)])
@pytest.mark.parametrize("way", ["automatic", pytest.param("initialize_from_lsn", marks=pytest.mark.slow)])
def test_it_is_refused_and_begins_in_each_way_that_the_message_names(
    site: Site, late: Connection, change: str, way: str
) -> None:
    site.at_publisher(_CHANGES[change], "UPDATE t SET other = 'later' WHERE id = 1")
    site.read_log().raise_error()
    with pytest.raises(ConfigurationError, match="were stored before a schema change") as refused:
        _with(site, late).set_up()
    assert f"sync_type: {way}" in (refused.value.report.remedy or "")
    assert execute(late, "SELECT to_regclass('t')::text") == [(None,)]
    if way == "automatic":
        changed = _with(site, late, sync_type=way)
    else:
        shape = ", extra int" if change == "added" else ""
        execute(late, f"CREATE TABLE t (id int PRIMARY KEY, {_names(site)}{shape})")
        for row in site.at_publisher(_ROWS):
            execute(late, f"INSERT INTO t VALUES ({', '.join(map(repr, row))})")
        ((lsn,),) = site.at_publisher("SELECT pg_current_wal_flush_lsn()::text")
        changed = _with(site, late, sync_type=way, subscription_lsn=lsn)
    changed.set_up()
    changed.at_publisher("INSERT INTO t (id, note) VALUES (3, 'new')", "UPDATE t SET other = 'last' WHERE id = 2")
    good_run(changed)
    rows = changed.at_publisher(_ROWS)
    assert changed.at_subscriber(_ROWS) == rows
    assert execute(late, _ROWS) == rows


def _names(site: Site) -> str:
    """Return the columns that take turns, in the order that the Publisher's table has them in."""
    query = "SELECT attname FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum IN (2, 3) ORDER BY attnum"
    return ", ".join(f"{name} text" for (name,) in site.at_publisher(query))


@pytest.mark.slow
def test_it_begins_with_what_is_stored_where_that_is_of_one_definition(site: Site, late: Connection) -> None:
    changed = _with(site, late)
    changed.set_up()
    good_run(changed)
    assert execute(late, _ROWS) == changed.at_publisher(_ROWS)
