"""A primary key's column that gets another type, in which its values are stored otherwise."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.command_history import Column, History
from support.schema_changes import change, retyped
from support.subscribers import Site

INT, BIGINT = Column("id", "integer", key=1), Column("id", "bigint", key=1)
PARENT, NAME = Column("parent", "integer"), Column("name", "character varying(20)")
_TABLES = {
    "key apart": "id {} NOT NULL, parent INTEGER, name VARCHAR(20), CONSTRAINT k PRIMARY KEY (id))",
    "descending": "[id] {} PRIMARY KEY DESC, parent INTEGER, name VARCHAR(20))",
    "small letters": "'id' {} PRIMARY KEY ON CONFLICT FAIL, parent integer, name varchar(20))",
    "without rowid": "id {} PRIMARY KEY, parent INTEGER, name VARCHAR(20)) WITHOUT ROWID",
    "referring to itself": (
        '"id" {} PRIMARY KEY, parent INTEGER REFERENCES vendor (id) ON DELETE CASCADE, name VARCHAR(20))'
    ),
}
_TYPE = "SELECT type FROM pragma_table_info('vendor') WHERE pk = 1"


@pytest.fixture
def site(make_site: Callable[[str], Site]) -> Site:
    return make_site("sqlite statements")


@pytest.mark.parametrize("table", _TABLES)
@pytest.mark.parametrize(("before", "after"), [(INT, BIGINT), (BIGINT, INT)], ids=["rowid before", "rowid after"])
def test_an_sqlite_key_is_stored_as_its_type_is(site: Site, table: str, before: Column, after: Column) -> None:
    """INTEGER is the rowid itself, and every other type has an index."""
    declared = {"integer": "integer" if table == "small letters" else "INTEGER", "bigint": "BIGINT"}
    site.execute(
        f"CREATE TABLE vendor ({_TABLES[table].format(declared[before.type_name])}",
        "CREATE TABLE invoice (number INTEGER PRIMARY KEY, vendor INTEGER REFERENCES Vendor (id) ON DELETE CASCADE)",
        "CREATE TABLE audit (id, name)",
        "CREATE INDEX vendor_name ON vendor (name)",
        "CREATE VIEW named AS SELECT name FROM vendor",
        "CREATE TRIGGER audited AFTER DELETE ON vendor BEGIN INSERT INTO audit VALUES (OLD.id, OLD.name); END",
    )
    old = site.article("vendor", [before, PARENT, NAME])
    new = site.next_definition(old, [after, PARENT, NAME])
    history = History().insert(old, ["1", None, "Allen"]).insert(old, ["2", "1", "Blotts"])
    assert site.deliver(history).error is None
    site.execute("INSERT INTO invoice VALUES (70, 2)")
    later = History(xact=1).transaction().schema(change(old, new, retyped(after))).insert(new, ["3000", "1", "Crane"])
    result = site.deliver(later, site.watermark())
    assert result.error is None, result.error
    assert site.execute(_TYPE) == [(declared[after.type_name].upper(),)]
    assert site.execute("PRAGMA integrity_check") == [("ok",)]
    assert site.execute("PRAGMA foreign_key_check") == []
    assert site.rows("vendor") == [(1, None, "Allen"), (2, 1, "Blotts"), (3000, 1, "Crane")]
    assert site.rows("named") == [("Allen",), ("Blotts",), ("Crane",)]
    assert site.rows("invoice") == [(70, 2)]
    assert site.rows("audit") == []
    site.execute("PRAGMA foreign_keys = ON", "DELETE FROM vendor WHERE id = 2")
    assert site.rows("audit") == [(2, "Blotts")]
    assert site.rows("invoice") == []


def test_an_sqlite_key_that_was_counted_up_gets_another_type(site: Site) -> None:
    site.execute("CREATE TABLE vendor (id INTEGER PRIMARY KEY AUTOINCREMENT)", "INSERT INTO vendor VALUES (4)")
    old = site.article("vendor", [INT])
    new = site.next_definition(old, [BIGINT])
    result = site.deliver(History().schema(change(old, new, retyped(BIGINT))).insert(new, ["5000000000"]))
    assert result.error is None, result.error
    assert site.execute("PRAGMA integrity_check") == [("ok",)]
    assert site.rows("vendor") == [(4,), (5_000_000_000,)]


def test_an_sqlite_key_has_its_type_of_before_where_the_transaction_fails(site: Site) -> None:
    old = site.article("vendor", [INT])
    new = site.next_definition(old, [BIGINT])
    assert site.deliver(History().insert(old, ["1"])).error is None
    before = site.execute("SELECT * FROM sqlite_schema")
    later = History(xact=1).transaction().insert(old, ["2"]).schema(change(old, new, retyped(BIGINT)))
    assert site.deliver(later.insert(new, ["2"]), site.watermark()).error is not None
    assert site.execute("PRAGMA integrity_check") == [("ok",)]
    assert site.execute("SELECT * FROM sqlite_schema") == before
    assert site.rows("vendor") == [(1,)]
