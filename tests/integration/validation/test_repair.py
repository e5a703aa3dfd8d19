"""Repairs after a validation: both ends are equal afterwards, and nothing is changed that is not a copy."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from conftest import DatabasesFactory
from support.embedded_postgres import PostgresServer
from support.site import Site
from support.spark_here import SparkHere
from support.validated_site import COLUMNS, article_of, compared_articles, named, validated_site
from tranrepl.jobs.requests import Repair
from tranrepl.validation import differences
from tranrepl.validation.differences import Found


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    return validated_site(databases(), tmp_path, SparkHere())


def test_a_repair_script_makes_both_ends_equal(
    databases: DatabasesFactory, tmp_path: Path, postgres: PostgresServer
) -> None:
    tables = (
        "CREATE TABLE parent (id int PRIMARY KEY, name text UNIQUE)",
        "CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent, note text)",
    )
    site = Site(databases(), tmp_path / "store", ["public.parent", "public.child"], SparkHere())
    site.at_publisher(*tables)
    site.at_subscriber(*tables)
    site.set_up()
    site.at_publisher(
        "INSERT INTO parent VALUES (1, 'it''s \\ one'), (2, 'two'), (3, 'three'), (4, NULL)",
        "INSERT INTO child VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 2, NULL)",
    )
    site.run()
    site.at_subscriber(
        "UPDATE parent SET name = NULL WHERE id IN (2, 3)",
        "UPDATE parent SET name = 'two' WHERE id = 3",
        "UPDATE parent SET name = 'three' WHERE id = 2",
        "DELETE FROM child WHERE id = 1",
        "DELETE FROM parent WHERE id = 1",
        "INSERT INTO parent VALUES (9, 'nine')",
        "INSERT INTO child VALUES (9, 9, 'nine')",
        "UPDATE child SET note = 'c' WHERE id = 3",
    )
    script = tmp_path / "repair.sql"
    result = site.validate(repair=Repair.SCRIPT, repair_script=script)
    assert result.error is not None
    assert (article_of(result, "public.parent").scripted, article_of(result, "public.child").scripted) == (4, 3)
    assert stat.S_IMODE(script.stat().st_mode) == 0o600
    # The swapped names are of rows that a child's foreign key holds.
    site.at_subscriber("ALTER TABLE child DROP CONSTRAINT child_parent_fkey")
    postgres.run(
        "psql", "-q", "-v", "ON_ERROR_STOP=1", "-f", str(script), database=site.databases.subscriber.database or ""
    )
    assert site.validate().error is None


def test_articles_that_are_not_copies_are_reported_and_never_repaired(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    articles = [
        {"source": "public.kept", "del_cmd": "NONE"},
        {"source": "public.logged", "del_cmd": "CALL log_delete"},
        {"source": "public.plain"},
    ]
    site = Site(databases(), tmp_path / "store", articles, SparkHere())
    for name in ("kept", "logged", "plain"):
        site.at_publisher(f"CREATE TABLE {name} (id int PRIMARY KEY)")
    site.at_subscriber("CREATE PROCEDURE log_delete(id int) LANGUAGE sql AS ''")
    site.set_up()
    for name in ("kept", "logged", "plain"):
        site.at_publisher(f"INSERT INTO {name} SELECT generate_series(1, 5)", f"DELETE FROM {name} WHERE id = 2")
    site.at_publisher("DELETE FROM plain WHERE id = 3")
    site.run()
    site.at_subscriber("DELETE FROM plain WHERE id = 4")
    result = site.validate(repair=Repair.APPLY)
    reasons = {it.article: (it.not_repaired, it.repaired) for it in compared_articles(result)}
    assert reasons == {
        "public.kept": ("del_cmd is NONE", None),
        "public.logged": ("del_cmd calls the custom procedure log_delete", None),
        "public.plain": (None, 1),
    }
    assert result.error is not None
    assert "plain" not in result.error.message
    assert [it.equal for it in compared_articles(site.validate())] == [False, False, True]
    some = site.validate(articles=("public.kept", "public.plain"))
    assert [it.article for it in compared_articles(some)] == ["public.kept", "public.plain"]


def test_rows_that_a_subscriber_without_a_key_has_twice_are_extra(site: Site) -> None:
    site.at_publisher(f"CREATE TABLE item ({COLUMNS})")
    site.at_subscriber(f"CREATE TABLE item ({COLUMNS.replace('PRIMARY KEY', '')})")
    site.set_up()
    site.at_publisher("INSERT INTO item SELECT g, 1, 'name' FROM generate_series(1, 5) g")
    site.run()
    site.at_subscriber(
        "INSERT INTO item SELECT * FROM item WHERE id IN (2, 3)",
        "INSERT INTO item SELECT * FROM item WHERE id = 3",
        "UPDATE item SET note = 'wrong' WHERE id = 3",
    )
    found = article_of(site.validate(repair=Repair.APPLY))
    assert named(found) == {("extra", "2", ()), ("extra", "3", ()), ("different", "3", ("note",))}
    assert site.validate().error is None
    assert site.at_subscriber("SELECT id, note FROM item ORDER BY 1") == [(number, None) for number in range(1, 6)]


def test_a_repair_corrects_only_what_still_differs(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    # Between comparison and repair the Publisher changes rows, and a delivery brings one of them.
    site.at_publisher(f"CREATE TABLE item ({COLUMNS})")
    site.set_up()
    site.at_publisher("INSERT INTO item SELECT g, 1, 'name' FROM generate_series(1, 9) g")
    site.run()
    site.at_subscriber(
        "UPDATE item SET name = 'wrong' WHERE id < 5", "CREATE TABLE written (id int, name text)", _AUDIT
    )

    def compare_and_change(*arguments: Any, **named: Any) -> list[Found]:
        found = differences.compare(*arguments, **named)
        site.at_publisher(
            "UPDATE item SET name = 'right' WHERE id = 1",
            "DELETE FROM item WHERE id = 2",
            "UPDATE item SET name = 'later' WHERE id = 9",
        )
        return found

    monkeypatch.setattr("tranrepl.validation.job.compare", compare_and_change)
    assert site.validate(repair=Repair.APPLY).error is None
    monkeypatch.undo()
    # 1, 2 and 9 came by their commands.
    assert site.at_subscriber("SELECT id, name FROM written ORDER BY 1") == [
        (1, "right"),
        (3, "name"),
        (4, "name"),
        (9, "later"),
    ]
    assert site.validate().error is None


_AUDIT = """
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN
    INSERT INTO written VALUES (new.id, new.name); RETURN new; END';
CREATE TRIGGER audit BEFORE UPDATE ON item FOR EACH ROW EXECUTE FUNCTION audit();
"""
