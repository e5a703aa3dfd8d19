"""A replica identity that changes: changes without their old rows are not stored, and it can be mended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.databases import Databases
from support.equality import differing_rows
from support.observed import stored_commands
from support.site import Site
from support.spark_here import SparkHere
from support.vendor_site import OTHER, VENDOR, VENDOR_ROWS, begun, message, vendor_site
from support.whole_run import good_run, whole_run
from tranrepl.errors import ErrorKind

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


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(("statements", "article", "restored_by"), _LESS.values(), ids=list(_LESS))
def test_a_changed_replica_identity_stores_nothing_without_old_rows(
    ends: Databases, tmp_path: Path, statements: Sequence[str], article: Mapping[str, Any], restored_by: str
) -> None:
    site = vendor_site(ends, tmp_path, pre_creation_cmd="truncate", **article)
    condition = article.get("filter", "true")
    long_note = "(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 500) n)"
    site.at_publisher(VENDOR, OTHER, VENDOR_ROWS, f"UPDATE vendor SET note = {long_note}")
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
    site = begun(vendor_site(ends, tmp_path))
    site.at_publisher("ALTER TABLE vendor REPLICA IDENTITY NOTHING")
    assert "REPLICA IDENTITY NOTHING" in message(whole_run(site)["log reader"])
    site.set_up()
    assert list(good_run(site)) == ["log reader", "reporting"]


def test_an_article_that_needs_no_old_rows_goes_on_with_the_key_alone(site: Site) -> None:
    site.at_publisher("ALTER TABLE vendor REPLICA IDENTITY DEFAULT", "DELETE FROM vendor WHERE id = 8")
    site.at_publisher("UPDATE vendor SET id = 100, name = 'moved' WHERE id = 9", "UPDATE vendor SET rating = 3")
    good_run(site)
    assert differing_rows(site) == {}


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("replicate_ddl", [False, True], ids=["not announced", "announced"])
@pytest.mark.parametrize("settings", [{}, {"filter": "rating < 15"}], ids=["all rows", "filter"])
def test_inserts_need_no_replica_identity(
    ends: Databases, tmp_path: Path, settings: Mapping[str, Any], *, replicate_ddl: bool
) -> None:
    """Where they are all that is propagated: UPDATE and DELETE of the table fail at the Publisher, as PostgreSQL has
    it for any that is published."""
    article = {"source": "public.vendor", "upd_cmd": "NONE", "del_cmd": "NONE", **settings}
    site = Site(ends, tmp_path / "store", [article, "public.other"], SparkHere(), replicate_ddl=replicate_ddl)
    site.at_publisher(VENDOR, OTHER)
    site.set_up()
    site.at_publisher(
        "INSERT INTO vendor VALUES (1, 'before', 1, NULL)",
        "ALTER TABLE vendor REPLICA IDENTITY NOTHING",
        VENDOR_ROWS.replace("(1, 20)", "(2, 20)"),
        "INSERT INTO other VALUES (1, 'one')",
    )
    for statement in ("UPDATE vendor SET rating = 1", "DELETE FROM vendor"):
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            site.at_publisher(statement)
    good_run(site)
    site.at_publisher("INSERT INTO vendor VALUES (21, 'after', 2, NULL)")
    good_run(site)
    wanted = site.at_publisher(f"SELECT * FROM vendor WHERE {settings.get('filter', 'true')} ORDER BY 1")
    assert site.at_subscriber("SELECT * FROM vendor ORDER BY 1") == wanted
    assert site.at_subscriber("SELECT * FROM other") == [(1, "one")]
