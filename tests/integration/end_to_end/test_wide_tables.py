"""Tables as wide as PostgreSQL makes them: a command of theirs has more values than a staging table has columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.databases import Databases
from support.in_process import deliver_stored, read_log_into_store
from support.site import Site
from tranrepl.errors import DataError
from tranrepl.jobs.results import JobResult

_BY_STATEMENTS = {"ins_cmd": "SQL", "upd_cmd": "SQL", "del_cmd": "SQL"}
_ROWS = 12


def _site(databases: Databases, tmp_path: Path, apply: str, **widths: tuple[int, str]) -> Site:
    """A table for each name, of so many columns of a type beside its key."""
    articles = [{"source": f"public.{name}", **_BY_STATEMENTS} for name in widths]
    subscription = {"name": "reporting", "connection": "subscriber", "apply": apply}
    site = Site(databases, tmp_path / "store", articles, subscriptions=[subscription])
    for name, (width, type_name) in widths.items():
        columns = ", ".join(f"c{at} {type_name}" for at in range(1, width))
        site.at_publisher(f"CREATE TABLE {name} (id integer PRIMARY KEY, {columns})")
    site.set_up()
    return site


def _work(table: str, width: int) -> Iterator[str]:
    """Rows that come, change in one column, in some, in all and in their key, and go."""
    values = ", ".join(["n % 2", "NULL", *["n"] * (width - 3)])
    yield f"INSERT INTO {table} SELECT n, {values} FROM generate_series(1, {_ROWS}) n"
    yield f"UPDATE {table} SET c5 = c5 || '1'" if table == "texts" else f"UPDATE {table} SET c5 = c5 + 1"
    yield f"UPDATE {table} SET c{width - 1} = NULL WHERE id % 2 = 0"
    everything = ", ".join(f"c{at} = {at % 10}" for at in range(1, width))
    yield f"UPDATE {table} SET {everything} WHERE id > 3"
    yield f"UPDATE {table} SET id = -id, c1 = 7 WHERE id = 5"
    yield f"DELETE FROM {table} WHERE id > 9"


def _replicated(site: Site) -> JobResult:
    read_log_into_store(site).raise_error()
    delivered = deliver_stored(site)
    delivered.raise_error()
    assert site.differences() == []
    return delivered


@pytest.mark.parametrize(
    ("width", "type_name", "apply"),
    [(1600, "integer", "auto"), (1600, "integer", "serial"), (1598, "integer", "auto"), (999, "bigint", "serial")],
)
def test_as_many_columns_as_a_table_has(
    width: int, type_name: str, apply: str, databases: DatabasesFactory, tmp_path: Path
) -> None:
    """999 numbers of eight bytes, and one NULL, fill a page: with anything beside them, a row is too long for one."""
    site = _site(databases(), tmp_path, apply, t=(width, type_name))
    for statement in _work("t", width):
        site.at_publisher(statement)
        _replicated(site)
    assert len(site.at_subscriber("SELECT id FROM t")) == 9


def test_together_tables_are_wider_than_a_table(databases: DatabasesFactory, tmp_path: Path) -> None:
    """Of different types, so that no column of a staging table serves both."""
    site = _site(databases(), tmp_path, "serial", numbers=(900, "integer"), texts=(900, "text"))
    for table in ("numbers", "texts"):
        site.at_publisher(*_work(table, 900))
    assert _replicated(site).commands > 6 * _ROWS


def test_what_a_wide_table_refuses_is_named(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases(), tmp_path, "auto", t=(1600, "integer"))
    site.at_publisher(*_work("t", 1600))
    _replicated(site)
    site.at_subscriber("ALTER TABLE t ADD CHECK (c9 <> 77)")
    site.at_publisher("UPDATE t SET c8 = 55 WHERE id = 1", "UPDATE t SET c9 = 77 WHERE id = 2")
    read_log_into_store(site).raise_error()
    error = deliver_stored(site).error
    assert error is not None
    assert (error.kind, error.article, error.key) == (DataError.kind, "public.t", "id = 2")
    site.at_subscriber("DELETE FROM t WHERE id = 1")
    error = deliver_stored(site).error
    assert error is not None
    assert (error.number, error.article, error.key) == ("20598", "public.t", "id = 1")
