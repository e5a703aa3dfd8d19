"""Every kind of article may be of a partitioned table; and rights are checked on each partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from conftest import DatabasesFactory
from support.databases import Databases
from support.equality import differing_rows
from support.least_rights import with_login
from support.partitioned_site import AUTOMATIC, ITEM, ROWS, division
from support.site import Rows, Site, execute
from support.spark_here import SparkHere
from support.whole_run import good_run, whole_run
from tranrepl.admin.check import check
from tranrepl.connections import Connection
from tranrepl.publisher.postgres.rights import OR_GRANT

_ARTICLES: dict[str, tuple[Mapping[str, Any], tuple[str, ...]]] = {
    "row filter": ({"filter": "note <> 'row 10' AND item.id % 20 = 0", "upd_cmd": "XCALL"}, ()),
    "some columns, by statements": (
        {"columns": ["id", "kind"], "ins_cmd": "SQL", "upd_cmd": "SQL", "del_cmd": "SQL"},
        (),
    ),
    "whole old rows": ({"del_cmd": "XCALL"}, ()),
    "deferred updates": ({"update_policy": "always_pairs"}, ()),
}
_CHANGES = (
    "INSERT INTO item VALUES (1, 'a', 'low'), (101, 'b', 'high'), (201, 'a', 'deep'), (1000, 'b', NULL)",
    "UPDATE item SET note = note || ' more' WHERE id < 250",
    """BEGIN; UPDATE item SET id = id + 1000 WHERE id IN (20, 120, 220);
    UPDATE item SET id = CASE id WHEN 1020 THEN 120 WHEN 1120 THEN 220 ELSE 20 END WHERE id IN (1020, 1120, 1220);
    COMMIT""",
    "CREATE TABLE item_500 (note text, kind text NOT NULL, id int NOT NULL)",
    "ALTER TABLE item ATTACH PARTITION item_500 FOR VALUES FROM (500) TO (600)",
    "UPDATE item SET id = id + 500 WHERE id IN (60, 61, 80)",
    "TRUNCATE item_deep_rest",
    "UPDATE item SET kind = 'c' WHERE id IN (210, 301, 560)",
    "ALTER TABLE item DETACH PARTITION item_high",
    "INSERT INTO item SELECT id, kind, note FROM item_high WHERE id < 150",
    "DROP TABLE item_500",
    "UPDATE item SET note = 'row 10' WHERE id IN (40, 100)",
    "DELETE FROM item WHERE id IN (0, 120, 220, 320)",
)


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(("article", "also"), _ARTICLES.values(), ids=list(_ARTICLES))
def test_partitions_follow_whatever_the_article_is(
    databases: DatabasesFactory, tmp_path: Path, article: Mapping[str, Any], also: tuple[str, ...]
) -> None:
    item = {"source": "public.item", "partitions": "same", **article}
    site = Site(databases(), tmp_path / "store", [item], SparkHere(), [AUTOMATIC], replicate_ddl=True)
    site.at_publisher(*ITEM, *also, ROWS)
    site.set_up()
    good_run(site)
    site.at_publisher(*_CHANGES)
    assert list(good_run(site)) == ["log reader", "reporting"]
    result = site.validate()
    assert result.error is None, result
    assert division(site.databases.subscriber) == division(site.databases.publisher)


def test_articles_follow_what_alters_the_tables_above_them(databases: DatabasesFactory, tmp_path: Path) -> None:
    articles = [{"source": f"public.{it}"} for it in ("leaf", "heir")]
    site = Site(databases(), tmp_path / "store", articles, SparkHere(), [AUTOMATIC], replicate_ddl=True)
    site.at_publisher(
        "CREATE TABLE root (id int PRIMARY KEY, note text) PARTITION BY RANGE (id)",
        "CREATE TABLE branch PARTITION OF root FOR VALUES FROM (0) TO (100) PARTITION BY RANGE (id)",
        "CREATE TABLE leaf PARTITION OF branch FOR VALUES FROM (0) TO (50)",
        "CREATE TABLE ancestor (id int, note text)",
        "CREATE TABLE heir (PRIMARY KEY (id)) INHERITS (ancestor)",
        *(f"INSERT INTO {it} VALUES (1, 'a'), (2, 'b')" for it in ("leaf", "heir")),
    )
    site.set_up()
    good_run(site)
    for above, table in (("root", "leaf"), ("ancestor", "heir")):
        site.at_publisher(
            f"ALTER TABLE {above} ADD COLUMN added int DEFAULT 5",
            f"ALTER TABLE {above} RENAME note TO remark",
            f"INSERT INTO {table} VALUES (3, 'c', 6)",
            f"UPDATE {table} SET id = 4 WHERE id = 1",
        )
    good_run(site)
    for table in ("leaf", "heir"):
        rows = f"SELECT id, remark, added FROM {table} ORDER BY id"
        assert site.at_subscriber(rows) == site.at_publisher(rows)


def test_partitions_follow_over_streams(databases: DatabasesFactory, tmp_path: Path, here: SparkHere) -> None:
    subscription = {**AUTOMATIC, "subscription_streams": 2}
    item = {"source": "public.item", "partitions": "same"}
    site = Site(databases(), tmp_path / "store", [item], here, [subscription], replicate_ddl=True)
    site.at_publisher(*ITEM, ROWS)
    site.set_up()
    good_run(site)
    site.at_publisher(*_CHANGES)
    assert list(good_run(site)) == ["log reader", "reporting"]
    assert differing_rows(site) == {}
    assert division(site.databases.subscriber) == division(site.databases.publisher)


def test_a_schema_that_a_new_partition_needs_takes_a_right(databases: DatabasesFactory, tmp_path: Path) -> None:
    owners = databases()
    name, password = f"writer_{uuid4().hex[:8]}", uuid4().hex
    schemas = [f"GRANT CREATE ON SCHEMA public TO {name}", f"CREATE SCHEMA tranrepl AUTHORIZATION {name}"]
    execute(owners.subscriber, f"CREATE ROLE {name} LOGIN PASSWORD '{password}'", *schemas)
    limited = replace(owners, subscriber=with_login(owners.subscriber, name, password))
    item = {"source": "public.item", "partitions": "same"}
    site = Site(limited, tmp_path / "store", [item], SparkHere(), [AUTOMATIC], replicate_ddl=True)
    try:
        site.at_publisher(*ITEM, ROWS)
        site.set_up()
        good_run(site)
        new = "CREATE TABLE parts.item_500 PARTITION OF item FOR VALUES FROM (500) TO (600)"
        site.at_publisher("CREATE SCHEMA parts", new, "INSERT INTO item VALUES (501, 'a', 'x')")
        error = whole_run(site)["reporting"].error
        assert error is not None
        assert error.message.endswith(f"role {name} may not create schema parts")
        assert error.remedy is not None
        execute(owners.subscriber, *error.remedy.splitlines()[1:])
        good_run(site)
        assert division(site.databases.subscriber) == division(site.databases.publisher)
        assert differing_rows(site) == {}
    finally:
        to_owner = f"REASSIGN OWNED BY {name} TO CURRENT_USER"
        execute(owners.subscriber, to_owner, f"DROP OWNED BY {name}", f"DROP ROLE {name}")


@pytest.fixture
def owners(databases: DatabasesFactory) -> Databases:
    return databases()


@pytest.fixture
def reader(owners: Databases, tmp_path: Path) -> Iterator[Site]:
    """Yield the publication of a login that owns none of the tables at the Publisher, and may read none."""
    name, password = f"reader_{uuid4().hex[:8]}", uuid4().hex
    execute(
        owners.publisher,
        f"CREATE ROLE {name} LOGIN REPLICATION PASSWORD '{password}'",
        f"CREATE ROLE {name}_archive",
        *ITEM,
        f"ALTER TABLE item_high OWNER TO {name}_archive",
        ROWS,
    )
    limited = replace(owners, publisher=with_login(owners.publisher, name, password))
    item = {"source": "public.item", "pre_creation_cmd": "truncate", "upd_cmd": "XCALL"}
    yield Site(limited, tmp_path / "store", [item], SparkHere(), [AUTOMATIC], replicate_ddl=True)
    execute(
        owners.publisher,
        f"REASSIGN OWNED BY {name}, {name}_archive TO CURRENT_USER",
        f"DROP OWNED BY {name}, {name}_archive",
        f"DROP ROLE {name}, {name}_archive",
    )


def _let_owner_run(owners: Databases, text: str | None) -> None:
    """Run the statements of a message that are for the owner of the tables."""
    _, *statements = (text or "").partition(OR_GRANT)[0].splitlines()
    execute(owners.publisher, *statements)


def test_a_login_needs_to_read_each_partition_and_owns_none(reader: Site, owners: Databases) -> None:
    checked = check(reader.topology)
    reading, owning = checked.problems
    assert all(f"item_{it}" in (reading.report.remedy or "") for it in ("low", "high", "deep_a", "deep_rest", "rest"))
    _let_owner_run(owners, reading.report.remedy)
    _let_owner_run(owners, owning.report.remedy)
    reader.set_up()
    with reader.topology.publisher("test") as publisher:
        left_to_make = publisher.schema_changes.left_to_make()
    execute(owners.publisher, *left_to_make)
    good_run(reader)

    execute(
        owners.publisher,
        "CREATE TABLE item_500 PARTITION OF item FOR VALUES FROM (500) TO (600)",
        "INSERT INTO item VALUES (500, 'a', 'nobody granted this one')",
        "UPDATE item SET note = 'whole old rows' WHERE id IN (100, 500)",
        "TRUNCATE item_low",
        "DROP TABLE item_high",
    )
    assert list(good_run(reader)) == ["log reader", "reporting"]
    assert _rows(owners.publisher) == _rows(owners.subscriber)

    execute(
        owners.publisher,
        "CREATE TABLE item_700 (LIKE item)",
        "INSERT INTO item_700 VALUES (700, 'a', 'brought along')",
        "ALTER TABLE item ATTACH PARTITION item_700 FOR VALUES FROM (700) TO (800)",
    )
    _grant_what_a_snapshot_lacks(reader, owners)
    assert _rows(owners.publisher) == _rows(owners.subscriber)

    # What nobody announces is looked at, which takes the right to.
    execute(
        owners.publisher,
        "DROP SCHEMA tranrepl CASCADE",
        "CREATE TABLE item_800 (LIKE item)",
        "ALTER TABLE item_800 REPLICA IDENTITY FULL",
        "ALTER TABLE item ATTACH PARTITION item_800 FOR VALUES FROM (800) TO (900)",
        "INSERT INTO item VALUES (800, 'a', 'later')",
    )
    _grant_what_a_snapshot_lacks(reader, owners)
    assert _rows(owners.publisher) == _rows(owners.subscriber)


def _grant_what_a_snapshot_lacks(reader: Site, owners: Databases) -> None:
    refused = whole_run(reader)["reporting snapshot"].error
    assert refused is not None
    assert refused.shown_number == "229 (42501)"
    _let_owner_run(owners, refused.remedy)
    good_run(reader)


def _rows(connection: Connection) -> Rows:
    return execute(connection, "SELECT id, kind, note FROM item ORDER BY 1, 2")
