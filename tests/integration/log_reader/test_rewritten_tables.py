"""Rewritten tables: where the rows are the same no alarm is raised, other values come by a snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from conftest import DatabaseFactory, DatabasesFactory
from support.databases import Databases, shared_databases
from support.embedded_postgres import PostgresServer
from support.equality import differing_rows
from support.site import Site
from support.spark_here import SparkHere
from support.vendor_site import BY_HAND, VENDOR_ROWS, begun, message, vendor_site, waits_for_snapshot
from support.whole_run import good_run, whole_run
from tranrepl.admin.status import status
from tranrepl.errors import ConfigurationError
from tranrepl.jobs.requests import Repair


@pytest.fixture(scope="module")
def vendors(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Yield twenty vendors at both ends, for tests that leave the ends equal and nothing to be delivered."""
    with shared_databases(postgres, "rewritten") as ends:
        yield begun(vendor_site(ends, tmp_path_factory.mktemp("rewritten")))


def test_a_snapshot_that_must_not_touch_its_table_holds_nothing_else_up(ends: Databases, tmp_path: Path) -> None:
    site = begun(vendor_site(ends, tmp_path, pre_creation_cmd="none"))
    site.at_publisher(
        "ALTER TABLE vendor ALTER COLUMN rating TYPE int USING rating * 10", "INSERT INTO other VALUES (2, 'two')"
    )
    for _ in range(2):
        results = whole_run(site)
        assert "holds rows" in message(results["reporting snapshot"])
        assert results["reporting"].error is None
    assert site.at_subscriber("SELECT * FROM other ORDER BY 1") == [(1, "one"), (2, "two")]
    chosen = vendor_site(ends, tmp_path)
    good_run(chosen)
    assert differing_rows(site) == {}


def test_a_later_subscription_gets_only_rows_of_the_log(
    ends: Databases, tmp_path: Path, database: DatabaseFactory
) -> None:
    site = begun(vendor_site(ends, tmp_path, BY_HAND))
    site.at_publisher("ALTER TABLE vendor ALTER COLUMN rating TYPE int USING rating * 10")
    site.read_log().raise_error()
    vendor, other = ({"source": f"public.{it}"} for it in ("vendor", "other"))
    archive = {"name": "archive", "connection": "archive"}
    both = Site(ends, tmp_path / "store", [vendor, other], SparkHere(), [BY_HAND, archive])
    both.connections["archive"] = database("archive")
    assert (
        "article public.vendor of subscription archive is stopped until its rows are validated or copied"
        in both.set_up()
    )
    with pytest.raises(ConfigurationError, match="it was reinitialized, and its stored commands begin after that"):
        both.deliver("archive")
    assert {it.subscription: set(it.stopped_articles) for it in status(both.topology).subscriptions} == {
        "reporting": {"public.vendor"},
        "archive": {"public.vendor"},
    }
    both.validate("archive", repair=Repair.APPLY).raise_error()
    both.deliver("archive").raise_error()
    assert differing_rows(both, both.connections["archive"]) == {}


_COPIED = {
    "vacuum full": ["VACUUM FULL vendor"],
    "cluster": ["CLUSTER vendor USING vendor_pkey"],
    "truncate": ["TRUNCATE vendor", VENDOR_ROWS],
    "add a column that fills itself": ["ALTER TABLE vendor ADD COLUMN token uuid DEFAULT gen_random_uuid()"],
    "drop of a column that is not published": [
        "ALTER TABLE vendor ADD COLUMN unpublished int DEFAULT 1",
        "ALTER TABLE vendor DROP COLUMN unpublished",
        "VACUUM FULL vendor",
    ],
    "reindex and analyze": ["REINDEX TABLE vendor", "VACUUM ANALYZE vendor"],
    "not null, a default": ["ALTER TABLE vendor ALTER COLUMN name SET NOT NULL, ALTER COLUMN rating SET DEFAULT 3"],
}


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("statements", _COPIED.values(), ids=list(_COPIED))
def test_rows_that_are_copied_as_they_are_raise_no_alarm(vendors: Site, statements: Sequence[str]) -> None:
    vendors.at_publisher(*statements, "INSERT INTO vendor SELECT max(id) + 1, 'after', 1, NULL FROM vendor")
    results = good_run(vendors)
    assert list(results) == ["log reader", "reporting"]
    assert results["reporting"].commands > 0
    assert not waits_for_snapshot(vendors)
    # Whatever was done to columns before is known by now.
    vendors.at_publisher("VACUUM FULL vendor")
    assert list(good_run(vendors)) == ["log reader", "reporting"]
    assert differing_rows(vendors) == {}


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


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("idle", [True, False], ids=["with nothing to read", "among changes"])
@pytest.mark.parametrize("statements", _REWRITTEN.values(), ids=list(_REWRITTEN))
def test_a_table_that_was_rewritten_gets_a_snapshot(vendors: Site, statements: str, idle: bool) -> None:
    vendors.at_publisher(*statements.split("; "))
    if not idle:
        vendors.at_publisher(
            "UPDATE vendor SET name = 'after' WHERE id = 3", "INSERT INTO other SELECT max(id) + 1, 'more' FROM other"
        )
    results = good_run(vendors)
    assert any("its table was rewritten" in it for it in results["log reader"].notices)
    assert [it.article for it in results["reporting snapshot"].snapshot] == ["public.vendor"]
    assert differing_rows(vendors) == {}
    assert list(good_run(vendors)) == ["log reader", "reporting"]


def test_a_table_that_was_rewritten_is_noticed_after_setup_too(site: Site) -> None:
    # Whoever sets up first must not make the change forgotten.
    site.at_publisher("ALTER TABLE vendor ALTER COLUMN rating TYPE bigint USING rating * 10")
    site.at_subscriber("ALTER TABLE vendor ALTER COLUMN rating TYPE bigint")
    site.set_up()
    results = good_run(site)
    assert any("its table was rewritten" in it for it in results["log reader"].notices)
    assert "reporting snapshot" in results
    assert differing_rows(site) == {}


def test_a_rewritten_table_stops_where_no_snapshot_is_to_be_taken(ends: Databases, tmp_path: Path) -> None:
    site = begun(vendor_site(ends, tmp_path, on_unknown_rows="stop"))
    site.at_publisher("ALTER TABLE vendor ALTER COLUMN rating TYPE int USING rating * 10")
    for _ in range(2):
        assert "is stopped: its table was rewritten" in message(whole_run(site)["reporting"])
    site.validate(repair=Repair.APPLY).raise_error()
    good_run(site)
    assert differing_rows(site) == {}


def test_tables_of_another_version_are_looked_at_the_same_way(
    databases: DatabasesFactory, debian_postgres: PostgresServer, tmp_path: Path
) -> None:
    site = begun(vendor_site(databases(publisher=debian_postgres), tmp_path))
    site.at_publisher("VACUUM FULL vendor")
    assert list(good_run(site)) == ["log reader", "reporting"]
    site.at_publisher("ALTER TABLE vendor ALTER COLUMN rating TYPE int USING rating * 10")
    assert "reporting snapshot" in good_run(site)
    assert differing_rows(site) == {}
