"""A table or a partition that somebody dropped at a Subscriber: setup makes it again, and sees to its rows."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.equality import differing_rows
from support.partitioned_site import partitioned_site
from support.remedies import RUN, Walk
from support.site import Site
from support.spark_here import SparkHere
from support.subscribers import STATEMENTS
from support.whole_run import good_run
from tranrepl.admin.check import check
from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError


def _site(databases: DatabasesFactory, folder: Path, sync_type: str) -> Site:
    """Return a site of two tables with rows at a PostgreSQL Subscriber and in a file of SQLite."""
    articles = [{"source": f"public.{it}", "destination": f"public.{it}_copy", **STATEMENTS} for it in ("item", "kept")]
    subscriptions = [
        {"name": name, "connection": connection, "sync_type": sync_type}
        for name, connection in (("reporting", "subscriber"), ("archive", "archive"))
    ]
    site = Site(databases(), folder / "store", articles, SparkHere(), subscriptions)
    site.connections["archive"] = Connection("archive", "sqlite", database=str(folder / "archive.db"))
    site.at_publisher(*(f"CREATE TABLE {it} (id int PRIMARY KEY, n int)" for it in ("item", "kept")))
    assert not [it for it in site.set_up() if "missing" in it]
    site.at_publisher("INSERT INTO item VALUES (1, 5)", "INSERT INTO kept VALUES (1, 5)")
    good_run(site)
    return site


def _in_archive(site: Site, statement: str) -> list[tuple[int, int]]:
    with closing(sqlite3.connect(str(site.connections["archive"].database))) as archive:
        return archive.execute(statement).fetchall()


def test_a_table_that_was_dropped_at_a_subscriber_is_copied_again(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases, tmp_path, "automatic")
    site.at_subscriber("DROP TABLE item_copy")
    _in_archive(site, "DROP TABLE item_copy")
    site.at_publisher("INSERT INTO item VALUES (7, 7)", "INSERT INTO kept VALUES (7, 7)")
    assert check(site.topology).warnings == [
        f"article public.item: Subscriber {it}: table public.item_copy is missing, with its rows: "
        "`tranrepl setup FILE` makes it again, then the next run copies them by a snapshot"
        for it in ("reporting", "archive")
    ]
    assert [it for it in site.set_up() if "missing" in it] == [
        f"article public.item is copied to {it} again: table public.item_copy was missing at Subscriber {it}"
        for it in ("reporting", "archive")
    ]
    assert not [it for it in check(site.topology).warnings if "missing" in it]
    copied = good_run(site)
    assert [[it.article for it in copied[f"{name} snapshot"].snapshot] for name in ("reporting", "archive")] == [
        ["public.item"],
        ["public.item"],
    ]
    assert differing_rows(site) == {}
    for it in ("item", "kept"):
        assert _in_archive(site, f"SELECT * FROM {it}_copy ORDER BY id") == [(1, 5), (7, 7)]


def test_without_snapshots_the_rows_of_a_dropped_table_come_by_a_repair(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases, tmp_path, "replication_support_only")
    site.at_subscriber("DROP TABLE item_copy")
    site.at_publisher("INSERT INTO item VALUES (7, 7)")
    (warning,) = check(site.topology).warnings
    assert warning.endswith("makes it again, then the article is stopped until its rows are validated or copied")
    trail = Walk(site).until(RUN)
    assert [it.partition(" FILE")[0] for it in trail] == ["run", "setup", "run", "validate", "run"]
    assert differing_rows(site) == {}


@pytest.mark.parametrize("announced", [False, True], ids=["", "announced"])
def test_a_partition_that_was_dropped_at_a_subscriber_is_copied_again(
    announced: bool, databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = partitioned_site(databases(), tmp_path, partitions="same", replicate_ddl=announced)
    site.at_subscriber("DROP TABLE item_low")
    if not announced:
        site.at_publisher("CREATE TABLE item_500 PARTITION OF item FOR VALUES FROM (500) TO (600)")
    site.read_log().raise_error()
    said = "partition public.item_low of table public.item"
    assert [it for it in check(site.topology).warnings if f"{said} is missing, with its rows" in it]
    waits = "article public.item is copied to reporting again"
    assert site.set_up()[0] == f"{waits}: {said} was missing at Subscriber reporting"
    good_run(site)
    assert differing_rows(site) == {}
    assert site.set_up() == []


_LATER = "CREATE TABLE item_500 PARTITION OF item FOR VALUES FROM (500) TO (600)"
_MOVED_TO_A_PARTITION = (
    "BEGIN; CREATE TEMPORARY TABLE moved AS SELECT * FROM item_rest; TRUNCATE item_rest;"
    "CREATE TABLE item_300 PARTITION OF item FOR VALUES FROM (300) TO (400); INSERT INTO item SELECT * FROM moved;"
    "UPDATE item SET note = 'moved' WHERE id > 350; COMMIT"
)


@pytest.mark.parametrize(
    ("at_publisher", "at_subscriber", "why", "way"),
    [
        (_MOVED_TO_A_PARTITION, "", "item_300 of table public.item cannot be made: rows of it are in the default", 0),
        (
            "INSERT INTO item VALUES (5, 'a', 'new')",
            "DROP TABLE item_low",
            "item_low of table public.item cannot be made: rows of it are in the default partition",
            0,
        ),
        (
            "ALTER TABLE item_low RENAME TO item_first",
            "",
            'item_first of table public.item cannot be made: partition "item_first" would overlap',
            0,
        ),
        (_LATER, "CREATE TABLE item_500 (id int)", "item_500 of table public.item cannot be made: there is", 0),
        (
            "DELETE FROM item WHERE id > 350",
            "ALTER TABLE item DETACH PARTITION item_low",
            "item_low of table public.item cannot be made: there is something else of that name",
            1,
        ),
    ],
    ids=["rows in the default", "dropped, rows in the default", "renamed", "name taken", "detached"],
)
def test_a_partition_that_cannot_be_made_is_told_with_what_lets_it(
    at_publisher: str, at_subscriber: str, why: str, way: int, databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = partitioned_site(databases(), tmp_path, partitions="same")
    site.at_subscriber(*filter(None, [at_subscriber]))
    site.at_publisher(at_publisher)
    if "INSERT INTO item VALUES" in at_publisher:
        good_run(site)
    with pytest.raises(ConfigurationError, match=f"partition public.{why}") as refused:
        site.set_up()
    statements, command = (refused.value.report.remedy or "").split(" then ")
    assert command == "`tranrepl setup FILE`"
    ways = statements.split(" or, where it is this partition, detached: ")
    site.at_subscriber(ways[way].removeprefix("give it another name: "))
    site.set_up()
    good_run(site)
    assert differing_rows(site) == {}
    assert site.set_up() == []


def test_a_delivery_tells_what_lets_an_announced_partition_be_made(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = partitioned_site(databases(), tmp_path, partitions="same", replicate_ddl=True)
    site.at_subscriber("CREATE TABLE item_500 (id int)")
    site.at_publisher(_LATER, "INSERT INTO item VALUES (501, 'a', 'x')")
    site.read_log().raise_error()
    error = site.deliver().error
    assert error is not None
    statement, _, rest = (error.remedy or "").removeprefix("give it another name: ").partition(";")
    assert rest.endswith(" then `tranrepl run FILE`")
    site.at_subscriber(statement)
    good_run(site)
    assert differing_rows(site) == {}
