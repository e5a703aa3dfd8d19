"""Snapshots and validations of a partitioned table, while its rows move from partition to partition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conftest import DatabasesFactory
from support.concurrent_writers import concurrent_writers
from support.embedded_postgres import PostgresServer
from support.partitioned_site import partitioned_site
from support.whole_run import good_run

_WRITES = (
    "INSERT INTO item VALUES (%(a)s, 'b', 'made') ON CONFLICT (id, kind) DO UPDATE SET note = item.note || '.'",
    "UPDATE item SET note = note || '!' WHERE id = %(a)s",
    "UPDATE item SET kind = 'a' WHERE id = %(a)s AND NOT EXISTS (SELECT FROM item WHERE id = %(a)s AND kind = 'a')",
    (
        "UPDATE item SET id = (id + 102) %% 400 WHERE id = %(a)s AND kind <> 'a' "
        "AND NOT EXISTS (SELECT FROM item o WHERE o.id = (%(a)s + 102) %% 400)"
    ),
    "DELETE FROM item WHERE id = %(a)s",
)
_FULL = "ALTER TABLE {} REPLICA IDENTITY FULL"
_OF_PARTITIONS = (
    (
        "TRUNCATE item_deep_a",
        "ALTER TABLE item DETACH PARTITION item_high",
        "CREATE TABLE item_900 PARTITION OF item FOR VALUES FROM (900) TO (1000)",
        _FULL.format("item_900"),
    ),
    (
        "CREATE TABLE item_600 (note text, id int NOT NULL, kind text NOT NULL)",
        "INSERT INTO item_600 SELECT 'attached', n, 'b' FROM generate_series(600, 609) n",
        _FULL.format("item_600"),
        "ALTER TABLE item ATTACH PARTITION item_600 FOR VALUES FROM (600) TO (700)",
    ),
    (
        "UPDATE item SET note = 'altered' WHERE id BETWEEN 605 AND 612",
        "DROP TABLE item_low",
        "BEGIN; LOCK TABLE item; TRUNCATE item_600, item_rest; COMMIT",
    ),
)
"""What comes and goes with a whole partition; those that the writers fill have rows. Two at once lock the root first,
else a writer that holds one and waits for the other is a deadlock."""


@pytest.mark.parametrize(
    ("name", "announced"), [("postgres", True), pytest.param("debian_postgres", False, marks=pytest.mark.slow)]
)
def test_validation_finds_nothing_and_a_snapshot_misses_nothing_under_load(
    request: pytest.FixtureRequest, databases: DatabasesFactory, tmp_path: Path, name: str, announced: bool
) -> None:
    server: PostgresServer = request.getfixturevalue(name)
    filtered: dict[str, Any] = {"filter": "note <> 'row 10' AND item.id <> 20", "upd_cmd": "XCALL"}
    site = partitioned_site(
        databases(publisher=server), tmp_path, replicate_ddl=announced, partitions="same", **filtered
    )
    with concurrent_writers(site, _WRITES, ids=200) as written:
        for _ in range(2):
            before = len(written)
            result = site.validate()
            assert result.error is None, result
            assert len(written) > before
        for statements in _OF_PARTITIONS:
            before = len(written)
            site.at_publisher(*statements)
            good_run(site)
            result = site.validate()
            assert result.error is None, (statements, result)
            assert len(written) > before
    good_run(site)
    result = site.validate()
    assert result.error is None, result
