"""`check` warns of a Subscriber's column that holds less than the Publisher's, and of no other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.command_history import Column, table_description
from support.site import Site as WholeSite
from support.subscribers import KEY, Site
from tranrepl.admin.check import check
from tranrepl.model.names import TableName
from tranrepl.settings.publication import Article
from tranrepl.subscriber.registry import dialect_of

_NAME = TableName("public", "item")
_POSTGRES = {
    # the Publisher's type, the Subscriber's: whether some values will not fit
    ("character varying(50)", "character varying(10)"): True,
    ("character varying(10)", "character varying(10)"): False,
    ("character varying(10)", "character varying(50)"): False,
    ("character varying(10)", "text"): False,
    ("text", "character varying(10)"): True,
    ("text", "character varying"): False,
    ("character varying(10)", "character(5)"): True,
    ("character(10)", "character(5)"): True,
    ("character(5)", "character varying(5)"): False,
    ("bigint", "integer"): True,
    ("integer", "smallint"): True,
    ("integer", "bigint"): False,
    ("integer", "numeric"): False,
    ("integer", "numeric(10,0)"): False,
    ("integer", "numeric(9,0)"): True,
    ("integer", "numeric(12,2)"): False,
    ("integer", "boolean"): True,
    ("numeric(9,2)", "numeric(9,1)"): True,
    ("numeric(9,2)", "numeric(8,2)"): True,
    ("numeric(9,2)", "numeric(12,4)"): False,
    ("numeric", "numeric(12,4)"): True,
    ("numeric(9,2)", "integer"): True,
    ("numeric(12,0)", "integer"): True,
    ("numeric(5,0)", "integer"): False,
    ("double precision", "real"): True,
    ("real", "double precision"): False,
    ("bigint", "double precision"): True,
    ("integer", "double precision"): False,
    ("integer", "real"): True,
    ("double precision", "numeric"): False,
    ("double precision", "numeric(9,2)"): True,
    ("timestamp(6) without time zone", "timestamp(0) without time zone"): True,
    ("timestamp without time zone", "timestamp(3) with time zone"): True,
    ("timestamp(3) without time zone", "timestamp without time zone"): False,
    ("timestamp without time zone", "timestamp(6) without time zone"): False,
    ("timestamp with time zone", "date"): True,
    ("timestamp without time zone", "time without time zone"): True,
    ("date", "timestamp without time zone"): False,
    ("time without time zone", "time(0) without time zone"): True,
    ("text", "integer"): True,
    ("text", "date"): True,
    ("bytea", "bytea"): False,
    ("json", "jsonb"): False,
    ("integer[]", "bigint[]"): False,
    ("integer", "text"): False,
}
_MARIADB = {
    ("character varying(50)", "varchar(10)"): True,
    ("character varying(50)", "varchar(50)"): False,
    ("character varying(50)", "text"): False,
    ("character varying(50)", "varchar(50) CHARACTER SET latin1"): True,
    ("character varying(500)", "tinytext"): True,
    ("text", "text"): True,
    ("text", "longtext"): False,
    ("json", "mediumtext"): True,
    ("bytea", "blob"): True,
    ("bytea", "longblob"): False,
    ("bytea", "varbinary(10)"): True,
    ("bigint", "int"): True,
    ("bigint", "int unsigned"): True,
    ("smallint", "mediumint"): False,
    ("integer", "mediumint"): True,
    ("integer", "bigint"): False,
    ("integer", "int(5)"): False,
    ("integer", "decimal(10,0)"): False,
    ("boolean", "tinyint(1)"): False,
    ("numeric(9,2)", "decimal(9,1)"): True,
    ("numeric(9,2)", "decimal(8,2)"): True,
    ("numeric(9,2)", "decimal(20,5)"): False,
    ("double precision", "float"): True,
    ("timestamp without time zone", "datetime"): True,
    ("timestamp without time zone", "datetime(6)"): False,
    ("timestamp with time zone", "date"): True,
    ("time without time zone", "time"): True,
    ("date", "date"): False,
    ("uuid", "varchar(10)"): True,
}


def _warned(site: Site, pairs: dict[tuple[str, str], bool]) -> dict[tuple[str, str], bool]:
    """Return the warnings about columns of these types."""
    columns = [Column(f"c{at}", source) for at, (source, _) in enumerate(pairs)]
    there = ", ".join(f"c{at} {found}" for at, (_, found) in enumerate(pairs))
    options = "CHARACTER SET utf8mb4" if site.kind.database == "mariadb" else ""
    site.execute(f"CREATE TABLE item (id int PRIMARY KEY, {there}) {options}")
    table = table_description(_NAME, [Column("id", "integer", key=1), *columns])
    article = Article.model_validate({"source": _NAME, "destination": TableName(site.schema, "item")})
    with dialect_of(site.connection).subscriber(site.connection, KEY, "test") as subscriber:
        warnings = list(subscriber.article_warnings(article, table))
    said: dict[tuple[str, str], bool] = dict.fromkeys(pairs, False)
    for at, pair in enumerate(pairs):
        found = [it for it in warnings if f"column 'c{at}' is " in it]
        if found:
            (one,) = found
            assert one.endswith(f", {pair[0]} at the Publisher: not every value will fit")
            said[pair] = True
    assert len(warnings) == sum(said.values())
    return said


def test_what_a_column_of_postgresql_does_not_hold_is_said(make_site: Callable[[str], Site]) -> None:
    assert _warned(make_site("postgres procedures"), _POSTGRES) == _POSTGRES


def test_what_a_column_of_mariadb_does_not_hold_is_said(make_site: Callable[[str], Site]) -> None:
    assert _warned(make_site("mariadb statements"), _MARIADB) == _MARIADB


_TYPES = {source for source, _ in [*_POSTGRES, *_MARIADB]}


def test_nothing_is_said_of_a_table_that_setup_made(plain_site: Site) -> None:
    site = plain_site
    columns = [
        Column("id", "integer", key=1),
        Column("code", "character varying(400)", key=2),
        *(Column(f"c{at}", it) for at, it in enumerate(sorted(_TYPES))),
        Column("name", "text", not_null=True),
    ]
    made = site.article("item", columns, ins_cmd="SQL", upd_cmd="SQL", del_cmd="SQL")
    article = Article.model_validate({"source": made.source, "destination": made.destination})
    with dialect_of(site.connection).subscriber(site.connection, KEY, "test") as subscriber:
        assert list(subscriber.article_warnings(article, table_description(_NAME, columns))) == []


def test_a_column_that_takes_no_null_is_said(plain_site: Site) -> None:
    site = plain_site
    columns = [Column("id", "integer", key=1), Column("a", "integer"), Column("b", "integer", not_null=True)]
    site.execute("CREATE TABLE item (id int PRIMARY KEY, a int NOT NULL, b int NOT NULL, own int NOT NULL)")
    article = Article.model_validate({"source": _NAME, "destination": TableName(site.schema, "item")})
    with dialect_of(site.connection).subscriber(site.connection, KEY, "test") as subscriber:
        (said,) = subscriber.article_warnings(article, table_description(_NAME, columns))
    assert said == (
        f"article public.item: Subscriber reporting: table {site.schema}.item: column 'a' is NOT NULL, and is not so "
        "at the Publisher: NULL will not fit"
    )


_CODE = "varchar(20) CHARACTER SET utf8mb4 COLLATE"
_ONE, _APART = "key column 'code' has collation utf8mb4_general_ci", "and not here: public.item (code)"


@pytest.mark.parametrize(
    ("kind", "declared", "ignores_case", "said"),
    [
        ("mariadb statements", f"{_CODE} utf8mb4_general_ci", False, _ONE),
        ("mariadb statements", f"{_CODE} utf8mb4_general_ci", True, None),
        ("mariadb statements", f"{_CODE} utf8mb4_bin", False, None),
        ("mariadb statements", f"{_CODE} utf8mb4_bin", True, _APART),
        ("mariadb statements", None, True, _APART),
        ("postgres procedures", "varchar(20)", True, _APART),
        ("postgres procedures", "varchar(20)", False, None),
    ],
)
def test_keys_that_are_one_at_one_end_are_said(
    kind: str, declared: str | None, ignores_case: bool, said: str | None, make_site: Callable[[str], Site]
) -> None:
    site = make_site(kind)
    if declared is not None:
        site.execute(f"CREATE TABLE item (code {declared} PRIMARY KEY)")
    table = table_description(_NAME, [Column("code", "character varying(20)", key=1)])
    table = replace(table, columns=tuple(replace(it, ignores_case=ignores_case) for it in table.columns))
    article = Article.model_validate({"source": _NAME, "destination": TableName(site.schema, "item")})
    with dialect_of(site.connection).subscriber(site.connection, KEY, "test") as subscriber:
        warnings = [*subscriber.article_warnings(article, table), *subscriber.warnings([(article, table)])]
    assert [said in it for it in warnings if said] == ([True] if said else [])
    assert [said is not None and said in it for it in warnings] == ([] if said is None else [True])


def test_check_warns_and_setup_goes_on(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = WholeSite(databases(), tmp_path / "store", [{"source": "public.item", "columns": ["id", "name", "size"]}])
    site.at_publisher(
        "CREATE DOMAIN size AS varchar(20)",
        "CREATE TABLE item (id bigint PRIMARY KEY, name varchar(50), size size, secret text)",
    )
    assert check(site.topology).warnings == []
    site.at_subscriber(
        "CREATE DOMAIN size AS varchar(20)",
        "CREATE TABLE item (id int PRIMARY KEY, name varchar(10) NOT NULL, size varchar(20), secret varchar(1))",
    )
    at = "article public.item: Subscriber reporting: table public.item: column"
    assert check(site.topology).warnings == [
        f"{at} 'id' is integer, bigint at the Publisher: not every value will fit",
        f"{at} 'name' is character varying(10), character varying(50) at the Publisher: not every value will fit",
        f"{at} 'name' is NOT NULL, and is not so at the Publisher: NULL will not fit",
    ]
    site.set_up()


@pytest.mark.parametrize("kind", ["sqlite statements"])
def test_a_database_that_takes_any_value_is_not_narrower(kind: str, make_site: Callable[[str], Site]) -> None:
    pairs: dict[tuple[str, str], bool] = {("character varying(50)", "varchar(10)"): False, ("bigint", "int"): False}
    assert _warned(make_site(kind), pairs) == pairs
