"""A publication of `item`, whose row filter leaves some rows out, and what its validation finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.databases import Databases
from support.site import Site
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.validation_report import ArticleValidation

COLUMNS = "id int PRIMARY KEY, region int NOT NULL, name text, note text, price numeric(9, 2), body text"


def article_of(result: JobResult, source: str = "public.item") -> ArticleValidation:
    return next(it for it in compared_articles(result) if it.article == source)


def named(article: ArticleValidation) -> set[tuple[str, str, tuple[str, ...]]]:
    """Return the difference, the key and the differing columns of each row that was found."""
    return {(it.difference.value, ", ".join(map(str, it.key.values())), it.columns) for it in article.rows}


def validated_site(databases: Databases, tmp_path: Path, spark: Any) -> Site:
    return Site(databases, tmp_path / "store", [{"source": "public.item", "filter": "region <> 0"}], spark)


def compared_articles(result: JobResult) -> tuple[ArticleValidation, ...]:
    assert result.validation is not None, result.error
    return result.validation.articles


def deliver_once(site: Site, rows: int = 1) -> None:
    """Set up and deliver so many items."""
    site.at_publisher(f"CREATE TABLE item ({COLUMNS})")
    site.set_up()
    site.at_publisher(f"INSERT INTO item SELECT g, 1, 'name', g FROM generate_series(1, {rows}) g")
    site.run()
