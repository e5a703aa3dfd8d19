"""Setup of a publication whose table was altered after what the log reader has read."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.site import Site
from support.spark_here import SparkHere
from support.whole_run import good_run, whole_run
from tranrepl.admin.check import check
from tranrepl.errors import ConfigurationError
from tranrepl.model.commands import CallSyntax, Method, Propagation
from tranrepl.settings.publication import Publication

_UNREAD = "its table was altered, and the log reader has not read that yet"
_COLUMNS = """SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute
WHERE attrelid = 'item'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""
_ROWS = "SELECT * FROM item ORDER BY id"


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    article = {"source": "public.item", "replica_identity": "full", "pre_creation_cmd": "delete"}
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
    site = Site(databases(), tmp_path / "store", [article], SparkHere(), [subscription], replicate_ddl=True)
    site.at_publisher(
        "CREATE TABLE item (id int PRIMARY KEY, a int, c varchar(8) NOT NULL DEFAULT 'c')",
        "INSERT INTO item VALUES (1, 1, '1'), (2, 2, '2')",
    )
    site.set_up()
    site.take_snapshot().raise_error()
    site.run().raise_error()
    return site


@pytest.mark.parametrize(
    "alteration",
    [
        "ADD COLUMN x int",
        "DROP COLUMN c",
        "ALTER c DROP NOT NULL",
        "ALTER c TYPE text",
        "RENAME a TO b",
        "DROP COLUMN c, ADD COLUMN c smallint",
    ],
)
def test_subscribers_are_altered_whether_or_not_setup_runs_before_the_log_reader(site: Site, alteration: str) -> None:
    site.at_publisher("UPDATE item SET a = 5 WHERE id = 1", f"ALTER TABLE item {alteration}")
    checked = check(site.topology)
    assert not checked.problems
    assert any(_UNREAD in it for it in checked.warnings)
    with pytest.raises(ConfigurationError, match=_UNREAD):
        site.set_up()
    site.at_publisher("INSERT INTO item (id) VALUES (3)", "DELETE FROM item WHERE id = 2")
    site.run().raise_error()
    site.set_up()
    assert site.at_subscriber(_COLUMNS) == site.at_publisher(_COLUMNS)
    assert site.at_subscriber(_ROWS) == site.at_publisher(_ROWS)


def test_what_the_log_never_announces_is_taken_over_once_it_is_read(site: Site) -> None:
    site.at_publisher("SET event_triggers = off; ALTER TABLE item ALTER c DROP NOT NULL; RESET event_triggers")
    site.at_subscriber("ALTER TABLE item ALTER c DROP NOT NULL")
    with pytest.raises(ConfigurationError, match=_UNREAD):
        site.set_up()
    # The server writes it every few seconds.
    site.at_publisher("SELECT pg_log_standby_snapshot()", "UPDATE item SET a = 7")
    for _ in range(2):
        site.read_log().raise_error()
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


def test_a_file_that_was_edited_meanwhile_is_put_back_first(site: Site) -> None:
    registered, edited = site.publication, _calling_updates(site, CallSyntax.MCALL)
    site.at_publisher("ALTER TABLE item ALTER c DROP NOT NULL", "UPDATE item SET c = NULL")
    site.publication = edited
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=_UNREAD):
            site.set_up()
        with pytest.raises(ConfigurationError, match="not registered as its file describes it"):
            site.read_log().raise_error()
    site.publication = registered
    site.run().raise_error()
    site.publication = edited
    site.set_up()
    site.at_publisher("UPDATE item SET a = 9")
    site.run().raise_error()
    assert site.at_subscriber(_COLUMNS) == site.at_publisher(_COLUMNS)
    assert site.at_subscriber(_ROWS) == site.at_publisher(_ROWS)


def _calling_updates(site: Site, syntax: CallSyntax) -> Publication:
    (article,) = site.publication.articles
    other = article.model_copy(update={"upd_cmd": Propagation(Method.PROCEDURE, syntax)})
    return site.publication.model_copy(update={"articles": [other]})
