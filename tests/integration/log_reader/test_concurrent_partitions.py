"""Two transactions that are open at once change partitions of one table: each tells what it sees, and no partition is
lost of which it does not see that it came, none comes back of which it does not see that it went."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import psycopg
import pytest
from psycopg import IsolationLevel

from support.databases import shared_databases
from support.embedded_postgres import PostgresServer
from support.equality import differing_rows
from support.partitioned_site import division, partitioned_site
from support.site import Rows, Site
from support.whole_run import good_run
from tranrepl.jobs.results import JobResult

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


_CASES = {
    "two new ones": (_READ_COMMITTED, _NEW_500, _NEW_600),
    "one new in a savepoint": (_READ_COMMITTED, _NEW_500, _IN_SAVEPOINT),
    "the last one new in a savepoint": (_READ_COMMITTED, _IN_SAVEPOINT, _NEW_500),
    "two dropped": (_READ_COMMITTED, "DROP TABLE item_500_a", "DROP TABLE item_600_a"),
    "new beside dropped": (_READ_COMMITTED, _NEW_500, "DROP TABLE item_600_a"),
    "made and dropped beside new": (_READ_COMMITTED, f"{_NEW_500}; DROP TABLE item_500_b", _NEW_600),
    "dropped beside new": (_READ_COMMITTED, "DROP TABLE item_500_a", _NEW_600),
    "renamed beside new": (_READ_COMMITTED, "ALTER TABLE item_500_a RENAME TO item_500_c", _NEW_600),
    "two renamed": (
        _READ_COMMITTED,
        "ALTER TABLE item_500_a RENAME TO item_500_c",
        "ALTER TABLE item_600_a RENAME TO item_600_c",
    ),
    "detached beside new": (
        _READ_COMMITTED,
        "ALTER TABLE item_500 DETACH PARTITION item_500_a; INSERT INTO item_500_a VALUES (506, 'a', 'aside')",
        _NEW_600,
    ),
    "two new ones at REPEATABLE READ": (_REPEATABLE, _MORE, _NEW),
    "dropped beside new at REPEATABLE READ": (_REPEATABLE, "DROP TABLE item_500_a", _NEW),
    "new beside dropped at REPEATABLE READ": (_REPEATABLE, _NEW, "DROP TABLE item_600_a"),
}
_SAVEPOINT = "a savepoint that is released, and its transaction open"
_TABLES = {name: f"table{n}" for n, name in enumerate([*_CASES, _SAVEPOINT])}


class Happened(NamedTuple):
    """The tables of all cases after their changes, which one run brought over."""

    site: Site
    results: Mapping[str, JobResult]
    differing: Mapping[str, Rows]


@pytest.fixture(scope="module")
def happened(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Happened]:
    with shared_databases(postgres, "concurrent") as databases:
        folder, tables = tmp_path_factory.mktemp("concurrent"), tuple(_TABLES.values())
        site = partitioned_site(databases, folder, replicate_ddl=True, tables=tables, partitions="same")
        for table in tables:
            statements = ("ALTER TABLE item DETACH PARTITION item_rest", "DROP TABLE item_rest", *_TREES)
            site.at_publisher(*(it.replace("item", table) for it in statements))
        good_run(site)
        assert differing_rows(site) == {}
        for name, case in _CASES.items():
            _happen(site, _TABLES[name], *case)
        _happen_in_a_savepoint(site, _TABLES[_SAVEPOINT])
        yield Happened(site, good_run(site), differing_rows(site))


def _happen(site: Site, table: str, level: IsolationLevel, last: str, first: str) -> None:
    last, first = last.replace("item", table), first.replace("item", table)
    with _session(site) as one, _session(site) as other:
        other.isolation_level = level
        other.execute("SELECT 1")
        if level is _READ_COMMITTED:
            other.execute(last.encode())
        one.execute(first.encode())
        one.commit()
        if level is _REPEATABLE:
            other.execute(last.encode())


def _happen_in_a_savepoint(site: Site, table: str) -> None:
    with _session(site) as one, _session(site) as other:
        one.execute(_IN_SAVEPOINT.replace("item", table).encode())
        # The savepoint's number is less than those of all that begin from here on.
        site.at_publisher(f"UPDATE {table} SET note = 'u' WHERE id = 0")
        other.execute(_NEW_500.replace("item", table).encode())
        one.commit()


@pytest.mark.parametrize("case", _TABLES)
def test_partitions_that_a_transaction_does_not_see_stay_as_they_are(happened: Happened, case: str) -> None:
    site, results, differing = happened
    table = _TABLES[case]
    assert list(results) == ["log reader", "reporting"], results["log reader"].notices
    assert differing.get(f"public.{table}") is None
    assert division(site.databases.subscriber, table) == division(site.databases.publisher, table)


def _session(site: Site) -> psycopg.Connection[Any]:
    """Return a session that fails where it would wait, and commits at the end of a block."""
    parameters: dict[str, Any] = dict(site.databases.publisher.libpq_parameters("test"))
    return psycopg.connect(**parameters, options="-c lock_timeout=3s")
