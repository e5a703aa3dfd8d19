"""Tables wider than a procedure has arguments, or a staging table columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.article_styles import BY_STATEMENTS, SiteFactory, unequal_articles
from support.databases import Databases
from support.in_process import deliver_stored, read_log_into_store, replicate_stored
from support.site import Site
from tranrepl.admin.check import check
from tranrepl.errors import DataError
from tranrepl.jobs.results import JobResult

_ROWS = 12


def _site(databases: Databases, tmp_path: Path, apply: str, **widths: tuple[int, str]) -> Site:
    """Return a site with a table for each name, of so many columns of a type beside its key."""
    articles = [{"source": f"public.{name}", **BY_STATEMENTS} for name in widths]
    subscription = {"name": "reporting", "connection": "subscriber", "apply": apply}
    site = Site(databases, tmp_path / "store", articles, subscriptions=[subscription])
    for name, (width, type_name) in widths.items():
        columns = ", ".join(f"c{at} {type_name}" for at in range(1, width))
        site.at_publisher(f"CREATE TABLE {name} (id integer PRIMARY KEY, {columns})")
    site.set_up()
    return site


def _work(table: str, width: int) -> Iterator[str]:
    """Yield statements that insert rows, change one column, some, all and the key, and delete."""
    values = ", ".join(["n % 2", "NULL", *["n"] * (width - 3)])
    yield f"INSERT INTO {table} SELECT n, {values} FROM generate_series(1, {_ROWS}) n"
    yield f"UPDATE {table} SET c5 = c5 || '1'" if table == "texts" else f"UPDATE {table} SET c5 = c5 + 1"
    yield f"UPDATE {table} SET c{width - 1} = NULL WHERE id % 2 = 0"
    everything = ", ".join(f"c{at} = {at % 10}" for at in range(1, width))
    yield f"UPDATE {table} SET {everything} WHERE id > 3"
    yield f"UPDATE {table} SET id = -id, c1 = 7 WHERE id = 5"
    yield f"DELETE FROM {table} WHERE id > 9"


def _replicated(site: Site) -> JobResult:
    delivered = replicate_stored(site)
    assert site.differences() == []
    return delivered


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "type_name", "apply"),
    [
        (1600, "integer", "auto"),
        pytest.param(1600, "integer", "serial", marks=pytest.mark.slow),
        pytest.param(1598, "integer", "auto", marks=pytest.mark.slow),
        pytest.param(999, "bigint", "serial", marks=pytest.mark.slow),
    ],
)
def test_as_many_columns_as_a_table_has(
    width: int, type_name: str, apply: str, databases: DatabasesFactory, tmp_path: Path
) -> None:
    # 999 numbers of eight bytes, and one NULL, fill a page: with anything beside them, a row is too long for one.
    site = _site(databases(), tmp_path, apply, t=(width, type_name))
    for statement in _work("t", width):
        site.at_publisher(statement)
        _replicated(site)
    assert len(site.at_subscriber("SELECT id FROM t")) == 9


@pytest.mark.slow
def test_together_tables_are_wider_than_a_table(databases: DatabasesFactory, tmp_path: Path) -> None:
    # Their types differ, so that no column of a staging table serves both.
    site = _site(databases(), tmp_path, "serial", numbers=(900, "integer"), texts=(900, "text"))
    for table in ("numbers", "texts"):
        site.at_publisher(*_work(table, 900))
    assert _replicated(site).commands > 6 * _ROWS


@pytest.mark.slow
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


def _create_wide(count: int) -> list[str]:
    columns = ", ".join(f"c{at} int" for at in range(1, count))
    return [f"CREATE TABLE wide (id int PRIMARY KEY, {columns})"]


def _changes_of_wide(count: int) -> list[str]:
    last = f"c{count - 1}"
    return [
        f"INSERT INTO wide SELECT n, {', '.join(f'n * {at}' for at in range(1, count))} FROM generate_series(1, 9) n",
        f"UPDATE wide SET {last} = NULL, c8 = -1 WHERE id < 4",
        f"UPDATE wide SET id = id + 100, {last} = 5 WHERE id = 5",
        "DELETE FROM wide WHERE id = 6",
    ]


def test_a_procedure_may_take_100_arguments(site_of: SiteFactory) -> None:
    here = site_of("public.wide")
    here.at_publisher(*_create_wide(98))
    here.set_up()
    assert here.at_subscriber("SELECT max(pronargs) FROM pg_proc WHERE proname LIKE 'sp_MS%'") == [(100,)]
    here.at_publisher(*_changes_of_wide(98))
    here.run()
    assert unequal_articles(here) == []


@pytest.mark.parametrize(
    ("columns", "settings", "refused"),
    [
        (99, {}, [("upd_cmd", 101)]),
        (99, {"upd_cmd": "SQL"}, []),
        (150, {}, [("ins_cmd", 150), ("upd_cmd", 152)]),
        (150, BY_STATEMENTS, []),
    ],
)
def test_more_arguments_are_refused_and_statements_take_them(
    columns: int, settings: Mapping[str, str], refused: list[tuple[str, int]], site_of: SiteFactory
) -> None:
    here = site_of({"source": "public.wide", **settings})
    here.at_publisher(*_create_wide(columns))
    assert [it.message for it in check(here.topology).problems] == [
        f"article public.wide: {option}: the procedure would take {count} arguments, a PostgreSQL procedure takes 100"
        for option, count in refused
    ]
    if not refused:
        here.set_up()
        here.at_publisher(*_changes_of_wide(columns))
        here.run()
        assert unequal_articles(here) == []
