"""Columns of a SQL Server table whose names are spelled otherwise than the Publisher's."""

from __future__ import annotations

import pytest

from support.command_history import Column, History, table_description
from support.schema_changes import change, dropped, renamed
from support.subscribers import KEY, Site
from tranrepl.model.names import TableName
from tranrepl.settings.publication import Apply, Article
from tranrepl.subscriber.applier_options import ApplierOptions
from tranrepl.subscriber.constraints import UniqueKey
from tranrepl.subscriber.registry import dialect_of

_VENDOR = [Column("VendorID", "integer", key=1), Column("Name", "character varying(20)"), Column("Rating", "integer")]
_ONE, _TWO = ["1", "one", "10"], ["2", "two", "20"]


@pytest.mark.parametrize("apply", [Apply.SERIAL, Apply.AUTO])
def test_names_of_columns_meet_whatever_their_case(mssql_site: Site, apply: Apply) -> None:
    site, table = mssql_site, f"vendor_{apply.value}"
    site.execute(f"create table {table} (VENDORID int primary key, NAME nvarchar(20) not null, RATING int unique)")
    vendor = site.article(table, _VENDOR)
    with dialect_of(site.connection).subscriber(site.connection, KEY, "test") as subscriber:
        article = Article.model_validate({"source": vendor.source, "destination": vendor.destination})
        (warning,) = subscriber.article_warnings(article, table_description(vendor.source, _VENDOR))
        assert "Name" in warning
        found = subscriber.constraints([vendor]).unique_keys
    assert UniqueKey(article_id=1, positions=(2,), values_known=True) in found

    history = History().insert(vendor, _ONE).insert(vendor, _TWO).insert(vendor, ["3", "three", "30"])
    history.transaction().update(vendor, _ONE, ["1", "one", "11"]).update(vendor, _TWO, ["2", "zwei", "20"])
    result = site.deliver(history.delete(vendor, ["3", "three", "30"]), options=ApplierOptions(apply=apply))
    assert (result.error, result.fallbacks) == (None, {})
    assert result.in_bulk == (6 if apply is Apply.AUTO else 0)
    assert site.rows(table) == [(1, "one", 11), (2, "zwei", 20)]
    missing = History(xact=2).transaction().delete(vendor, ["9", None, None])
    error = site.deliver(missing, site.watermark()).error
    assert error is not None
    assert (error.number, error.key) == ("20598", "VendorID = 9")


def test_a_schema_change_meets_columns_whatever_their_case(mssql_site: Site) -> None:
    site = mssql_site
    site.execute("create table changed (VENDORID int primary key, NAME nvarchar(20), RATING int)")
    old = site.article("changed", _VENDOR)
    new = site.next_definition(old, [_VENDOR[0], Column("Title", "character varying(20)")])
    history = History().insert(old, _ONE).transaction()
    history.schema(change(old, new, dropped("Rating"), renamed("Name", "Title")))
    result = site.deliver(history.insert(new, ["2", "two"]))
    assert result.error is None
    assert site.rows("changed") == [(1, "one"), (2, "two")]
    (names,) = zip(*site.execute("select name from sys.columns where object_id = object_id('changed')"), strict=True)
    assert [it.lower() for it in names] == ["vendorid", "title"]


def test_a_schema_is_found_whatever_its_case(mssql_site: Site) -> None:
    mssql_site.execute("create schema halls")
    seat = mssql_site.article("seat", [Column("id", "integer", key=1)], destination=TableName("Halls", "seat"))
    assert mssql_site.deliver(History().insert(seat, ["1"])).error is None
    assert mssql_site.execute("select id from halls.seat") == [(1,)]


def test_a_column_is_taken_for_one_published_column(mssql_site: Site) -> None:
    site = mssql_site
    site.execute("create table twins (id int primary key, code int)")
    name = TableName("public", "twins")
    article = Article.model_validate({"source": name, "destination": TableName("dbo", "twins")})
    described = table_description(name, [Column("ID", "integer", key=1), Column("Code"), Column("CODE")])
    with dialect_of(site.connection).subscriber(site.connection, KEY, "test") as subscriber:
        problems = [it.message for it in subscriber.article_problems(article, described)]
    assert [it.partition("table dbo.twins ")[2] for it in problems] == ["has no column 'Code'", "has no column 'CODE'"]
