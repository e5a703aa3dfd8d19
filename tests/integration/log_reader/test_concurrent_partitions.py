"""Two transactions that are open at once change partitions of one table: each tells what it sees, and no partition is
lost of which it does not see that it came, none comes back of which it does not see that it went."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel

from conftest import DatabasesFactory
from support.equality import differing_rows
from support.partitioned_site import division, partitioned_site
from support.site import Site
from support.whole_run import good_run

_TREES = (
    "CREATE TABLE item_500 PARTITION OF item FOR VALUES FROM (500) TO (600) PARTITION BY LIST (kind)",
    "CREATE TABLE item_500_a PARTITION OF item_500 FOR VALUES IN ('a')",
    "CREATE TABLE item_600 PARTITION OF item FOR VALUES FROM (600) TO (700) PARTITION BY LIST (kind)",
    "CREATE TABLE item_600_a PARTITION OF item_600 FOR VALUES IN ('a')",
    "INSERT INTO item VALUES (505, 'a', 'first'), (605, 'a', 'second')",
)
_NEW_500 = "CREATE TABLE item_500_b PARTITION OF item_500 FOR VALUES IN ('b'); INSERT INTO item VALUES (510, 'b', 'x')"
_NEW_600 = "CREATE TABLE item_600_b PARTITION OF item_600 FOR VALUES IN ('b'); INSERT INTO item VALUES (610, 'b', 'y')"
_NEW = "CREATE TABLE item_700 PARTITION OF item FOR VALUES FROM (700) TO (800); INSERT INTO item VALUES (710, 'b', 'z')"
_IN_SAVEPOINT = f"SAVEPOINT a; {_NEW_600}; RELEASE a; UPDATE item SET note = 'w' WHERE id = 605"
_MORE = (
    "CREATE TABLE item_800 PARTITION OF item FOR VALUES FROM (800) TO (900); INSERT INTO item VALUES (810, 'b', 'v')"
)
_READ_COMMITTED, _REPEATABLE = IsolationLevel.READ_COMMITTED, IsolationLevel.REPEATABLE_READ


@pytest.fixture
def items(databases: DatabasesFactory, tmp_path: Path) -> Site:
    site = partitioned_site(databases(), tmp_path, replicate_ddl=True, partitions="same")
    site.at_publisher("ALTER TABLE item DETACH PARTITION item_rest", "DROP TABLE item_rest", *_TREES)
    good_run(site)
    assert differing_rows(site) == {}
    return site


@pytest.mark.parametrize(
    ("level", "last", "first"),
    [
        pytest.param(_READ_COMMITTED, _NEW_500, _NEW_600, id="two new ones"),
        pytest.param(_READ_COMMITTED, _NEW_500, _IN_SAVEPOINT, id="one new in a savepoint"),
        pytest.param(_READ_COMMITTED, _IN_SAVEPOINT, _NEW_500, id="the last one new in a savepoint"),
        pytest.param(_READ_COMMITTED, "DROP TABLE item_500_a", "DROP TABLE item_600_a", id="two dropped"),
        pytest.param(_READ_COMMITTED, _NEW_500, "DROP TABLE item_600_a", id="new beside dropped"),
        pytest.param(_READ_COMMITTED, f"{_NEW_500}; DROP TABLE item_500_b", _NEW_600, id="made and dropped beside new"),
        pytest.param(_READ_COMMITTED, "DROP TABLE item_500_a", _NEW_600, id="dropped beside new"),
        pytest.param(_READ_COMMITTED, "ALTER TABLE item_500_a RENAME TO item_500_c", _NEW_600, id="renamed beside new"),
        pytest.param(
            _READ_COMMITTED,
            "ALTER TABLE item_500_a RENAME TO item_500_c",
            "ALTER TABLE item_600_a RENAME TO item_600_c",
            id="two renamed",
        ),
        pytest.param(
            _READ_COMMITTED,
            "ALTER TABLE item_500 DETACH PARTITION item_500_a; INSERT INTO item_500_a VALUES (506, 'a', 'aside')",
            _NEW_600,
            id="detached beside new",
        ),
        pytest.param(_REPEATABLE, _MORE, _NEW, id="two new ones at REPEATABLE READ"),
        pytest.param(_REPEATABLE, "DROP TABLE item_500_a", _NEW, id="dropped beside new at REPEATABLE READ"),
        pytest.param(_REPEATABLE, _NEW, "DROP TABLE item_600_a", id="new beside dropped at REPEATABLE READ"),
    ],
)
def test_partitions_that_a_transaction_does_not_see_stay_as_they_are(
    items: Site, level: IsolationLevel, last: str, first: str
) -> None:
    with _session(items) as one, _session(items) as other:
        other.isolation_level = level
        other.execute("SELECT 1")
        if level is _READ_COMMITTED:
            other.execute(last.encode())
        one.execute(first.encode())
        one.commit()
        if level is _REPEATABLE:
            other.execute(last.encode())
    _assert_equal(items)


def test_a_partition_of_a_savepoint_is_not_seen_before_its_transaction_ends(items: Site) -> None:
    with _session(items) as one, _session(items) as other:
        one.execute(_IN_SAVEPOINT.encode())
        # The savepoint's number is less than those of all that begin from here on.
        items.at_publisher("UPDATE item SET note = 'u' WHERE id = 0")
        other.execute(_NEW_500.encode())
        one.commit()
    _assert_equal(items)


def _session(site: Site) -> psycopg.Connection[Any]:
    """Return a session that fails where it would wait, and commits at the end of a block."""
    parameters: dict[str, Any] = dict(site.databases.publisher.libpq_parameters("test"))
    return psycopg.connect(**parameters, options="-c lock_timeout=3s")


def _assert_equal(site: Site) -> None:
    results = good_run(site)
    assert list(results) == ["log reader", "reporting"], results["log reader"].notices
    assert differing_rows(site) == {}
    assert division(site.databases.subscriber) == division(site.databases.publisher)
