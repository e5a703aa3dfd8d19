"""Partitions of a published table that come and go follow at their place, where event triggers announce them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.databases import Databases, shared_databases
from support.embedded_postgres import PostgresServer
from support.equality import differing_rows
from support.partitioned_site import (
    MADE_AGAIN,
    division,
    partitioned_site,
    run_with_snapshot,
    run_with_snapshots,
    run_without_snapshot,
)
from support.site import Site
from support.whole_run import good_run
from tranrepl.errors import TransientError


@pytest.fixture(scope="module", params=["same-postgres", pytest.param("none-debian_postgres", marks=pytest.mark.slow)])
def items(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Yield the table at both ends, partitioned alike or not, for tests that leave them equal and nothing to be
    delivered.
    """
    partitions, server = request.param.split("-")
    with shared_databases(request.getfixturevalue(server), "announced") as ends:
        yield partitioned_site(ends, tmp_path_factory.mktemp("announced"), replicate_ddl=True, partitions=partitions)


def _is_divided(site: Site) -> bool:
    return site.publication.articles[0].partitions == "same"


def _follow(site: Site) -> None:
    """Bring the changes over by the log alone; a table that is partitioned alike stays so."""
    run_without_snapshot(site)
    if _is_divided(site):
        assert division(site.databases.subscriber) == division(site.databases.publisher)


_MADE = (
    "CREATE TABLE item_500 PARTITION OF item FOR VALUES FROM (500) TO (600) PARTITION BY LIST (kind)",
    "CREATE TABLE item_500_a PARTITION OF item_500 FOR VALUES IN ('a')",
    "CREATE TABLE item_500_rest (note text, kind text NOT NULL, id int NOT NULL)",
    "ALTER TABLE item_500 ATTACH PARTITION item_500_rest DEFAULT",
    "INSERT INTO item SELECT n, CASE n % 2 WHEN 0 THEN 'a' ELSE 'b' END, 'new' FROM generate_series(500, 520) n",
    "UPDATE item SET id = id + 1, kind = 'c' WHERE id = 510",
)
_HISTORIES = {
    "new": _MADE,
    "made and dropped": (*_MADE, "DELETE FROM item WHERE id = 505", "DROP TABLE item_500"),
    "detached with rows": (
        "INSERT INTO item VALUES (7, 'a', 'x')",
        "ALTER TABLE item DETACH PARTITION item_low",
        "INSERT INTO item VALUES (7, 'a', 'in the default partition')",
    ),
    "one below another": ("DROP TABLE item_deep_a", "INSERT INTO item VALUES (203, 'a', 'in the default partition')"),
    "default": ("INSERT INTO item VALUES (1003, 'a', 'x')", "ALTER TABLE item DETACH PARTITION item_rest"),
    "truncate of one": (
        "INSERT INTO item VALUES (205, 'a', 'x')",
        "TRUNCATE item_deep_a",
        "INSERT INTO item VALUES (204, 'a', 'x')",
    ),
    "truncate of a branch and of the default": ("TRUNCATE item_deep, item_rest", "UPDATE item SET note = 'y'"),
    "truncate of all before one more": ("TRUNCATE item", *_MADE),
    "renamed": (
        "ALTER TABLE item_low RENAME TO item_old",
        "CREATE TABLE item_low PARTITION OF item FOR VALUES FROM (-100) TO (0)",
        "INSERT INTO item VALUES (-5, 'a', 'x'), (5, 'c', 'y')",
    ),
    "in other schemas": (
        "CREATE SCHEMA parts",
        "CREATE TABLE parts.item_600 PARTITION OF item FOR VALUES FROM (600) TO (700)",
        "INSERT INTO item VALUES (600, 'a', 'x')",
        "ALTER SCHEMA parts RENAME TO pieces",
        "CREATE TABLE pieces.item_700 PARTITION OF item FOR VALUES FROM (700) TO (800)",
        "INSERT INTO item VALUES (601, 'a', 'x'), (700, 'a', 'x')",
    ),
    "divided anew": (
        "ALTER TABLE item DETACH PARTITION item_deep",
        "CREATE TABLE item_deeper PARTITION OF item FOR VALUES FROM (200) TO (300)",
        "INSERT INTO item SELECT id, kind, note FROM item_deep WHERE id < 250",
        "DROP TABLE item_deep",
    ),
}


@pytest.mark.slow_after(4)
@pytest.mark.parametrize("statements", _HISTORIES.values(), ids=list(_HISTORIES))
def test_a_partition_comes_and_goes_with_its_rows(items: Site, statements: Sequence[str]) -> None:
    items.at_publisher(*MADE_AGAIN)
    _follow(items)
    # One transaction each, or one for all.
    items.at_publisher(*(statements if _is_divided(items) else ["BEGIN; " + "; ".join(statements) + "; COMMIT"]))
    _follow(items)
    items.at_publisher("UPDATE item SET note = note || ' after'", "DELETE FROM item WHERE id % 40 = 0")
    _follow(items)


def test_a_partition_with_rows_of_its_own_reinitializes(items: Site) -> None:
    items.at_publisher(
        *MADE_AGAIN,
        "CREATE TABLE item_700 (note text, kind text NOT NULL, id int NOT NULL)",
        "INSERT INTO item_700 VALUES ('brought along', 'a', 700)",
        "ALTER TABLE item ATTACH PARTITION item_700 FOR VALUES FROM (700) TO (800)",
        "INSERT INTO item VALUES (701, 'a', 'later')",
    )
    assert "partition public.item_700 was attached with rows of its own" in run_with_snapshot(items)
    items.at_publisher("UPDATE item SET note = 'after'", "DROP TABLE item_700")
    _follow(items)


def test_a_partition_that_is_not_logged_for_a_while_reinitializes(items: Site) -> None:
    items.at_publisher(
        *MADE_AGAIN,
        "ALTER TABLE item_low SET UNLOGGED",
        "INSERT INTO item VALUES (41, 'a', 'not in the log')",
        "ALTER TABLE item_low SET LOGGED",
    )
    assert "a partition was made unlogged, or logged again" in run_with_snapshot(items)
    items.at_publisher("UPDATE item SET note = 'after'")
    _follow(items)


def test_a_partition_that_is_detached_concurrently_goes_with_its_rows(items: Site) -> None:
    items.at_publisher(
        *MADE_AGAIN,
        "DROP TABLE item_rest",
        "ALTER TABLE item DETACH PARTITION item_low CONCURRENTLY",
        "UPDATE item_low SET note = 'elsewhere'",
    )
    _follow(items)


def test_a_snapshot_waits_until_a_new_partition_is_registered(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _divided(databases(), tmp_path)
    # The way of a retype that rewrites the table: the article waits for a snapshot, and its changes are registered.
    site.at_publisher("ALTER TABLE item ALTER COLUMN note TYPE varchar(99) USING note || '!'")
    site.read_log().raise_error()
    site.at_publisher(
        "DROP TABLE item_rest",
        "CREATE TABLE item_500 PARTITION OF item FOR VALUES FROM (500) TO (600)",
        "INSERT INTO item VALUES (500, 'a', 'x')",
    )
    with pytest.raises(TransientError, match=re.escape("partition public.item_500 is not registered yet")):
        site.take_snapshot().raise_error()
    site.read_log().raise_error()
    site.take_snapshot().raise_error()
    assert division(site.databases.subscriber) == division(site.databases.publisher)
    run_without_snapshot(site)


_COLUMNS = """SELECT column_name, data_type, numeric_scale FROM information_schema.columns
WHERE table_name = 'item' ORDER BY column_name"""
_ALTERED = (
    "ALTER TABLE item ADD COLUMN price numeric(8, 2) NOT NULL DEFAULT 1.5, ADD COLUMN spare timestamptz DEFAULT now()",
    "INSERT INTO item (id, kind, note, price) VALUES (8, 'c', 'priced', 2), (108, 'c', 'priced', 2)",
    "ALTER TABLE item RENAME COLUMN note TO remark",
    "UPDATE item SET remark = remark || '!', price = price + 1 WHERE id % 20 = 0",
    "ALTER TABLE item RENAME COLUMN id TO number",
    "TRUNCATE item_deep_a",
    "ALTER TABLE item ALTER COLUMN price TYPE numeric(12, 2)",
    "DROP TABLE item_deep",
    "CREATE TABLE item_200 (spare timestamptz, remark text, number int NOT NULL, kind text NOT NULL)",
    "ALTER TABLE item_200 ADD COLUMN price numeric(12, 2) NOT NULL DEFAULT 1.5",
    "ALTER TABLE item ATTACH PARTITION item_200 FOR VALUES FROM (200) TO (300)",
    "INSERT INTO item (number, kind, remark) VALUES (201, 'a', 'anew')",
    "UPDATE item SET number = number + 101 WHERE number IN (8, 201)",
    "ALTER TABLE item DROP COLUMN spare",
    "DELETE FROM item WHERE number % 50 = 0",
)
_REWRITTEN = (
    "ALTER TABLE item ADD COLUMN luck double precision DEFAULT random()",
    "INSERT INTO item (number, kind) VALUES (202, 'b')",
    "ALTER TABLE item ALTER COLUMN luck TYPE text USING luck || '!'",
)


def _divided(databases: Databases, folder: Path) -> Site:
    return partitioned_site(databases, folder, replicate_ddl=True, partitions="same")


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("together", [False, True], ids=["one by one", "together"])
def test_columns_follow_in_partitions_of_any_column_order(
    databases: DatabasesFactory, tmp_path: Path, debian_postgres: PostgresServer, together: bool
) -> None:
    site = _divided(databases(publisher=debian_postgres if together else None), tmp_path)
    site.at_publisher(*(["BEGIN; " + "; ".join(_ALTERED) + "; COMMIT"] if together else _ALTERED))
    run_without_snapshot(site)
    assert site.at_subscriber(_COLUMNS) == site.at_publisher(_COLUMNS)
    assert division(site.databases.subscriber) == division(site.databases.publisher)
    site.at_publisher(*_REWRITTEN)
    assert "values that the log does not have" in run_with_snapshots(site)[0]
    assert site.at_subscriber(_COLUMNS) == site.at_publisher(_COLUMNS)


def test_rows_stay_where_the_article_deletes_none(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = partitioned_site(databases(), tmp_path, replicate_ddl=True, del_cmd="NONE", truncate="ignore")
    before = site.at_subscriber("SELECT * FROM item ORDER BY 1, 2")
    site.at_publisher("TRUNCATE item_low", "DROP TABLE item_deep", "INSERT INTO item VALUES (1000, 'a', 'x')")
    (notice,) = good_run(site)["log reader"].notices
    assert "partition public.item_deep was detached or dropped: its rows stay" in notice
    assert site.at_subscriber("SELECT * FROM item ORDER BY 1, 2") == [*before, (1000, "a", "x")]


def test_limits_that_another_server_may_compare_otherwise_reinitialize(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = partitioned_site(databases(), tmp_path, replicate_ddl=True, partitions="none")
    site.at_publisher(
        "CREATE TABLE item_500 PARTITION OF item FOR VALUES FROM (500) TO (600) PARTITION BY RANGE (kind)",
        "CREATE TABLE item_500_a PARTITION OF item_500 FOR VALUES FROM ('a') TO ('b')",
        "CREATE TABLE item_500_b PARTITION OF item_500 FOR VALUES FROM ('b') TO ('d')",
        "INSERT INTO item VALUES (501, 'a', 'x'), (501, 'b', 'y'), (502, 'c', 'z')",
    )
    run_without_snapshot(site)
    site.at_publisher("TRUNCATE item_500_a", "INSERT INTO item VALUES (503, 'a', 'w')")
    results = good_run(site)
    told = [it for result in results.values() for it in result.notices]
    assert any("column kind may be compared otherwise at another server" in it for it in told), results
    good_run(site)
    assert differing_rows(site) == {}
