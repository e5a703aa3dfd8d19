"""Every way of applying a change of a MariaDB or MySQL Publisher, at a PostgreSQL and a MariaDB Subscriber: each call
syntax, statements, a custom procedure, nothing; unique values and keys that change hands within a transaction, and
columns that are generated or invisible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.mariadb import MariaDbServer
from support.publishers import new_mariadb_database
from support.site import Rows, Site, execute
from support.spark_here import SparkHere
from support.subscribers import STATEMENTS

_WAYS = {
    "called": {"upd_cmd": "CALL"},
    "scalled": {"upd_cmd": "SCALL"},
    "mcalled": {"upd_cmd": "MCALL"},
    "xcalled": {"upd_cmd": "XCALL", "del_cmd": "XCALL"},
    "stated": STATEMENTS,
    "own": {"upd_cmd": "XCALL own_update"},
    "inserted": {"upd_cmd": "NONE", "del_cmd": "NONE"},
}
_COLUMNS = "id, code, name, amount, hidden"
_TABLE = (
    "CREATE TABLE {} (id int PRIMARY KEY, code int UNIQUE, name varchar(40), amount int, "
    "twice int GENERATED ALWAYS AS (amount * 2) STORED, half int GENERATED ALWAYS AS (amount / 2) VIRTUAL, "
    "hidden int DEFAULT 5 INVISIBLE) CHARACTER SET utf8mb4"
)
_OWN = (
    "CREATE PROCEDURE own_update(old_id int, old_code int, old_name varchar(40), old_amount int, old_hidden int, "
    "new_id int, new_code int, new_name varchar(40), new_amount int, new_hidden int) {} "
    "UPDATE own SET name = UPPER(new_name), amount = new_amount + old_amount, hidden = new_hidden WHERE id = old_id {}"
)
_INSERTS = (
    "INSERT INTO {0} (id, code, name, amount) VALUES (1, 10, 'one', 1), (2, 20, 'two', 2), (3, 30, 'three', NULL)",
    "INSERT INTO {0} (id, code, name, amount, hidden) VALUES (4, NULL, 'it''s', 4, 6), (5, 50, NULL, 5, NULL)",
)
_UPDATES = ("UPDATE {0} SET name = 'other', hidden = 8 WHERE id IN (1, 2)", "UPDATE {0} SET amount = 9 WHERE id = 5")
_EXCHANGES = (
    "BEGIN",
    "UPDATE {0} SET code = NULL, name = 'moved' WHERE id = 1",
    "UPDATE {0} SET code = 10 WHERE id = 2",
    "UPDATE {0} SET code = 20 WHERE id = 1",
    "UPDATE {0} SET id = 7 WHERE id = 3",
    "UPDATE {0} SET id = 3 WHERE id = 4",
    "UPDATE {0} SET id = 4 WHERE id = 7",
    "COMMIT",
)
_DELETE = "DELETE FROM {0} WHERE id = 5"


@pytest.fixture(params=["mariadb", *(pytest.param(it, marks=pytest.mark.slow) for it in ("mariadb-11.8", "mysql-9.7"))])
def site(
    request: pytest.FixtureRequest,
    databases: DatabasesFactory,
    publishing: Callable[[str], MariaDbServer],
    tmp_path: Path,
) -> Site:
    server, other = publishing(request.param), publishing("mariadb")
    name, copy = new_mariadb_database(server), new_mariadb_database(other)
    articles = [
        {
            "source": f"{name}.{it}",
            "destination": f"public.{it}",
            "destinations": {"copy": f"{copy}.{it}"},
            **way,
        }
        for it, way in _WAYS.items()
    ]
    subscriptions = [{"name": "reporting", "connection": "subscriber"}, {"name": "copy", "connection": "copy"}]
    ends = replace(databases(), publisher=server.connection(name, "publisher"))
    site = Site(ends, tmp_path / "store", articles, SparkHere(), subscriptions)
    site.connections["copy"] = other.connection(copy, "copy")
    site.at_publisher(*map(_TABLE.format, _WAYS))
    site.at_subscriber(_OWN.format("LANGUAGE plpgsql AS $$ BEGIN", "; END $$"))
    execute(site.connections["copy"], _OWN.format("", ""))
    return site


def _rows(site: Site, table: str) -> dict[str, Rows]:
    """Return a table's rows at each end."""
    query = f"SELECT {_COLUMNS} FROM {table} ORDER BY id"
    return {name: execute(it, query) for name, it in site.connections.items() if name != "distribution"}


def test_a_change_is_applied_as_its_article_says(site: Site) -> None:
    site.set_up()
    moving = [it for it in _WAYS if it not in ("own", "inserted")]
    for end in ("subscriber", "copy"):
        execute(site.connections[end], *(f"ALTER TABLE {it} ADD UNIQUE (code)" for it in _WAYS))
    site.at_publisher(*(it.format(table) for table in _WAYS for it in (*_INSERTS, *_UPDATES)))
    site.run()
    site.at_publisher(*(it.format(table) for table in moving for it in _EXCHANGES))
    site.at_publisher(*(_DELETE.format(table) for table in _WAYS))
    site.run()
    for table in moving:
        rows = _rows(site, table)
        assert rows["publisher"] == [
            (1, 20, "moved", 1, 8),
            (2, 10, "other", 2, 8),
            (3, None, "it's", 4, 6),
            (4, 30, "three", None, 5),
        ]
        assert [end for end, found in rows.items() if found != rows["publisher"]] == [], table
    assert _rows(site, "own")["publisher"][:2] == [(1, 10, "other", 1, 8), (2, 20, "other", 2, 8)]
    (own, inserted) = ({it: _rows(site, table)[it] for it in ("subscriber", "copy")} for table in ("own", "inserted"))
    called = [(1, 10, "OTHER", 2, 8), (2, 20, "OTHER", 4, 8), (3, 30, "three", None, 5), (4, None, "it's", 4, 6)]
    assert own == dict.fromkeys(own, called)
    first = [
        (1, 10, "one", 1, 5),
        (2, 20, "two", 2, 5),
        (3, 30, "three", None, 5),
        (4, None, "it's", 4, 6),
        (5, 50, None, 5, None),
    ]
    assert inserted == dict.fromkeys(inserted, first)
