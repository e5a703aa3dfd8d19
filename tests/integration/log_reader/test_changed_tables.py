"""What becomes of an article whose table, columns or row filter change: nothing is lost, nothing stays stale without a
word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from conftest import DatabaseFactory, DatabasesFactory
from support.databases import Databases
from support.embedded_postgres import PostgresServer
from support.equality import differing_rows
from support.observed import distribution_rows, stored_commands
from support.site import Rows, Site
from support.spark_here import SparkHere
from support.whole_run import good_run, whole_run
from tranrepl.admin.status import status
from tranrepl.errors import ConfigurationError, ErrorKind
from tranrepl.jobs.requests import Repair
from tranrepl.jobs.results import JobResult

_VENDOR = "CREATE TABLE vendor (id int PRIMARY KEY, name varchar(20), rating int, note text)"
_OTHER = "CREATE TABLE other (id int PRIMARY KEY, name text)"
_ROWS = "INSERT INTO vendor SELECT n, 'name ' || n, n, 'note' FROM generate_series(1, 20) n"
_AUTOMATIC = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
_BY_HAND = {"name": "reporting", "connection": "subscriber"}


def _site(
    databases: Databases,
    tmp_path: Path,
    subscription: Mapping[str, object] = _AUTOMATIC,
    **article: Any,
) -> Site:
    """Of `vendor`, as told, and `other`."""
    vendor = {"source": "public.vendor", "pre_creation_cmd": "delete", **article}
    articles: list[Mapping[str, object] | str] = [vendor, "public.other"]
    return Site(databases, tmp_path / "store", articles, SparkHere(), [subscription])


@pytest.fixture
def ends(databases: DatabasesFactory) -> Databases:
    return databases()


@pytest.fixture
def site(ends: Databases, tmp_path: Path) -> Site:
    """Twenty vendors at both ends, and changes after them."""
    return _begun(_site(ends, tmp_path))


def _begun(site: Site) -> Site:
    site.at_publisher(_VENDOR, _OTHER)
    if site.publication.subscriptions[0].sync_type != "automatic":
        site.set_up()
    site.at_publisher(_ROWS, "INSERT INTO other VALUES (1, 'one')")
    site.set_up()
    good_run(site)
    site.at_publisher("UPDATE vendor SET note = 'changed' WHERE id < 5")
    good_run(site)
    assert differing_rows(site) == {}
    return site


def _message(result: JobResult) -> str:
    assert result.error is not None
    return result.error.message


def _waiting(site: Site) -> Rows:
    return distribution_rows(site, "SELECT article, status, reason FROM msarticle_subscriptions ORDER BY 1")


def _waits(site: Site, article: str = "public.vendor") -> bool:
    return any(row[:2] == (article, "subscribed") for row in _waiting(site))


def _published(site: Site, table: str = "vendor", columns: str = "*") -> Rows:
    return site.at_publisher(f"SELECT {columns} FROM {table} ORDER BY 1")


# A column that goes while something is undelivered

_GOING = {
    "dropped": "ALTER TABLE vendor DROP COLUMN note",
    "renamed": "ALTER TABLE vendor RENAME COLUMN note TO remark",
    "dropped, another one added": "ALTER TABLE vendor DROP COLUMN note, ADD COLUMN grade int DEFAULT 7",
}


@pytest.mark.parametrize("read_before", [False, True], ids=["unread", "undelivered"])
@pytest.mark.parametrize("change", _GOING.values(), ids=list(_GOING))
def test_changes_before_a_dropped_column_are_delivered(site: Site, change: str, read_before: bool) -> None:
    site.at_publisher("UPDATE vendor SET note = 'before' WHERE id < 9", "INSERT INTO other VALUES (2, 'two')")
    if read_before:
        site.read_log().raise_error()
    before = _published(site, columns="id, name, rating, note")
    site.at_publisher(change, "UPDATE vendor SET rating = 100", "INSERT INTO other VALUES (3, 'three')")
    results = whole_run(site)
    assert "column note was dropped or renamed" in _message(results["log reader"])
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
    assert "column note was dropped or renamed" in _message(whole_run(site)["log reader"])
    site.set_up()
    good_run(site)


def test_setup_of_what_is_undelivered_says_run_and_run_delivers_it(site: Site, ends: Databases, tmp_path: Path) -> None:
    """With the changed file, too."""
    changed = _site(ends, tmp_path, columns=["id", "name"])
    site.at_publisher("UPDATE vendor SET name = 'before'")
    site.read_log().raise_error()
    with pytest.raises(ConfigurationError, match="commands still to be delivered") as refused:
        changed.set_up()
    assert "`tranrepl run FILE`" in (refused.value.report.remedy or "")
    assert "is not registered as its file describes it" in _message(whole_run(changed)["log reader"])
    assert differing_rows(changed) == {}
    changed.set_up()
    good_run(changed)


# Rows that a new definition leaves stale or missing


def test_an_article_of_all_columns_gains_a_new_one_by_snapshot(site: Site) -> None:
    site.at_publisher(
        "ALTER TABLE vendor ADD COLUMN grade int DEFAULT 7",
        "UPDATE vendor SET grade = id WHERE id < 4",
        "INSERT INTO other VALUES (2, 'unread')",
    )
    site.at_subscriber("ALTER TABLE vendor ADD COLUMN grade int")
    done = site.set_up()
    assert "article public.vendor of subscription reporting waits for a snapshot: column grade joined it" in done
    good_run(site)
    assert site.at_subscriber("SELECT * FROM vendor ORDER BY 1") == _published(site)
    site.at_publisher("UPDATE vendor SET grade = 9 WHERE id > 4")
    assert good_run(site)["reporting"].commands == 16
    assert differing_rows(site) == {}


def test_a_column_list_that_grows_brings_the_columns_values(ends: Databases, tmp_path: Path) -> None:
    site = _begun(_site(ends, tmp_path, columns=["id", "name"]))
    wider = _site(ends, tmp_path, columns=["id", "name", "rating"])
    site.at_subscriber("ALTER TABLE vendor ADD COLUMN rating int")
    site.at_publisher("UPDATE vendor SET rating = 50 WHERE id = 1", "INSERT INTO vendor VALUES (21, 'unread', 5)")
    wider.set_up()
    good_run(wider)
    assert site.at_subscriber("SELECT id, name, rating FROM vendor ORDER BY 1") == _published(
        site, columns="id, name, rating"
    )


@pytest.mark.parametrize("command", ["truncate", "delete"])
@pytest.mark.parametrize("changed", [["rating > 5"], [None], ["rating > 15"], ["rating > 15", "rating < 3"]])
def test_a_changed_filter_inserts_and_deletes_the_rows_it_moves(
    ends: Databases, tmp_path: Path, changed: Sequence[str | None], command: str
) -> None:
    site = _site(ends, tmp_path, pre_creation_cmd=command, filter="rating > 10")
    site.at_publisher(_VENDOR, _OTHER, _ROWS)
    site.set_up()
    good_run(site)
    assert site.at_subscriber("SELECT count(*) FROM vendor") == [(10,)]
    for condition in changed:
        filtered: dict[str, Any] = {} if condition is None else {"filter": condition}
        site = _site(ends, tmp_path, pre_creation_cmd=command, **filtered)
        assert site.set_up()
    good_run(site)
    wanted = site.at_publisher(f"SELECT * FROM vendor WHERE {changed[-1] or 'true'} ORDER BY 1")
    assert site.at_subscriber("SELECT * FROM vendor ORDER BY 1") == wanted


def test_a_protected_destination_is_refused_before_anything_changes(ends: Databases, tmp_path: Path) -> None:
    site = _begun(_site(ends, tmp_path, pre_creation_cmd="none"))
    changed = _site(ends, tmp_path, pre_creation_cmd="none", filter="rating > 5")
    with pytest.raises(ConfigurationError, match="holds rows") as refused:
        changed.set_up()
    assert "pre_creation_cmd: delete, truncate or drop" in (refused.value.report.remedy or "")
    assert not _waits(site)
    site.at_publisher("UPDATE vendor SET name = 'goes on'")
    good_run(site)
    assert differing_rows(site) == {}
    chosen = _site(ends, tmp_path, pre_creation_cmd="truncate", filter="rating > 5")
    chosen.set_up()
    good_run(chosen)
    assert site.at_subscriber("SELECT count(*) FROM vendor") == [(15,)]


def test_a_snapshot_that_must_not_touch_its_table_holds_nothing_else_up(ends: Databases, tmp_path: Path) -> None:
    site = _begun(_site(ends, tmp_path, pre_creation_cmd="none"))
    site.at_publisher(
        "ALTER TABLE vendor ALTER COLUMN rating TYPE int USING rating * 10", "INSERT INTO other VALUES (2, 'two')"
    )
    for _ in range(2):
        results = whole_run(site)
        assert "holds rows" in _message(results["reporting snapshot"])
        assert results["reporting"].error is None
    assert site.at_subscriber("SELECT * FROM other ORDER BY 1") == [(1, "one"), (2, "two")]
    chosen = _site(ends, tmp_path)
    good_run(chosen)
    assert differing_rows(site) == {}


@pytest.mark.parametrize(
    ("subscription", "article"),
    [(_BY_HAND, {}), (_AUTOMATIC, {"on_unknown_rows": "stop"})],
    ids=["takes no snapshots", "on_unknown_rows: stop"],
)
def test_without_a_snapshot_a_subscription_stops_until_validated(
    ends: Databases, tmp_path: Path, subscription: Mapping[str, object], article: Mapping[str, object]
) -> None:
    site = _begun(_site(ends, tmp_path, subscription, **article))
    wider = _site(ends, tmp_path, subscription, **article, filter="rating > 5")
    site.at_publisher("UPDATE other SET name = 'after'")
    assert any("is stopped until its rows are seen to: its row filter changed" in it for it in wider.set_up())
    results = whole_run(wider)
    assert results["reporting"].error is not None
    assert results["reporting"].error.number == "21074"
    assert "tranrepl validate FILE -s reporting --article public.vendor --repair" in (
        results["reporting"].error.remedy or ""
    )
    assert site.at_subscriber("SELECT name FROM other") == [("one",)]
    # It stays stopped as long as rows differ.
    assert wider.validate().error is not None
    assert whole_run(wider)["reporting"].error is not None
    repaired = wider.validate(articles=("public.vendor",), repair=Repair.APPLY)
    repaired.raise_error()
    assert any("goes on" in it for it in repaired.notices)
    good_run(wider)
    assert site.at_subscriber("SELECT * FROM vendor ORDER BY 1") == site.at_publisher(
        "SELECT * FROM vendor WHERE rating > 5 ORDER BY 1"
    )
    assert site.at_subscriber("SELECT name FROM other") == [("after",)]


def test_a_later_subscription_gets_only_rows_of_the_log(
    ends: Databases, tmp_path: Path, database: DatabaseFactory
) -> None:
    site = _begun(_site(ends, tmp_path, _BY_HAND))
    site.at_publisher("ALTER TABLE vendor ALTER COLUMN rating TYPE int USING rating * 10")
    site.read_log().raise_error()
    vendor, other = ({"source": f"public.{it}"} for it in ("vendor", "other"))
    archive = {"name": "archive", "connection": "archive"}
    both = Site(ends, tmp_path / "store", [vendor, other], SparkHere(), [_BY_HAND, archive])
    both.connections["archive"] = database("archive")
    assert "article public.vendor of subscription archive is stopped until its rows are seen to" in both.set_up()
    with pytest.raises(ConfigurationError, match="it was reinitialized after what is stored"):
        both.deliver("archive")
    assert {it.subscription: set(it.stopped_articles) for it in status(both.topology).subscriptions} == {
        "reporting": {"public.vendor"},
        "archive": {"public.vendor"},
    }
    both.validate("archive", repair=Repair.APPLY).raise_error()
    both.deliver("archive").raise_error()
    assert differing_rows(both, both.connections["archive"]) == {}


def test_validation_works_before_the_snapshot_and_says_what_waits(site: Site, ends: Databases, tmp_path: Path) -> None:
    wider = _site(ends, tmp_path, filter="rating > 5")
    wider.set_up()
    site.at_subscriber("UPDATE other SET name = 'wrong'")
    site.at_publisher("INSERT INTO other VALUES (2, 'two')", "UPDATE vendor SET name = 'left out'")
    result = wider.validate()
    assert result.validation is not None, result.error
    assert [(it.article, it.different, it.missing) for it in result.validation.articles] == [("public.other", 1, 0)]
    assert "article public.vendor still waits for its snapshot, and was not compared" in result.notices
    wider.validate(repair=Repair.APPLY).raise_error()
    alone = wider.validate(articles=("public.vendor",))
    assert alone.error is None
    assert "article public.vendor still waits for its snapshot, and was not compared" in alone.notices
    good_run(wider)
    assert site.at_subscriber("SELECT count(*) FROM vendor") == [(15,)]


# A table whose rows were written anew

_COPIED = {
    "vacuum full": ["VACUUM FULL vendor"],
    "cluster": ["CLUSTER vendor USING vendor_pkey"],
    "truncate": ["TRUNCATE vendor", "INSERT INTO vendor VALUES (1, 'again', 1, NULL)"],
    "add a column that fills itself": ["ALTER TABLE vendor ADD COLUMN token uuid DEFAULT gen_random_uuid()"],
    "drop of a column that is not published": [
        "ALTER TABLE vendor ADD COLUMN unpublished int DEFAULT 1",
        "ALTER TABLE vendor DROP COLUMN unpublished",
        "VACUUM FULL vendor",
    ],
    "reindex and analyze": ["REINDEX TABLE vendor", "VACUUM ANALYZE vendor"],
    "not null, a default": ["ALTER TABLE vendor ALTER COLUMN name SET NOT NULL, ALTER COLUMN rating SET DEFAULT 3"],
}


@pytest.mark.parametrize("statements", _COPIED.values(), ids=list(_COPIED))
def test_rows_that_are_copied_as_they_are_raise_no_alarm(site: Site, statements: Sequence[str]) -> None:
    site.at_publisher(*statements, "INSERT INTO vendor VALUES (31, 'after', 1, NULL)")
    results = good_run(site)
    assert list(results) == ["log reader", "reporting"]
    assert not _waits(site)
    # Whatever was done to columns before is known by now.
    site.at_publisher("VACUUM FULL vendor")
    assert list(good_run(site)) == ["log reader", "reporting"]
    assert differing_rows(site) == {}


def test_vacuum_full_of_a_column_with_a_missing_value_is_no_change(site: Site) -> None:
    site.at_publisher("ALTER TABLE vendor ADD COLUMN grade int DEFAULT 7")
    site.at_subscriber("ALTER TABLE vendor ADD COLUMN grade int")
    site.set_up()
    good_run(site)
    site.at_publisher("VACUUM FULL vendor")
    assert list(good_run(site)) == ["log reader", "reporting"]
    site.at_publisher("ALTER TABLE vendor ALTER COLUMN grade TYPE int USING grade * 2")
    assert "reporting snapshot" in good_run(site)
    assert differing_rows(site) == {}


_REWRITTEN = {
    "the same type": "ALTER TABLE vendor ALTER COLUMN rating TYPE int USING rating * 10",
    "by rows, then copied": "ALTER TABLE vendor ALTER COLUMN rating TYPE int USING rating * 10; VACUUM FULL vendor",
    "text": "ALTER TABLE vendor ALTER COLUMN note TYPE text USING upper(note)",
}


@pytest.mark.parametrize("idle", [True, False], ids=["with nothing to read", "among changes"])
@pytest.mark.parametrize("statements", _REWRITTEN.values(), ids=list(_REWRITTEN))
def test_a_table_that_was_rewritten_gets_a_snapshot(site: Site, statements: str, idle: bool) -> None:
    site.at_publisher(*statements.split("; "))
    if not idle:
        site.at_publisher("UPDATE vendor SET name = 'after' WHERE id = 3", "INSERT INTO other VALUES (2, 'two')")
    results = good_run(site)
    assert any("its table was rewritten" in it for it in results["log reader"].notices)
    assert [it.article for it in results["reporting snapshot"].snapshot] == ["public.vendor"]
    assert differing_rows(site) == {}
    assert list(good_run(site)) == ["log reader", "reporting"]


def test_a_table_that_was_rewritten_is_noticed_by_setup(site: Site) -> None:
    """Who sets up first must not make it forgotten."""
    site.at_publisher("ALTER TABLE vendor ALTER COLUMN rating TYPE bigint USING rating * 10")
    site.at_subscriber("ALTER TABLE vendor ALTER COLUMN rating TYPE bigint")
    assert any("its table was rewritten" in it for it in site.set_up())
    assert "reporting snapshot" in good_run(site)
    assert differing_rows(site) == {}


def test_a_rewritten_table_stops_where_no_snapshot_is_to_be_taken(ends: Databases, tmp_path: Path) -> None:
    site = _begun(_site(ends, tmp_path, on_unknown_rows="stop"))
    site.at_publisher("ALTER TABLE vendor ALTER COLUMN rating TYPE int USING rating * 10")
    for _ in range(2):
        assert "is stopped: its table was rewritten" in _message(whole_run(site)["reporting"])
    site.validate(repair=Repair.APPLY).raise_error()
    good_run(site)
    assert differing_rows(site) == {}


# Old rows that do not come with the log any more

_DEFAULT = ["ALTER TABLE vendor REPLICA IDENTITY DEFAULT"]
_INDEX = [
    "ALTER TABLE vendor ALTER COLUMN rating SET NOT NULL",
    "CREATE UNIQUE INDEX by_rating ON vendor (rating)",
    "ALTER TABLE vendor REPLICA IDENTITY USING INDEX by_rating",
]
_LESS: dict[str, tuple[list[str], dict[str, Any], str]] = {
    # what is done, the article, who mends it
    "using index": (_INDEX, {}, "setup"),
    "using index, mended by hand": (_INDEX, {}, "hand"),
    "default, with a filter": (_DEFAULT, {"filter": "rating > 5"}, "setup"),
    "default, with XCALL, mended by hand": (_DEFAULT, {"upd_cmd": "XCALL"}, "hand"),
    "default, with CALL": (_DEFAULT, {"upd_cmd": "CALL"}, "setup"),
}


@pytest.mark.parametrize(("statements", "article", "restored_by"), _LESS.values(), ids=list(_LESS))
def test_a_changed_replica_identity_stores_nothing_without_old_rows(
    ends: Databases, tmp_path: Path, statements: Sequence[str], article: Mapping[str, Any], restored_by: str
) -> None:
    site = _site(ends, tmp_path, pre_creation_cmd="truncate", **article)
    condition = article.get("filter", "true")
    long_note = "(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 500) n)"
    site.at_publisher(_VENDOR, _OTHER, _ROWS, f"UPDATE vendor SET note = {long_note}")
    site.set_up()
    good_run(site)
    site.at_publisher("UPDATE vendor SET name = 'before' WHERE id = 7")
    before = site.at_publisher(f"SELECT * FROM vendor WHERE {condition} ORDER BY 1")
    site.at_publisher(
        *statements,
        "INSERT INTO other VALUES (2, 'two')",
        "UPDATE vendor SET rating = 900 WHERE id = 9",
        "DELETE FROM vendor WHERE id = 8",
        "UPDATE vendor SET name = 'later' WHERE id = 10",
    )
    stored = len(stored_commands(site))
    results = whole_run(site)
    error = results["log reader"].error
    assert error is not None
    assert error.kind in (ErrorKind.CONFIGURATION, ErrorKind.DATA)
    assert error.article == "public.vendor"
    assert "`tranrepl setup FILE`" in (error.remedy or "")
    assert results["reporting"].error is None
    assert site.at_subscriber("SELECT * FROM vendor ORDER BY 1") == before
    lacking = [it for it in stored_commands(site)[stored:] if it.article == "public.vendor"]
    assert [it.operation for it in lacking] == ["UPDATE"]
    if restored_by == "hand":
        site.at_publisher("ALTER TABLE vendor REPLICA IDENTITY FULL")
    else:
        site.set_up()
    site.at_publisher("UPDATE vendor SET name = 'full again' WHERE id = 11", "DELETE FROM vendor WHERE id = 12")
    results = good_run(site)
    assert any("the log lacks old rows" in it for it in results["log reader"].notices)
    good_run(site)
    wanted = site.at_publisher(f"SELECT * FROM vendor WHERE {condition} ORDER BY 1")
    assert site.at_subscriber("SELECT * FROM vendor ORDER BY 1") == wanted
    site.at_publisher("UPDATE vendor SET rating = 40 WHERE id = 13", "DELETE FROM vendor WHERE id = 14")
    assert good_run(site)["reporting"].commands > 0
    wanted = site.at_publisher(f"SELECT * FROM vendor WHERE {condition} ORDER BY 1")
    assert site.at_subscriber("SELECT * FROM vendor ORDER BY 1") == wanted
    assert site.at_subscriber("SELECT * FROM other ORDER BY 1") == [(2, "two")]


def test_a_replica_identity_that_changed_is_told_before_any_change(ends: Databases, tmp_path: Path) -> None:
    site = _begun(_site(ends, tmp_path))
    site.at_publisher("ALTER TABLE vendor REPLICA IDENTITY NOTHING")
    assert "REPLICA IDENTITY NOTHING" in _message(whole_run(site)["log reader"])
    site.set_up()
    assert list(good_run(site)) == ["log reader", "reporting"]


def test_an_article_that_needs_no_old_rows_goes_on_with_the_key_alone(site: Site) -> None:
    site.at_publisher("ALTER TABLE vendor REPLICA IDENTITY DEFAULT", "DELETE FROM vendor WHERE id = 8")
    site.at_publisher("UPDATE vendor SET id = 100, name = 'moved' WHERE id = 9", "UPDATE vendor SET rating = 3")
    good_run(site)
    assert differing_rows(site) == {}


def test_tables_of_another_version_are_looked_at_the_same_way(
    databases: DatabasesFactory, debian_postgres: PostgresServer, tmp_path: Path
) -> None:
    site = _begun(_site(databases(publisher=debian_postgres), tmp_path))
    site.at_publisher("VACUUM FULL vendor")
    assert list(good_run(site)) == ["log reader", "reporting"]
    site.at_publisher("ALTER TABLE vendor ALTER COLUMN rating TYPE int USING rating * 10")
    assert "reporting snapshot" in good_run(site)
    assert differing_rows(site) == {}
