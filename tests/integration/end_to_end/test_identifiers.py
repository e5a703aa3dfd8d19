"""Tables, schemas and columns of any name: quoted, reserved, too long, alike but for a letter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.article_styles import STYLES, SiteFactory, unequal_articles
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.admin.check import check
from tranrepl.model.commands import Operation
from tranrepl.model.names import TableName
from tranrepl.subscriber.capabilities import NameLimit, NameUnit
from tranrepl.subscriber.procedure_names import procedure_name

NAMES = [
    "Mixed Case",
    "with.dot",
    'with "quotes"',
    "it's",
    "100% of %s and %(x)s %%",
    "{} {0} {name}",
    "back\\slash \\n",
    "$procedure$",
    "$1",
    "select",
    "user",
    "order",
    "c1",
    "pkc1",
    "bitmap",
    "destination",
    "tranrepl_command",
    "seq",
    "kind",
    "s0",
    "found",
    "sqlstate",
    "ünïcödé 表",
    "--",
    "/* ",
    ":colon",
    "[x]",
    "l" * 63,
    "\u00e9" * 31 + "x",
]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _create(table: TableName, columns: Sequence[str], key: Sequence[str]) -> str:
    fields = ", ".join(f"{_quoted(name)} text" for name in columns)
    listed = ", ".join(map(_quoted, key))
    return f"CREATE TABLE {_quoted(table.schema)}.{_quoted(table.table)} ({fields}, PRIMARY KEY ({listed}))"


def _work(table: TableName, columns: Sequence[str], key: Sequence[str]) -> list[str]:
    name = f"{_quoted(table.schema)}.{_quoted(table.table)}"
    first, last = _quoted(key[0]), _quoted(next((it for it in reversed(columns) if it not in key), key[-1]))
    values = ", ".join(f"n || {at}::text" for at in range(len(columns)))
    return [
        f"INSERT INTO {name} SELECT {values} FROM generate_series(1, 9) n",
        f"UPDATE {name} SET {last} = {last} || '!' WHERE left({first}, 1) < '5'",
        f"UPDATE {name} SET {first} = 'moved' || {first} WHERE left({first}, 1) = '2'",
        f"DELETE FROM {name} WHERE left({first}, 1) = '3'",
    ]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("style", STYLES)
def test_columns_of_any_name_arrive(style: str, site_of: SiteFactory) -> None:
    # Each name once inside the key and once outside; the two tables share nothing else.
    inside, outside = TableName("public", "inside"), TableName("public", "outside")
    here = site_of(str(inside), str(outside), style=style)
    here.at_publisher(_create(inside, [*NAMES, "plain"], NAMES), _create(outside, ["plain", *NAMES], ["plain"]))
    here.set_up()
    here.at_publisher(*_work(inside, [*NAMES, "plain"], NAMES), *_work(outside, ["plain", *NAMES], ["plain"]))
    here.run()
    assert unequal_articles(here) == []
    assert here.set_up() == []


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("style", STYLES)
def test_tables_and_schemas_of_any_name_arrive(style: str, site_of: SiteFactory) -> None:
    tables = [TableName(schema, table) for schema, table in zip(NAMES, reversed(NAMES), strict=True)]
    here = site_of(*map(str, tables), style=style)
    for table in tables:
        here.at_publisher(
            f"CREATE SCHEMA IF NOT EXISTS {_quoted(table.schema)}", _create(table, ["id", "value"], ["id"])
        )
    here.set_up()
    for table in tables:
        here.at_publisher(*_work(table, ["id", "value"], ["id"]))
    here.run()
    assert unequal_articles(here) == []


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("style", STYLES)
def test_a_missing_row_is_told_by_its_key_of_any_name(style: str, site_of: SiteFactory) -> None:
    key = ["id", "100%s", "%", "a = %s, b", "%(id)s", "%1$s", "{}", "\\", "it's", 'a "quote"']
    table = TableName("public", "t %s '\\ 100%")
    here = site_of(str(table), style=style)
    here.at_publisher(_create(table, [*reversed(key), "value"], key))
    here.set_up()
    name = _quoted(table.table)
    values = ", ".join(f"'{at}%s'" for at in range(len(key)))
    here.at_publisher(f"INSERT INTO {name} VALUES ({values}, 'v')")
    here.run()
    here.at_subscriber(f"DELETE FROM {name}")
    here.at_publisher(f"UPDATE {name} SET value = 'w'")
    here.read_log().raise_error()
    error = here.deliver().error
    assert error is not None
    assert (error.number, error.article) == ("20598", str(table))
    told = ", ".join(f"{column} = {len(key) - 1 - at}%s" for at, column in enumerate(key))
    assert error.message == (
        "Subscriber reporting: The row was not found at the Subscriber when applying the replicated UPDATE command "
        f"for Table '{table}' with Primary Key(s): {told}"
    )


def test_a_procedures_name_is_cut_to_63_bytes_and_stays_the_same(site_of: SiteFactory) -> None:
    tables = [TableName("s" * 63, "t" * 62 + end) for end in "ab"]
    here = site_of(*map(str, tables))
    here.at_publisher(f"CREATE SCHEMA {'s' * 63}", *(_create(it, ["id", "value"], ["id"]) for it in tables))
    here.set_up()
    expected = {
        procedure_name(operation, table, NameLimit(63, NameUnit.BYTES))
        for table in tables
        for operation in (Operation.INSERT, Operation.UPDATE, Operation.DELETE)
    }
    names = here.at_subscriber("SELECT proname FROM pg_proc WHERE proname LIKE 'sp_MS%'")
    assert {name for (name,) in names} == expected
    assert here.at_subscriber("SELECT object_name FROM msreplication_objects ORDER BY 1") == sorted(
        (name,) for name in expected
    )
    assert len(expected) == 6
    for table in tables:
        here.at_publisher(*_work(table, ["id", "value"], ["id"]))
    here.run()
    assert unequal_articles(here) == []


def test_articles_whose_procedures_would_share_a_name_are_refused(site_of: SiteFactory) -> None:
    here = site_of("a.bc", "ab.c")
    here.at_publisher(
        "CREATE SCHEMA a",
        "CREATE SCHEMA ab",
        "CREATE TABLE a.bc (i int PRIMARY KEY)",
        "CREATE TABLE ab.c (i int PRIMARY KEY)",
    )
    assert _problems(here) == [
        f"articles a.bc and ab.c would share the procedure sp_MS{operation}_abc" for operation in ("ins", "upd", "del")
    ]
    assert _problems(site_of("a.bc", "ab.c", style="statements"))[0].startswith("article a.bc: Publisher")


def _problems(site: Site) -> list[str]:
    return [problem.message for problem in check(site.topology).problems]


def test_publications_of_similar_names_keep_apart(databases: DatabasesFactory, tmp_path: Path) -> None:
    # A slot's name has neither capital letters nor hyphens.
    shared = databases()
    names = ["a-b", "a_b", "A-b"]
    sites = [
        Site(shared, tmp_path / name, [f"public.t{at}"], SparkHere(), publication=name) for at, name in enumerate(names)
    ]
    for at, here in enumerate(sites):
        here.at_publisher(f"CREATE TABLE t{at} (id int PRIMARY KEY)")
        here.set_up()
    for at, here in enumerate(sites):
        here.at_publisher(f"INSERT INTO t{at} VALUES ({at})")
    for here in sites:
        here.run()
        assert unequal_articles(here) == []
