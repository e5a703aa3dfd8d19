"""Validation: what differs is found exactly, and nothing where nothing differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conftest import DatabasesFactory
from support.site import Site
from support.validated_site import COLUMNS, article_of, deliver_once, named, validated_site
from tranrepl.jobs.requests import Repair

_ROWS = 200_000
_MIB = 1024 * 1024


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path, spark: Any) -> Site:
    return validated_site(databases(), tmp_path, spark)


def test_planted_differences_are_found_exactly_and_repaired(site: Site) -> None:
    rows = (
        f"SELECT g AS id, g % 3 AS region, 'name ' || g, CASE WHEN g % 2 = 0 THEN 'note' END, g / 7.0, "
        f"CASE WHEN g = 100000 THEN repeat('x', {_MIB}) END FROM generate_series(1, {_ROWS}) g"
    )
    site.at_publisher(f"CREATE TABLE item ({COLUMNS})", f"INSERT INTO item {rows}")
    site.at_subscriber(
        f"CREATE TABLE item ({COLUMNS})", f"INSERT INTO item SELECT * FROM ({rows}) it WHERE region <> 0"
    )
    site.set_up()
    assert site.validate().error is None

    site.at_subscriber(
        "DELETE FROM item WHERE id = 4",
        "INSERT INTO item VALUES (2000000, 1, 'extra')",
        "UPDATE item SET note = '' WHERE id = 7",
        "UPDATE item SET body = overlay(body placing 'y' from 700000) WHERE id = 100000",
        "UPDATE item a SET name = b.name FROM item b WHERE (a.id, b.id) IN ((10, 11), (11, 10))",
        # Outside of the filter: the Subscriber's whole table is the article's.
        "INSERT INTO item VALUES (3, 0, 'outside')",
    )
    planted = {
        ("missing", "4", ()),
        ("extra", "2000000", ()),
        ("extra", "3", ()),
        ("different", "7", ("note",)),
        ("different", "100000", ("body",)),
        ("different", "10", ("name",)),
        ("different", "11", ("name",)),
    }
    result = site.validate()
    found = article_of(result)
    assert named(found) == planted
    assert (found.missing, found.extra, found.different) == (1, 2, 4)
    assert result.error is not None
    assert result.error.number == "20574"

    repaired = site.validate(repair=Repair.APPLY)
    assert repaired.error is None
    assert article_of(repaired).repaired == len(planted)
    assert article_of(site.validate()).equal
    assert site.at_subscriber("SELECT count(*) FROM item") == site.at_publisher(
        "SELECT count(*) FROM item WHERE region <> 0"
    )


_TYPES = {
    # type: at the Subscriber, value, another one that is easily taken for it
    "smallint": ("smallint", "1", "2"),
    "bigint": ("bigint", "1", "4294967297"),
    "boolean": ("boolean", "f", None),
    "numeric": ("numeric", "1.0", "1.00"),
    "numeric(9,2)": ("numeric(9,2)", "1.00", "1.01"),
    "double precision": ("double precision", "0", "-0"),
    "real": ("real", "0.1", "0.10000001"),
    "text": ("text", "e\u0301", "\u00e9"),
    "character varying(20)": ("character varying(20)", "a", "a "),
    "character(5)": ("text", "a    ", "a"),
    "bytea": ("bytea", "\\x00", "\\x0000"),
    "date": ("date", "2000-02-29", "infinity"),
    "time(3) without time zone": ("time(3) without time zone", "00:00:00.001", "00:00:00.002"),
    "timestamp without time zone": ("timestamp without time zone", "2000-01-01", "2000-01-01 00:00:00.000001"),
    "timestamp with time zone": ("timestamp with time zone", "2000-01-01 00:00+00", "2000-01-01 00:00+01"),
    "interval": ("interval", "1 day", "24 hours"),
    "json": ("json", '{"a": 1}', '{"a":1}'),
    "jsonb": ("jsonb", '{"a": 1.0}', '{"a": 1.00}'),
    "uuid": ("uuid", "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"),
    "integer[]": ("integer[]", "{1,NULL}", "{1}"),
    "text[]": ("text", '{"a,b"}', "{a,b}"),
    "int4range": ("int4range", "[1,2)", "empty"),
    "public.mood": ("public.mood", "glad", "sad"),
    "integer": ("numeric(12,2)", "5", "5.01"),
    "timestamp(6) without time zone": (
        "timestamp(0) without time zone",
        "2000-01-01 00:00:00.4",
        "2000-01-01 00:00:01",
    ),
}


def test_every_column_is_compared_in_the_publishers_text_form(
    databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    # The table has another name at the Subscriber, columns of its own, and some of other types.
    names = [f"c{number}" for number in range(len(_TYPES))]
    columns = ["day", "Näme", *names]
    article = {"source": "public.every", "destination": "copy.Every", "columns": columns}
    site = Site(databases(), tmp_path / "store", [article], spark)
    here = ", ".join(f"{name} {it}" for name, it in zip(names, _TYPES, strict=True))
    there = ", ".join(f"{name} {it}" for name, (it, _, _) in zip(names, _TYPES.values(), strict=True))
    for create, table, own in (
        (site.at_publisher, f"every (secret text, {here}", "public"),
        (site.at_subscriber, f'copy."Every" (loaded timestamptz DEFAULT now(), {there}', "copy"),
    ):
        create(
            "CREATE TYPE mood AS ENUM ('sad', 'glad')",
            f"CREATE SCHEMA IF NOT EXISTS {own}",
            f'CREATE TABLE {table}, day date, "Näme" text, PRIMARY KEY ("Näme", day))',
        )
    site.set_up()
    values = ", ".join(f"'{value}'" for _, value, _ in _TYPES.values())
    listed = ", ".join(names)
    site.at_publisher(
        f"INSERT INTO every (secret, day, \"Näme\", {listed}) SELECT 'x', date '2000-01-01' + g % 2, "
        f"CASE WHEN g % 3 = 0 THEN 'Ä|~' ELSE 'ä' END || g, {values} FROM generate_series(1, 60) g",
        "INSERT INTO every (day, \"Näme\") VALUES ('2000-01-01', 'nulls')",
    )
    met = site.validate()
    assert met.error is None
    assert met.commands_by_article == {"public.every": 61}, "what was delivered on the way"

    planted = set()
    for at, (name, (_, _, other)) in enumerate(zip(names, _TYPES.values(), strict=True)):
        other_text = "NULL" if other is None else f"'{other}'"
        changed = site.at_subscriber(
            f"UPDATE copy.\"Every\" SET {name} = {other_text} WHERE substring(\"Näme\" from '[0-9]+$') = '{at + 1}' "
            'RETURNING "Näme", day'
        )
        planted.add(("different", ", ".join(map(str, changed[0])), (name,)))
    site.at_subscriber('UPDATE copy."Every" SET c0 = 0 WHERE "Näme" = \'nulls\'')
    planted.add(("different", "nulls, 2000-01-01", ("c0",)))
    assert named(article_of(site.validate(), "public.every")) == planted

    assert site.validate(repair=Repair.APPLY).error is None
    assert site.validate().error is None


def test_a_table_that_is_read_in_parts_is_read_whole(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "SELECT n, 1, 'name ' || n FROM generate_series(1, 20000) n"
    site.at_publisher(f"CREATE TABLE item ({COLUMNS})", f"INSERT INTO item {rows}")
    site.at_subscriber(f"CREATE TABLE item ({COLUMNS})", f"INSERT INTO item {rows} ORDER BY n DESC")
    site.set_up()
    monkeypatch.setattr("tranrepl.validation.comparison_targets._part_bytes", lambda *_: 8 * 8192)
    assert site.validate().error is None

    site.at_subscriber(
        "DELETE FROM item WHERE id = 1",
        "UPDATE item SET name = '' WHERE id = 20000",
        "INSERT INTO item VALUES (0, 1, '')",
    )
    assert named(article_of(site.validate())) == {
        ("missing", "1", ()),
        ("different", "20000", ("name",)),
        ("extra", "0", ()),
    }


def test_two_rows_that_have_exchanged_a_value_do_not_cancel_out(site: Site) -> None:
    deliver_once(site, rows=2)
    site.at_subscriber("UPDATE item SET note = CASE id WHEN 1 THEN '2' ELSE '1' END")
    assert named(article_of(site.validate())) == {("different", "1", ("note",)), ("different", "2", ("note",))}
