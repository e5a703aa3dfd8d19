"""Validation: what differs is found exactly, nothing where nothing differs; a repair makes both ends equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conftest import DatabasesFactory
from sandbox.site import Site
from tranrepl.jobs import JobResult, Repair
from tranrepl.validation_report import ArticleValidation

_COLUMNS = "id int PRIMARY KEY, region int NOT NULL, name text, note text, price numeric(9, 2), body text"
_ROWS = 1_000_000
_MIB = 1024 * 1024


def article_of(result: JobResult, source: str = "public.item") -> ArticleValidation:
    assert result.validation is not None, result.error
    return next(it for it in result.validation.articles if it.article == source)


def named(article: ArticleValidation) -> set[tuple[str, str, tuple[str, ...]]]:
    return {(it.difference.value, ", ".join(map(str, it.key.values())), it.columns) for it in article.rows}


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path, spark: Any) -> Site:
    return Site(databases(), tmp_path / "store", [{"source": "public.item", "filter": "region <> 0"}], spark)


def test_planted_differences_in_a_million_rows_are_found_exactly_and_repaired(site: Site) -> None:
    """About 20 s."""
    rows = (
        f"SELECT g AS id, g % 3 AS region, 'name ' || g, CASE WHEN g % 2 = 0 THEN 'note' END, g / 7.0, "
        f"CASE WHEN g = 500000 THEN repeat('x', {_MIB}) END FROM generate_series(1, {_ROWS}) g"
    )
    site.at_publisher(f"CREATE TABLE item ({_COLUMNS})", f"INSERT INTO item {rows}")
    site.at_subscriber(
        f"CREATE TABLE item ({_COLUMNS})", f"INSERT INTO item SELECT * FROM ({rows}) it WHERE region <> 0"
    )
    site.set_up()
    assert site.validate().error is None

    site.at_subscriber(
        "DELETE FROM item WHERE id = 4",
        "INSERT INTO item VALUES (2000000, 1, 'extra')",
        "UPDATE item SET note = '' WHERE id = 7",
        "UPDATE item SET body = overlay(body placing 'y' from 700000) WHERE id = 500000",
        "UPDATE item a SET name = b.name FROM item b WHERE (a.id, b.id) IN ((10, 11), (11, 10))",
        # Outside of the filter: the Subscriber's whole table is the article's.
        "INSERT INTO item VALUES (3, 0, 'outside')",
    )
    planted = {
        ("missing", "4", ()),
        ("extra", "2000000", ()),
        ("extra", "3", ()),
        ("different", "7", ("note",)),
        ("different", "500000", ("body",)),
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
