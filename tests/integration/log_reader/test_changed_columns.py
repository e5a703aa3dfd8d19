"""Columns that go, come or join an article's column list: earlier changes are delivered, and no value is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.databases import Databases
from support.equality import differing_rows
from support.site import Site
from support.vendor_site import begun, message, published, vendor_site
from support.whole_run import good_run, whole_run
from tranrepl.errors import ConfigurationError

_GOING = {
    "dropped": "ALTER TABLE vendor DROP COLUMN note",
    "renamed": "ALTER TABLE vendor RENAME COLUMN note TO remark",
    "dropped, another one added": "ALTER TABLE vendor DROP COLUMN note, ADD COLUMN grade int DEFAULT 7",
}


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("read_before", [False, True], ids=["unread", "undelivered"])
@pytest.mark.parametrize("change", _GOING.values(), ids=list(_GOING))
def test_changes_before_a_dropped_column_are_delivered(site: Site, change: str, read_before: bool) -> None:
    site.at_publisher("UPDATE vendor SET note = 'before' WHERE id < 9", "INSERT INTO other VALUES (2, 'two')")
    if read_before:
        site.read_log().raise_error()
    before = published(site, columns="id, name, rating, note")
    site.at_publisher(change, "UPDATE vendor SET rating = 100", "INSERT INTO other VALUES (3, 'three')")
    results = whole_run(site)
    assert "column note was dropped or renamed" in message(results["log reader"])
    assert results["reporting"].error is None
    assert site.at_subscriber("SELECT * FROM vendor ORDER BY 1") == before
    assert site.at_subscriber("SELECT id FROM other ORDER BY 1") == [(1,), (2,)]
    if "RENAME" in change:
        site.at_subscriber("ALTER TABLE vendor RENAME COLUMN note TO remark")
    if "ADD" in change:
        site.at_subscriber("ALTER TABLE vendor ADD COLUMN grade int")
    site.set_up()
    good_run(site)
    assert differing_rows(site) == {}


def test_a_column_that_went_is_told_before_its_table_changes_again(site: Site) -> None:
    site.at_publisher("ALTER TABLE vendor DROP COLUMN note")
    assert "column note was dropped or renamed" in message(whole_run(site)["log reader"])
    site.set_up()
    good_run(site)


def test_a_renamed_column_of_what_is_undelivered_gets_its_name_again(site: Site) -> None:
    # Commands of before have the old name, and those of after the new one; the remedy is followed.
    site.at_publisher("UPDATE vendor SET note = 'before'")
    site.read_log().raise_error()
    site.at_publisher("ALTER TABLE vendor RENAME COLUMN note TO remark", "UPDATE vendor SET rating = 100")
    site.at_subscriber("ALTER TABLE vendor RENAME COLUMN note TO remark")
    results = whole_run(site)
    assert "column note was dropped or renamed" in message(results["log reader"])
    error = results["reporting"].error
    assert error is not None
    assert "give it its name again until all is delivered" in (error.remedy or "")
    site.at_subscriber("ALTER TABLE vendor RENAME COLUMN remark TO note")
    assert whole_run(site)["reporting"].error is None
    site.at_subscriber("ALTER TABLE vendor RENAME COLUMN note TO remark")
    site.set_up()
    good_run(site)
    assert differing_rows(site) == {}


def test_a_column_that_leaves_the_list_is_in_what_was_stored_before(
    site: Site, ends: Databases, tmp_path: Path
) -> None:
    changed = vendor_site(ends, tmp_path, columns=["id", "name"])
    site.at_publisher("UPDATE vendor SET name = 'before', rating = 50")
    site.read_log().raise_error()
    with pytest.raises(ConfigurationError, match="is not registered as its file describes it"):
        changed.read_log()
    changed.set_up()
    site.at_publisher("UPDATE vendor SET name = 'after', rating = 60 WHERE id < 10")
    good_run(changed)
    assert site.at_subscriber("SELECT id, name FROM vendor ORDER BY 1") == published(site, columns="id, name")
    assert site.at_subscriber("SELECT DISTINCT rating FROM vendor") == [(50,)]


def test_an_article_of_all_columns_gains_a_new_one_by_snapshot(site: Site) -> None:
    site.at_publisher(
        "ALTER TABLE vendor ADD COLUMN grade int DEFAULT 7",
        "UPDATE vendor SET grade = id WHERE id < 4",
        "INSERT INTO other VALUES (2, 'unread')",
    )
    site.at_subscriber("ALTER TABLE vendor ADD COLUMN grade int")
    site.set_up()
    notices = good_run(site)["log reader"].notices
    assert "article public.vendor is copied to reporting again: column grade was added to it" in notices
    assert site.at_subscriber("SELECT * FROM vendor ORDER BY 1") == published(site)
    site.at_publisher("UPDATE vendor SET grade = 9 WHERE id > 4")
    assert good_run(site)["reporting"].commands == 16
    assert differing_rows(site) == {}


def test_a_column_list_that_grows_brings_the_columns_values(ends: Databases, tmp_path: Path) -> None:
    site = begun(vendor_site(ends, tmp_path, columns=["id", "name"]))
    wider = vendor_site(ends, tmp_path, columns=["id", "name", "rating"])
    site.at_subscriber("ALTER TABLE vendor ADD COLUMN rating int")
    site.at_publisher("UPDATE vendor SET rating = 50 WHERE id = 1", "INSERT INTO vendor VALUES (21, 'unread', 5)")
    wider.set_up()
    good_run(wider)
    assert site.at_subscriber("SELECT id, name, rating FROM vendor ORDER BY 1") == published(
        site, columns="id, name, rating"
    )
