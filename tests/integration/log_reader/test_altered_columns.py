"""A column that is altered among changes: the publication stops without loss, and goes on after a new setup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.databases import Databases
from support.equality import differing_rows
from support.site import Site
from support.spark_here import SparkHere
from support.vendor_site import VENDOR
from tranrepl.errors import ConfigurationError, ErrorKind
from tranrepl.jobs.results import JobResult


@dataclass(frozen=True, slots=True)
class _Alteration:
    """An ALTER of a table at the Publisher: how, how the Subscriber follows, and what goes on there afterwards."""

    statement: str
    column: str
    afterwards: tuple[str, ...]
    at_subscriber: tuple[str, ...] = ()
    columns: Sequence[str] | None = None
    columns_afterwards: Sequence[str] | None = None
    among_changes: bool = True
    rewrites: bool = False


_ALTERATIONS = {
    "dropped": _Alteration(
        "ALTER TABLE vendor DROP COLUMN note",
        "note",
        ("INSERT INTO vendor VALUES (11, 'after', 1)", "UPDATE vendor SET name = 'changed' WHERE id IN (1, 10)"),
    ),
    "retyped": _Alteration(
        "ALTER TABLE vendor ALTER COLUMN rating TYPE bigint",
        "rating",
        (
            "INSERT INTO vendor VALUES (11, 'after', 5000000000, NULL)",
            "UPDATE vendor SET rating = 7000000000 WHERE id IN (1, 10)",
        ),
        ("ALTER TABLE vendor ALTER COLUMN rating TYPE bigint",),
        rewrites=True,
    ),
    "renamed": _Alteration(
        "ALTER TABLE vendor RENAME COLUMN note TO remark",
        "note",
        (
            "INSERT INTO vendor (id, remark) VALUES (11, 'after')",
            "UPDATE vendor SET remark = 'changed' WHERE id IN (1, 10)",
        ),
        ("ALTER TABLE vendor RENAME COLUMN note TO remark",),
    ),
    "renamed in a column list, by itself": _Alteration(
        "ALTER TABLE vendor RENAME COLUMN note TO remark",
        "note",
        ("INSERT INTO vendor (id, remark) VALUES (11, 'after')", "UPDATE vendor SET remark = NULL, rating = 0"),
        ("ALTER TABLE vendor RENAME COLUMN note TO remark",),
        ("id", "note"),
        ("id", "remark"),
        among_changes=False,
    ),
    "dropped from a column list, by itself": _Alteration(
        "ALTER TABLE vendor DROP COLUMN note",
        "note",
        ("INSERT INTO vendor (id, name) VALUES (11, 'after')", "UPDATE vendor SET name = 'changed'"),
        (),
        ("id", "name", "note"),
        ("id", "name"),
        among_changes=False,
    ),
}


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("alteration", _ALTERATIONS.values(), ids=list(_ALTERATIONS))
def test_an_altered_column_stops_the_publication_without_loss(
    alteration: _Alteration, ends: Databases, tmp_path: Path
) -> None:
    site = _site_of(ends, tmp_path, alteration.columns)
    site.at_publisher(VENDOR)
    site.set_up()
    site.at_publisher(
        "INSERT INTO vendor SELECT n, 'before', n, 'note' FROM generate_series(1, 5) n",
        "UPDATE vendor SET note = 'other' WHERE id = 2",
        "DELETE FROM vendor WHERE id = 3",
        *_altering_transaction(alteration),
        *alteration.afterwards,
        "DELETE FROM vendor WHERE id = 4",
    )
    stored = 3 if alteration.among_changes else 4
    _assert_stopped(site.read_log(), "public.vendor", alteration.column, stored)
    assert site.deliver().transactions == stored
    survivors = [(1,), (2,), (4,), (5,)] if alteration.among_changes else [(1,), (2,), (4,), (5,), (10,)]
    assert site.at_subscriber("SELECT id FROM vendor ORDER BY 1") == survivors
    _assert_stopped(site.read_log(), "public.vendor", alteration.column, 0)

    site = _site_of(ends, tmp_path, alteration.columns_afterwards)
    site.at_subscriber(*alteration.at_subscriber)
    site.set_up()
    if alteration.rewrites:
        # With what other values, the log does not tell.
        site.read_log().raise_error()
        with pytest.raises(ConfigurationError, match="its table was rewritten"):
            site.deliver()
        site.validate().raise_error()
    site.run()
    assert differing_rows(site) == {}
    assert site.differences() == []
    assert (11,) in site.at_subscriber("SELECT id FROM vendor")


def _site_of(ends: Databases, tmp_path: Path, columns: Sequence[str] | None = None) -> Site:
    article: dict[str, object] = {"source": "public.vendor"}
    if columns:
        article["columns"] = list(columns)
    return Site(ends, tmp_path / "store", [article], SparkHere())


def _altering_transaction(alteration: _Alteration) -> tuple[str, ...]:
    insert = "INSERT INTO vendor VALUES (10, 'before', 10, 'note')"
    if not alteration.among_changes:
        return insert, alteration.statement
    update = "UPDATE vendor SET rating = {} WHERE id = 5"
    return (f"BEGIN; {update.format(1)}; {insert}; {alteration.statement}; {update.format(2)}; COMMIT",)


def _assert_stopped(result: JobResult, table: str, column: str, transactions: int) -> None:
    assert result.error is not None
    assert result.error.kind is ErrorKind.CONFIGURATION
    assert table in result.error.message
    assert f"column {column} " in result.error.message
    assert "tranrepl setup" in (result.error.remedy or "")
    assert result.transactions == transactions


def test_an_added_column_is_passed_over(ends: Databases, tmp_path: Path) -> None:
    site = _site_of(ends, tmp_path)
    site.at_publisher(VENDOR)
    site.set_up()
    site.at_publisher(
        "INSERT INTO vendor SELECT n, 'before', n, 'note' FROM generate_series(1, 5) n",
        "BEGIN; UPDATE vendor SET rating = 7; ALTER TABLE vendor ADD COLUMN added uuid DEFAULT gen_random_uuid(); "
        "UPDATE vendor SET rating = 8, added = NULL WHERE id < 3; COMMIT",
        "INSERT INTO vendor VALUES (6, 'after', 6, NULL)",
        "UPDATE vendor SET id = 7, note = 'moved' WHERE id = 6",
        "UPDATE vendor SET added = NULL",
    )
    assert site.run().transactions == 4
    assert differing_rows(site) == {}
    assert site.at_subscriber("SELECT * FROM vendor WHERE id = 7") == [(7, "after", 6, "moved")]


_REPLACED = {
    "a table": (("DROP TABLE vendor", VENDOR), "table public.vendor was dropped"),
    "a column": (("ALTER TABLE vendor DROP COLUMN note, ADD COLUMN note text",), "column note was dropped"),
}


@pytest.mark.parametrize(("statements", "problem"), _REPLACED.values(), ids=list(_REPLACED))
def test_a_table_recreated_under_its_name_stops_the_publication(
    statements: tuple[str, ...], problem: str, ends: Databases, tmp_path: Path
) -> None:
    # The log does not show it; without a stop the Subscriber would silently keep the rows that are gone.
    site = _site_of(ends, tmp_path)
    site.at_publisher(VENDOR)
    site.set_up()
    site.at_publisher(
        "INSERT INTO vendor VALUES (1, 'old', 1, 'note')", *statements, "INSERT INTO vendor VALUES (2, 'new', 2, NULL)"
    )
    error = site.read_log().error
    assert error is not None
    assert (error.kind, problem in error.message) == (ErrorKind.CONFIGURATION, True)
    site.deliver().raise_error()
    assert site.at_subscriber("SELECT name, note FROM vendor WHERE id = 1") == [("old", "note")]
    with pytest.raises(ConfigurationError, match=problem):
        site.read_log()
