"""What a validation says of what it compared, and of what it did not."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.mariadb import MariaDbServer
from support.shell import Outcome, publication_file, typed
from support.site import Site
from support.spark_here import SparkHere
from support.subscribers import STATEMENTS
from tranrepl.jobs.validation_report import Comparison
from tranrepl.validation import job

_ARTICLES: list[Mapping[str, object]] = [
    {"source": "public.item", "columns": ["id", "name", "price"], "filter": "price > 1"},
    {"source": "public.plain"},
    {"source": "public.other"},
]
_ITEM = Comparison(
    columns=("id", "name", "price"),
    converted={"name": "character varying(40)", "price": "numeric(12,2)"},
    unpublished=("secret", "twice"),
    own=("loaded",),
    row_filter="price > 1",
)
_LINE = (
    "3 articles: 7 columns compared, 2 as another type, 3 not compared; row filters applied to 1 article "
    "(--json names them)"
)
_LINE_OF_ITEM = (
    "3 columns (name as character varying(40), price as numeric(12,2)); not compared: secret, twice, "
    "loaded (the Subscriber's own); row filter applied: public.item"
)


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    site = Site(databases(), tmp_path / "store", _ARTICLES, SparkHere())
    site.at_publisher(
        "CREATE TABLE item (id int PRIMARY KEY, secret text, name text, price int, "
        "twice int GENERATED ALWAYS AS (id * 2) STORED)",
        "CREATE TABLE plain (id int PRIMARY KEY, name text)",
        "CREATE TABLE other (id int PRIMARY KEY, name text)",
    )
    site.at_subscriber(
        "CREATE TABLE item (loaded timestamptz DEFAULT now(), id int PRIMARY KEY, name varchar(40), "
        "price numeric(12, 2), twice int)"
    )
    site.set_up()
    site.at_publisher("INSERT INTO item VALUES (1, 'x', 'one', 1), (2, 'x', 'two', 2)")
    site.run()
    return site


@pytest.fixture
def shell(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    monkeypatch.setattr(
        "tranrepl.cli.validate.submit", lambda request, _: job.run(site.spark, request, site.connections)
    )
    file = publication_file(tmp_path, list(_ARTICLES))
    environment = {**site.databases.environment, "COLUMNS": "80"}
    return lambda *arguments: typed("validate", file, *arguments, environment=environment)


def test_the_shell_says_what_was_compared(site: Site, shell: Callable[..., Outcome]) -> None:
    said = shell()
    assert said.status == 0, said.err
    lines = [line.rstrip() for line in said.out.splitlines()]
    assert lines[-1] == _LINE
    # In a terminal this is wrapped, and the table is not.
    assert max(map(len, lines[:-1])) <= 80
    counted = shell("--rowcount-only", "--article", "public.item")
    assert counted.out.endswith("rows counted; contents not compared; row filter applied: public.item\n")
    everything = json.loads(shell("--json").out)["reporting"]["validation"]["articles"]
    assert Comparison.model_validate(everything[0]["compared"]) == _ITEM
    assert everything[1]["compared"]["columns"] == ["id", "name"]
    assert everything[1]["compared"]["row_filter"] is None
    site.at_subscriber("DELETE FROM item", "INSERT INTO plain VALUES (9, 'nine')")
    differs = shell()
    assert differs.status == 1
    assert f"{_LINE}\n{_LINE_OF_ITEM}\n  public.item id = 2  missing\n" in differs.out


def test_the_report_names_the_types_that_values_were_compared_as(
    databases: DatabasesFactory, mariadb: MariaDbServer, mariadb_database: str, tmp_path: Path
) -> None:
    article = {"source": "public.item", "destination": f"{mariadb_database}.item", "columns": ["id", "name", "at"]}
    subscriptions = [{"name": "reporting", "connection": "mariadb"}]
    site = Site(databases(), tmp_path / "store", [{**article, **STATEMENTS}], SparkHere(), subscriptions)
    site.connections["mariadb"] = mariadb.connection(mariadb_database, "mariadb")
    site.at_publisher("CREATE TABLE item (id bigint PRIMARY KEY, name varchar(9), at timestamptz, secret int)")
    mariadb.execute(
        "CREATE TABLE item (id bigint PRIMARY KEY, name varchar(9), at datetime, own int)", database=mariadb_database
    )
    site.set_up()
    result = site.validate()
    assert result.validation is not None, result.error
    (found,) = result.validation.articles
    assert found.compared.columns == ("id", "name", "at")
    assert found.compared.converted["at"] == "datetime"
    assert (found.compared.unpublished, found.compared.own) == (("secret",), ("own",))
    assert site.validate(rowcount_only=True).validation is not None
