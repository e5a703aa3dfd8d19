"""Setup of a publication whose table was altered after what the log reader has read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from conftest import DatabasesFactory
from support.databases import Databases, shared_databases
from support.embedded_postgres import PostgresServer
from support.site import Site
from support.spark_here import SparkHere
from support.whole_run import good_run, whole_run
from tranrepl.admin.check import Checked, check
from tranrepl.errors import NOT_REGISTERED, ConfigurationError
from tranrepl.model.commands import CallSyntax, Method, Propagation
from tranrepl.settings.publication import Article, Publication

_UNREAD = "its table was altered, which the log reader has not read yet"
_COLUMNS = """SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute
WHERE attrelid = 'item'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""
_ROWS = "SELECT * FROM item ORDER BY id"


def _site(databases: Databases, folder: Path, *tables: str) -> Site:
    """Return a site whose tables have two rows at both ends."""
    articles = [{"source": f"public.{it}", "replica_identity": "full", "pre_creation_cmd": "delete"} for it in tables]
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
    site = Site(databases, folder / "store", articles, SparkHere(), [subscription], replicate_ddl=True)
    for table in tables:
        site.at_publisher(
            f"CREATE TABLE {table} (id int PRIMARY KEY, a int, c varchar(8) NOT NULL DEFAULT 'c')",
            f"INSERT INTO {table} VALUES (1, 1, '1'), (2, 2, '2')",
        )
    site.set_up()
    site.take_snapshot().raise_error()
    site.run().raise_error()
    return site


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    return _site(databases(), tmp_path, "item")


_ALTERATIONS = {
    "ADD COLUMN x int": "added",
    "DROP COLUMN c": "dropped",
    "ALTER c DROP NOT NULL": "nullable",
    "ALTER c TYPE text": "retyped",
    "RENAME a TO b": "renamed",
    "DROP COLUMN c, ADD COLUMN c smallint": "replaced",
}
"""Each one's table."""


class Altered(NamedTuple):
    """The tables after their alterations, and what `check` said before they were read."""

    site: Site
    checked: Checked


@pytest.fixture(scope="module")
def altered(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Altered]:
    with shared_databases(postgres, "unread") as databases:
        site = _site(databases, tmp_path_factory.mktemp("unread"), *_ALTERATIONS.values())
        for alteration, table in _ALTERATIONS.items():
            site.at_publisher(f"UPDATE {table} SET a = 5 WHERE id = 1", f"ALTER TABLE {table} {alteration}")
        checked = check(site.topology)
        site.set_up()
        for table in _ALTERATIONS.values():
            site.at_publisher(f"INSERT INTO {table} (id) VALUES (3)", f"DELETE FROM {table} WHERE id = 2")
        site.run().raise_error()
        site.set_up()
        yield Altered(site, checked)


@pytest.mark.parametrize(("alteration", "table"), _ALTERATIONS.items())
def test_subscribers_are_altered_whether_or_not_setup_runs_before_the_log_reader(
    altered: Altered, alteration: str, table: str
) -> None:
    site, checked = altered
    assert not checked.problems
    assert any(f"public.{table}: {_UNREAD}" in it for it in checked.warnings), alteration
    columns, rows = (it.replace("item", table) for it in (_COLUMNS, _ROWS))
    assert site.at_subscriber(columns) == site.at_publisher(columns)
    assert site.at_subscriber(rows) == site.at_publisher(rows)


def test_what_the_log_never_announces_is_taken_over_by_setup(site: Site) -> None:
    site.at_publisher("SET event_triggers = off; ALTER TABLE item ALTER c DROP NOT NULL; RESET event_triggers")
    site.at_subscriber("ALTER TABLE item ALTER c DROP NOT NULL")
    site.set_up()
    site.at_publisher("UPDATE item SET c = NULL")
    site.run().raise_error()
    assert site.at_subscriber(_ROWS) == site.at_publisher(_ROWS)


def test_a_rewrite_that_the_log_never_announces_comes_to_the_subscribers_by_setup(site: Site) -> None:
    site.at_publisher("SET event_triggers = off; ALTER TABLE item ALTER a TYPE bigint USING a * 10000000000")
    whole_run(site)
    error = whole_run(site)["reporting snapshot"].error
    assert error is not None
    assert "`tranrepl setup FILE`" in (error.remedy or "")
    site.set_up()
    good_run(site)
    assert site.at_subscriber(_COLUMNS) == site.at_publisher(_COLUMNS)
    assert site.at_subscriber(_ROWS) == site.at_publisher(_ROWS)
    assert site.set_up() == []


def test_a_file_that_was_edited_meanwhile_holds_behind_the_alteration(site: Site) -> None:
    site.at_publisher("ALTER TABLE item ALTER c DROP NOT NULL, ADD x int DEFAULT 7", "UPDATE item SET c = NULL")
    site.publication = _calling_updates(site, CallSyntax.MCALL)
    with pytest.raises(ConfigurationError, match="not registered as its file describes it"):
        site.read_log()
    failed = site.run_log_reader().error
    assert failed is not None
    assert failed.number == NOT_REGISTERED
    site.set_up()
    site.at_publisher("UPDATE item SET a = 9")
    assert not any(it.snapshot for it in good_run(site).values())
    assert site.at_subscriber(_COLUMNS) == site.at_publisher(_COLUMNS)
    assert site.at_subscriber(_ROWS) == site.at_publisher(_ROWS)


_RENAMED = "table public.item was renamed to {}, which the log reader has not read yet"


@pytest.mark.parametrize(
    ("name", "edited"),
    [
        ("public.thing", {}),
        ("public.thing", {"source": "public.thing"}),
        ("public.thing", {"source": "public.thing", "destination": "public.item"}),
        ("stock.item", {"source": "stock.item"}),
    ],
)
def test_a_renamed_table_keeps_its_article_whether_or_not_setup_runs_before_the_log_reader(
    site: Site, name: str, edited: dict[str, object]
) -> None:
    rename = "RENAME TO thing" if name == "public.thing" else "SET SCHEMA stock"
    site.at_publisher("CREATE SCHEMA stock", f"ALTER TABLE item {rename}", f"INSERT INTO {name} VALUES (3, 3, '3')")
    site.publication = _with_article(site, **edited)
    (problem,) = check(site.topology).problems
    assert problem.message.endswith(_RENAMED.format(name))
    asked = "leave the file as it is" if not edited else "write `source: public.item` in the file again"
    assert (problem.report.remedy or "").startswith(f"{asked}; `tranrepl log-reader FILE` reads it; then write ")
    with pytest.raises(ConfigurationError, match=re.escape(_RENAMED.format(name))):
        site.set_up()
    site.publication = _with_article(site, source="public.item")
    edits = site.read_log().file_edits
    assert edits == {"public.item": f"write `source: {name}` and `destination: public.item` into the file"}
    site.publication = _with_article(site, source=name, destination="public.item")
    assert site.set_up() == []
    site.at_publisher(f"INSERT INTO {name} VALUES (4, 4, '4')")
    assert not any(it.snapshot for it in good_run(site).values())
    assert site.at_subscriber(_ROWS) == site.at_publisher(f"SELECT * FROM {name} ORDER BY id")


@pytest.mark.parametrize(
    ("alteration", "became", "columns"),
    [
        ("RENAME a TO b", "column a was renamed to b", ["id", "b", "c"]),
        ("DROP a", "column a was dropped", ["id", "c"]),
    ],
)
def test_a_file_names_a_column_that_is_gone_until_it_is_edited_or_the_log_is_read(
    site: Site, alteration: str, became: str, columns: list[str]
) -> None:
    registered = ["id", "a", "c"]
    site.publication = _with_article(site, columns=registered)
    site.set_up()
    site.at_publisher(f"ALTER TABLE item {alteration}", "INSERT INTO item (id) VALUES (3)")
    (problem,) = check(site.topology).problems
    assert problem.message == f"article public.item: {_UNREAD}: {became}"
    assert (problem.report.remedy or "").startswith("leave the file as it is; `tranrepl run FILE` reads it")

    site.publication = _with_article(site, columns=columns)
    site.set_up()
    site.at_publisher("INSERT INTO item (id) VALUES (4)")
    good_run(site)
    assert site.at_subscriber(_COLUMNS) == site.at_publisher(_COLUMNS)
    assert site.at_subscriber(_ROWS) == site.at_publisher(_ROWS)


def test_two_tables_that_took_each_others_name_are_left_to_the_log(site: Site) -> None:
    articles = [*site.publication.articles, _article(source="public.thing", replica_identity="full")]
    site.publication = site.publication.model_copy(update={"articles": articles})
    site.at_publisher("CREATE TABLE thing (id int PRIMARY KEY)", "INSERT INTO thing VALUES (7)")
    assert site.set_up()[-1] == "subscription reporting: the next run takes a snapshot of article public.thing"
    good_run(site)
    site.at_publisher(
        "BEGIN; ALTER TABLE item RENAME TO other; ALTER TABLE thing RENAME TO item; ALTER TABLE other RENAME TO thing;"
        "INSERT INTO item VALUES (8); INSERT INTO thing VALUES (3, 3, '3'); COMMIT"
    )
    with pytest.raises(ConfigurationError, match=re.escape(_RENAMED.format("public.thing"))):
        site.set_up()
    good_run(site)
    for here, there in (("item", "thing"), ("thing", "item")):
        assert site.at_subscriber(f"TABLE {here} ORDER BY id") == site.at_publisher(f"TABLE {there} ORDER BY id")


@pytest.mark.parametrize("sync_type", ["automatic", "replication_support_only"])
@pytest.mark.parametrize("read_before", [True, False])
def test_a_renamed_table_that_the_log_does_not_tell_begins_anew_and_loses_nothing(
    databases: DatabasesFactory, tmp_path: Path, sync_type: str, read_before: bool
) -> None:
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": sync_type}
    site = Site(databases(), tmp_path / "store", ["public.item"], SparkHere(), [subscription])
    site.at_publisher("CREATE TABLE item (id int PRIMARY KEY)")
    site.set_up()
    site.at_publisher("INSERT INTO item VALUES (1)")
    good_run(site)
    site.at_publisher("INSERT INTO item VALUES (2)", "ALTER TABLE item RENAME TO thing", "INSERT INTO thing VALUES (3)")
    if read_before:
        good_run(site)
    (problem,) = check(site.topology).problems
    assert problem.message == (
        "article public.item: its table was renamed to public.thing, and no schema change in the log says so"
    )
    copied = sync_type == "automatic"
    also = {"pre_creation_cmd": "delete"} if copied else {}
    remedy = problem.report.remedy or ""
    assert remedy.startswith("write `source: public.thing` and `destination: public.item`")
    assert ("with `pre_creation_cmd: delete`" in remedy) == copied
    site.publication = _with_article(site, source="public.thing", destination="public.item", **also)
    done = site.set_up()
    assert "article public.item has ended: the file no longer names it" in done
    assert ("subscription reporting: the next run takes a snapshot of article public.thing" in done) == copied
    site.at_publisher("INSERT INTO thing VALUES (4)", "DELETE FROM thing WHERE id = 1")
    good_run(site)
    assert site.at_subscriber("TABLE item ORDER BY id") == site.at_publisher("TABLE thing ORDER BY id")


def _article(**settings: object) -> Article:
    return Article.model_validate(settings)


def _with_article(site: Site, **settings: object) -> Publication:
    """Return the publication with other settings of its only article."""
    (article,) = site.publication.articles
    edited = _article(**{**article.model_dump(exclude_unset=True), **settings})
    return site.publication.model_copy(update={"articles": [edited]})


def _calling_updates(site: Site, syntax: CallSyntax) -> Publication:
    (article,) = site.publication.articles
    other = article.model_copy(update={"upd_cmd": Propagation(Method.PROCEDURE, syntax)})
    return site.publication.model_copy(update={"articles": [other]})


def test_setup_takes_over_what_the_log_reader_says_that_it_must(site: Site) -> None:
    site.at_publisher("SET event_triggers = off; ALTER TABLE item DROP COLUMN c; RESET event_triggers")
    error = whole_run(site)["log reader"].error
    assert error is not None
    assert "column c was dropped or renamed" in error.message
    assert "`tranrepl setup FILE`" in (error.remedy or "")
    site.at_subscriber("ALTER TABLE item DROP COLUMN c")
    site.set_up()
    site.at_publisher("INSERT INTO item VALUES (3, 3)")
    good_run(site)
    assert site.at_subscriber(_ROWS) == site.at_publisher(_ROWS)
