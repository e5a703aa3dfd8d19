"""A partitioned table is an article like any other: its partitions' rows, and what becomes of whole partitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.databases import shared_databases
from support.embedded_postgres import PostgresServer
from support.partitioned_site import (
    PARTITIONS,
    ROWS,
    partitioned_site,
    run_with_snapshot,
    run_without_snapshot,
)
from support.site import Site
from support.whole_run import good_run
from tranrepl.admin.check import check
from tranrepl.errors import ConfigurationError


@pytest.fixture(scope="module", params=["postgres", "debian_postgres"])
def items(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Yield the table at both ends, for tests that leave them equal and nothing to be delivered."""
    server: PostgresServer = request.getfixturevalue(request.param)
    with shared_databases(server, "partitions") as ends:
        yield partitioned_site(ends, tmp_path_factory.mktemp("partitions"))


def test_every_partition_has_full_old_rows_and_the_publication_names_the_table(items: Site) -> None:
    identities = items.at_publisher("SELECT relname FROM pg_class WHERE relkind = 'r' AND relreplident = 'f'")
    assert {name for (name,) in identities} >= PARTITIONS
    assert items.at_publisher("SELECT prrelid::regclass::text FROM pg_publication_rel") == [("item",)]
    assert items.at_publisher("SELECT pubviaroot FROM pg_publication") == [(False,)]
    assert items.set_up() == []


def test_rows_of_all_partitions_follow_also_those_that_move(items: Site) -> None:
    items.at_publisher(
        "TRUNCATE item",
        ROWS,
        "INSERT INTO item VALUES (1, 'a', 'low'), (101, 'b', 'high'), (201, 'a', 'deep'), (1000, 'b', NULL)",
        "UPDATE item SET note = note || ' more' WHERE id < 250",
        "UPDATE item SET id = id + 100 WHERE id IN (1, 101, 201)",
        "UPDATE item SET kind = 'c' WHERE id IN (210, 301)",
        "DELETE FROM item WHERE id IN (20, 120, 220, 320)",
    )
    run_without_snapshot(items)


def test_a_new_empty_partition_follows_however_it_was_made(items: Site) -> None:
    items.at_publisher(
        "CREATE TABLE item_500 PARTITION OF item FOR VALUES FROM (500) TO (600)",
        "ALTER TABLE item_500 REPLICA IDENTITY FULL",
        "CREATE TABLE item_600 (note text, kind text NOT NULL, id int NOT NULL)",
        "ALTER TABLE item_600 REPLICA IDENTITY FULL",
        "ALTER TABLE item ATTACH PARTITION item_600 FOR VALUES FROM (600) TO (700)",
        "INSERT INTO item SELECT n, 'a', 'new' FROM generate_series(510, 690, 20) n",
        "UPDATE item SET id = id + 105 WHERE id BETWEEN 550 AND 589",
    )
    run_without_snapshot(items)
    items.at_publisher("UPDATE item SET note = 'again' WHERE id > 600", "DELETE FROM item WHERE id = 510")
    run_without_snapshot(items)


def test_a_truncate_of_the_table_is_one_command(items: Site) -> None:
    items.at_publisher("TRUNCATE item", "INSERT INTO item VALUES (1, 'a', 'x'), (205, 'b', 'y')")
    run_without_snapshot(items)


_UNSEEN = {
    "truncate of one": (
        [
            "INSERT INTO item VALUES (203, 'a', 'x')",
            "TRUNCATE item_deep_a",
            "INSERT INTO item VALUES (204, 'a', 'x')",
        ],
        "partition public.item_deep_a was truncated by itself",
    ),
    "attach with rows": (
        [
            "CREATE TABLE item_700 (LIKE item)",
            "INSERT INTO item_700 VALUES (700, 'a', 'brought along')",
            "ALTER TABLE item_700 REPLICA IDENTITY FULL",
            "ALTER TABLE item ATTACH PARTITION item_700 FOR VALUES FROM (700) TO (800)",
            "INSERT INTO item VALUES (701, 'a', 'later')",
        ],
        "a partition with rows of its own was attached, detached or dropped",
    ),
    "detach": (
        ["INSERT INTO item VALUES (7, 'a', 'x')", "ALTER TABLE item DETACH PARTITION item_low"],
        "a partition with rows of its own was attached, detached or dropped",
    ),
    "detach and attach again": (
        [
            "ALTER TABLE item DETACH PARTITION item_deep",
            "UPDATE item_deep SET note = 'meanwhile'",
            "ALTER TABLE item ATTACH PARTITION item_deep FOR VALUES FROM (200) TO (300)",
        ],
        "a partition with rows of its own was attached, detached or dropped",
    ),
    "drop": (
        ["UPDATE item SET note = 'last' WHERE id > 100 AND id < 200", "DROP TABLE item_high"],
        "a partition with rows of its own was attached, detached or dropped",
    ),
    "made and dropped": (
        [
            "CREATE TABLE item_800 PARTITION OF item FOR VALUES FROM (800) TO (900)",
            "INSERT INTO item VALUES (800, 'a', 'x')",
            "DROP TABLE item_800",
        ],
        "partition public.item_800 was made, and detached or dropped, before the log was read",
    ),
    "rewrite": (
        ["ALTER TABLE item ALTER COLUMN note TYPE text USING note || '!'"],
        "its table was rewritten, and the log does not say what its rows are now",
    ),
}


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(("statements", "reason"), _UNSEEN.values(), ids=list(_UNSEEN))
def test_what_the_log_does_not_show_of_a_partition_reinitializes(
    ends: Site, statements: Sequence[str], reason: str
) -> None:
    ends.at_publisher(*statements)
    assert reason in run_with_snapshot(ends)
    ends.at_publisher(
        "UPDATE item SET note = 'after'", "INSERT INTO item VALUES (9, 'c', 'after') ON CONFLICT DO NOTHING"
    )
    run_without_snapshot(ends)


@pytest.fixture(scope="module")
def ends(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with shared_databases(postgres, "whole_partitions") as made:
        yield partitioned_site(made, tmp_path_factory.mktemp("whole_partitions"))


def test_a_partition_without_old_rows_is_told_before_it_matters(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = partitioned_site(databases(), tmp_path, upd_cmd="XCALL")
    site.at_publisher("CREATE TABLE item_500 PARTITION OF item FOR VALUES FROM (500) TO (600)")
    with pytest.raises(ConfigurationError) as told:
        good_run(site)
    lacking = "partition public.item_500: with REPLICA IDENTITY DEFAULT, old rows in the log lack what XCALL needs"
    assert lacking in told.value.message
    assert site.set_up() == ["set REPLICA IDENTITY FULL on table public.item_500"]
    site.at_publisher("INSERT INTO item VALUES (500, 'a', 'x')", "UPDATE item SET note = 'y' WHERE id = 500")
    run_without_snapshot(site)


_REFUSED = {
    "unlogged": ("CREATE UNLOGGED TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (10)", "is not logged"),
}


@pytest.mark.parametrize(("statement", "problem"), _REFUSED.values(), ids=list(_REFUSED))
def test_a_partition_whose_changes_are_not_in_the_log_is_refused(items: Site, statement: str, problem: str) -> None:
    items.at_publisher("CREATE TABLE part (id int PRIMARY KEY) PARTITION BY RANGE (id)", statement)
    wanted = Site(items.databases, items.publication.distributor.store, ["public.item", "public.part"], items.spark)
    messages = [it.message for it in check(wanted.topology).problems]
    assert any("partition public.part_1" in it and problem in it for it in messages), messages
    items.at_publisher("DROP TABLE part")
