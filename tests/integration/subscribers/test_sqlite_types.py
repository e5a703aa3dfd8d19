"""Columns of which SQLite makes numbers, whatever their declared type is called."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.command_history import Column, table_description
from support.subscribers import KEY, STATEMENTS, Site
from tranrepl.errors import ConfigurationError
from tranrepl.settings.publication import Article
from tranrepl.subscriber.registry import dialect_of


@pytest.mark.parametrize("declared", ["STRING", "JSON", "int", "numeric(10,2)", "datetime", "FLOATING POINT"])
def test_a_column_of_which_sqlite_makes_numbers_is_refused(sqlite_site: Site, declared: str) -> None:
    site = sqlite_site
    site.execute(f"CREATE TABLE t (code {declared} PRIMARY KEY, n numeric, at datetime, name varchar(5), raw blob)")
    columns = [Column("code", key=1), Column("n", "numeric(5,2)"), Column("at", "date"), Column("name"), Column("raw")]
    with pytest.raises(ConfigurationError) as refused:
        site.article("t", columns)
    assert refused.value.message.lower() == (
        "article public.t: subscriber reporting: column 'code' of main.t is declared "
        f"{declared.lower()}, of which sqlite makes numbers: the text '007' would be 7"
    )


@pytest.mark.parametrize("base", ["integer", "numeric", "date"])
def test_a_domain_of_numbers_goes_into_sqlites_column_of_numbers(sqlite_site: Site, base: str) -> None:
    site = sqlite_site
    site.execute("CREATE TABLE t (id int PRIMARY KEY, value numeric)")
    with dialect_of(site.connection).subscriber(site.connection, KEY, "test") as subscriber:
        article = Article.model_validate({"source": "public.t", "destination": "main.t", **STATEMENTS})
        described = table_description(article.source, [Column("id", "integer", key=1), Column("value", "public.size")])
        columns = (described.columns[0], replace(described.columns[1], base_type_name=base))
        assert list(subscriber.article_problems(article, replace(described, columns=columns))) == []
