"""`check` warns of a Subscriber's column that holds less than the Publisher's, and of no other."""

from __future__ import annotations

from collections.abc import Callable
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
    # the Publisher's type, the Subscriber's: what will not fit
    ("character varying(50)", "character varying(10)"): "longer texts",
    ("character varying(10)", "character varying(10)"): None,
    ("character varying(10)", "character varying(50)"): None,
    ("character varying(10)", "text"): None,
    ("text", "character varying(10)"): "longer texts",
    ("text", "character varying"): None,
    ("character varying(10)", "character(5)"): "longer texts",
    ("character(10)", "character(5)"): "longer texts",
    ("character(5)", "character varying(5)"): None,
    ("bigint", "integer"): "larger numbers",
    ("integer", "smallint"): "larger numbers",
    ("integer", "bigint"): None,
    ("integer", "numeric"): None,
    ("integer", "numeric(10,0)"): None,
    ("integer", "numeric(9,0)"): "larger numbers",
    ("integer", "numeric(12,2)"): None,
    ("integer", "boolean"): "larger numbers",
    ("numeric(9,2)", "numeric(9,1)"): "fractions",
    ("numeric(9,2)", "numeric(8,2)"): "larger numbers",
    ("numeric(9,2)", "numeric(12,4)"): None,
    ("numeric", "numeric(12,4)"): "larger numbers",
    ("numeric(9,2)", "integer"): "fractions",
    ("numeric(12,0)", "integer"): "larger numbers",
    ("numeric(5,0)", "integer"): None,
    ("double precision", "real"): "all digits",
    ("real", "double precision"): None,
    ("bigint", "double precision"): "all digits",
    ("integer", "double precision"): None,
    ("integer", "real"): "all digits",
    ("double precision", "numeric"): None,
    ("double precision", "numeric(9,2)"): "larger numbers or fractions",
    ("timestamp(6) without time zone", "timestamp(0) without time zone"): "fractions of a second",
    ("timestamp without time zone", "timestamp(3) with time zone"): "fractions of a second",
    ("timestamp(3) without time zone", "timestamp without time zone"): None,
    ("timestamp without time zone", "timestamp(6) without time zone"): None,
    ("timestamp with time zone", "date"): "times of day",
    ("timestamp without time zone", "time without time zone"): "days",
    ("date", "timestamp without time zone"): None,
    ("time without time zone", "time(0) without time zone"): "fractions of a second",
    ("bit(8)", "bit(4)"): "bit strings of another length",
    ("bit(4)", "bit(8)"): "bit strings of another length",
    ("bit(4)", "bit varying(8)"): None,
    ("bit varying(9)", "bit varying(8)"): "bit strings of another length",
    ("text", "integer"): "texts that are no numbers",
    ("text", "date"): "texts that are no dates or times",
    ("bytea", "bytea"): None,
    ("json", "jsonb"): None,
    ("integer[]", "bigint[]"): None,
    ("integer", "text"): None,
}
_MARIADB = {
    ("character varying(50)", "varchar(10)"): "longer texts",
    ("character varying(50)", "varchar(50)"): None,
    ("character varying(50)", "text"): None,
    ("character varying(50)", "varchar(50) CHARACTER SET latin1"): "letters beyond latin1",
    ("character varying(500)", "tinytext"): "longer texts",
    ("text", "text"): "longer texts",
    ("text", "longtext"): None,
    ("json", "mediumtext"): "longer texts",
    ("bytea", "blob"): "longer values",
    ("bytea", "longblob"): None,
    ("bytea", "varbinary(10)"): "longer values",
    ("bigint", "int"): "larger numbers",
    ("bigint", "int unsigned"): "larger numbers",
    ("smallint", "mediumint"): None,
    ("integer", "mediumint"): "larger numbers",
    ("integer", "bigint"): None,
    ("integer", "int(5)"): None,
    ("integer", "decimal(10,0)"): None,
    ("boolean", "tinyint(1)"): None,
    ("numeric(9,2)", "decimal(9,1)"): "fractions",
    ("numeric(9,2)", "decimal(8,2)"): "larger numbers",
    ("numeric(9,2)", "decimal(20,5)"): None,
    ("double precision", "float"): "all digits",
    ("timestamp without time zone", "datetime"): "fractions of a second",
    ("timestamp without time zone", "datetime(6)"): None,
    ("timestamp with time zone", "date"): "times of day",
    ("time without time zone", "time"): "fractions of a second",
    ("date", "date"): None,
    ("uuid", "varchar(10)"): "longer texts",
}


def _warned(site: Site, pairs: dict[tuple[str, str], str | None]) -> dict[tuple[str, str], str | None]:
    """Return the warnings about columns of these types."""
    columns = [Column(f"c{at}", source) for at, (source, _) in enumerate(pairs)]
    there = ", ".join(f"c{at} {found}" for at, (_, found) in enumerate(pairs))
    options = "CHARACTER SET utf8mb4" if site.kind.database == "mariadb" else ""
    site.execute(f"CREATE TABLE item (id int PRIMARY KEY, {there}) {options}")
    table = table_description(_NAME, [Column("id", "integer", key=1), *columns])
    article = Article.model_validate({"source": _NAME, "destination": TableName(site.schema, "item")})
    with dialect_of(site.connection).subscriber(site.connection, KEY, "test") as subscriber:
        warnings = list(subscriber.article_warnings(article, table))
    said: dict[tuple[str, str], str | None] = dict.fromkeys(pairs)
    for at, pair in enumerate(pairs):
        found = [it for it in warnings if f"column 'c{at}' is " in it]
        if found:
            (one,) = found
            assert f", {pair[0]} at the Publisher: " in one
            said[pair] = one.rsplit(": ", 1)[1].removesuffix(" will not fit")
    assert len(warnings) == sum(it is not None for it in said.values())
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
        f"{at} 'id' is integer, bigint at the Publisher: larger numbers will not fit",
        f"{at} 'name' is character varying(10), character varying(50) at the Publisher: longer texts will not fit",
        f"{at} 'name' is NOT NULL, and is not so at the Publisher: NULL will not fit",
    ]
    site.set_up()


@pytest.mark.parametrize("kind", ["sqlite statements"])
def test_a_database_that_takes_any_value_is_not_narrower(kind: str, make_site: Callable[[str], Site]) -> None:
    pairs: dict[tuple[str, str], str | None] = {("character varying(50)", "varchar(10)"): None, ("bigint", "int"): None}
    assert _warned(make_site(kind), pairs) == pairs
