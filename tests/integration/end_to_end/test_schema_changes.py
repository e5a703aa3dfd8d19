"""Schema changes go the whole way: both ends have the same table and the same rows, and a killed log reader goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.equality import differing_rows
from support.in_process import read_log_into_store
from support.site import Rows, Site, execute
from support.spark_here import SparkHere
from tranrepl.connections import Connection
from tranrepl.distributor import command_file
from tranrepl.failpoint import Failpoint
from tranrepl.log_reader import draining

_SHAPE = """
SELECT column_name, data_type, character_maximum_length, is_nullable, column_default
  FROM information_schema.columns WHERE table_name = 'item' ORDER BY column_name
"""
_HISTORY = [
    ["INSERT INTO item SELECT n, 'n' || n, n, n FROM generate_series(1, 5) n"],
    ["ALTER TABLE item ADD COLUMN c text DEFAULT 'x''y'", "UPDATE item SET c = 'z' WHERE id = 1"],
    ["ALTER TABLE item RENAME name TO swapped", "ALTER TABLE item RENAME spare TO name"],
    ["ALTER TABLE item ADD COLUMN size int NOT NULL DEFAULT 5, ADD COLUMN low int DEFAULT -1"],
    ["ALTER TABLE item RENAME swapped TO spare", "INSERT INTO item VALUES (6, 'six', 6, 6, NULL, 7, NULL)"],
    [
        "UPDATE item SET price = 7 WHERE id = 2",
        "ALTER TABLE item DROP COLUMN price",
        "SAVEPOINT a",
        "ALTER TABLE item DROP COLUMN c",
        "ROLLBACK TO a",
        "ALTER TABLE item ADD COLUMN price text",
        "UPDATE item SET price = 'dear' WHERE id = 3",
    ],
    ["ALTER TABLE item ALTER COLUMN spare DROP NOT NULL", "UPDATE item SET spare = NULL WHERE id = 4"],
    ["ALTER TABLE item ALTER COLUMN spare TYPE varchar(40)", "DELETE FROM item WHERE id = 5"],
]


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    site = Site(databases(), tmp_path / "store", ["public.item"], SparkHere(), replicate_ddl=True)
    site.at_publisher(
        "CREATE TABLE item (id int PRIMARY KEY, name varchar(20) NOT NULL, price numeric(8,2), spare int)"
    )
    site.set_up()
    return site


def _shape(connection: Connection) -> Rows:
    return execute(connection, _SHAPE)


def _happen(site: Site) -> None:
    for transaction in _HISTORY:
        execute(site.databases.publisher, "BEGIN; " + "; ".join(transaction) + "; COMMIT")


def _assert_equal(site: Site) -> None:
    assert differing_rows(site) == {}
    assert _shape(site.databases.subscriber) == _shape(site.databases.publisher)


def test_a_history_of_schema_changes_leaves_both_ends_equal(site: Site) -> None:
    _happen(site)
    site.run()
    _assert_equal(site)


class _Killed(BaseException):
    pass


@pytest.mark.parametrize(
    "failpoint", [Failpoint.STORED, Failpoint.SCHEMA_CHANGED, Failpoint.REGISTERED, Failpoint.ADVANCED]
)
def test_a_log_reader_that_dies_at_a_schema_change_goes_on(
    site: Site, failpoint: Failpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reach(point: Failpoint) -> None:
        if point is failpoint:
            raise _Killed

    _happen(site)
    with monkeypatch.context() as patched:
        patched.setattr(draining, "reach", reach)
        patched.setattr(command_file, "reach", reach)
        with pytest.raises(_Killed):
            read_log_into_store(site)
    site.run()
    _assert_equal(site)
