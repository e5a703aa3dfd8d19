"""Random histories of a partitioned table, of rows and of whole partitions, with kills and streams: both ends are equal
after every run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from support.databases import shared_databases
from support.equality import differing_rows
from support.killed_jobs import (
    COMMIT_FAILPOINTS,
    READER_FAILPOINTS,
    SNAPSHOT_FAILPOINTS,
    STREAM_FAILPOINTS,
    SiteJob,
    random_failpoint,
    run_killed,
)
from support.partitioned_site import AUTOMATIC, division, partitioned_site
from support.site import Site
from support.thread_streams import streams_as_threads
from support.whole_run import good_run
from tranrepl.settings.publication import Partitions

_EXAMPLES = int(os.environ.get("TRANREPL_FUZZ_EXAMPLES", "4"))
_SLOTS = range(3, 9)
"""Partitions that come and go, each for a hundred ids."""


_KINDS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "unannounced, 18": ("postgres", {}),
    "unannounced, 15": ("debian_postgres", {}),
    "announced, one table": ("debian_postgres", {"replicate_ddl": True}),
    "announced, divided alike": (
        "postgres",
        {"replicate_ddl": True, "partitions": "same", "subscription": {**AUTOMATIC, "subscription_streams": 2}},
    ),
}
_JOBS = {
    "log reader": READER_FAILPOINTS,
    "delivery": (*COMMIT_FAILPOINTS, *STREAM_FAILPOINTS),
    "snapshot": SNAPSHOT_FAILPOINTS,
    "reinitialization": SNAPSHOT_FAILPOINTS,
}


@pytest.fixture(scope="module", params=_KINDS.values(), ids=list(_KINDS))
def items(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Yield the table at both ends. Event triggers announce schema changes, or nothing does."""
    server, settings = request.param
    with shared_databases(request.getfixturevalue(server), "histories") as ends:
        yield partitioned_site(ends, tmp_path_factory.mktemp("histories"), **settings)


def _insert(random: Random) -> str:
    ids = ", ".join(f"({random.randrange(1000)}, '{random.choice('abc')}', 'new')" for _ in range(5))
    return f"INSERT INTO item VALUES {ids} ON CONFLICT DO NOTHING"


def _update(random: Random) -> str:
    first = random.randrange(1000)
    return f"UPDATE item SET note = note || '.' WHERE id BETWEEN {first} AND {first + 100}"


def _move(random: Random) -> str:
    """Move a row, mostly to another partition; it fails where the row is there already, or no partition takes it."""
    first = random.randrange(1000)
    return f"UPDATE item SET id = (id + {random.randrange(1000)}) % 1000 WHERE id BETWEEN {first} AND {first + 20}"


def _change_key(random: Random) -> str:
    return f"UPDATE item SET kind = '{random.choice('abc')}' WHERE id % 7 = {random.randrange(7)} AND kind = 'b'"


def _delete(random: Random) -> str:
    first = random.randrange(1000)
    return f"DELETE FROM item WHERE id BETWEEN {first} AND {first + 30}"


def _truncate(random: Random) -> str:
    return f"TRUNCATE {random.choice(['item', 'item_low', 'item_deep', 'item_deep_a', _part(random)])}"


def _create(random: Random) -> str:
    slot = random.choice(_SLOTS)
    below = random.choice(["", " PARTITION BY LIST (kind)"])
    more = f"; CREATE TABLE part_{slot}_all PARTITION OF part_{slot} DEFAULT" if below else ""
    return f"CREATE TABLE part_{slot} PARTITION OF item {_bound(slot)}{below}{more}"


def _attach(random: Random) -> str:
    """Attach a new partition, with or without rows, or one that was detached."""
    slot = random.choice(_SLOTS)
    rows = f"INSERT INTO part_{slot} SELECT '!', n, 'a' FROM generate_series({slot * 100}, {slot * 100 + 9}) n; "
    made = f"CREATE TABLE part_{slot} (note text, id int NOT NULL, kind text NOT NULL); " + random.choice([rows, ""])
    return f"{random.choice([made, ''])}ALTER TABLE item ATTACH PARTITION part_{slot} {_bound(slot)}"


def _detach(random: Random) -> str:
    return f"ALTER TABLE item DETACH PARTITION {_part(random)}"


def _drop(random: Random) -> str:
    return f"DROP TABLE {_part(random)}"


def _rename(random: Random) -> str:
    return f"ALTER TABLE {_part(random)} RENAME TO {_part(random)}"


def _part(random: Random) -> str:
    return f"part_{random.choice(_SLOTS)}"


def _bound(slot: int) -> str:
    return f"FOR VALUES FROM ({slot * 100}) TO ({slot * 100 + 100})"


_OF_ROWS: list[Callable[[Random], str]] = [_insert, _insert, _update, _move, _change_key, _delete]
_OF_PARTITIONS: list[Callable[[Random], str]] = [_truncate, _create, _attach, _detach, _drop, _rename]


def _transactions(site: Site, random: Random) -> None:
    """Execute some, of several statements each; what fails is rolled back, in some of them to a savepoint."""
    with psycopg.connect(**site.databases.publisher.libpq_parameters("test"), autocommit=True) as session:  # type: ignore[arg-type]
        for _ in range(random.randrange(1, 6)):
            try:
                with session.transaction():
                    for _ in range(random.randrange(1, 5)):
                        _execute(session, random)
            except psycopg.Error:
                pass


def _execute(session: psycopg.Connection[tuple[object, ...]], random: Random) -> None:
    statement = random.choice(_OF_ROWS if random.random() < 0.7 else _OF_PARTITIONS)(random)
    if random.random() < 0.3:
        session.execute(statement.encode())
        return
    try:
        with session.transaction():
            session.execute(statement.encode())
    except psycopg.Error:
        pass


def _kill_a_job(site: Site, random: Random) -> None:
    """Kill one of a run's jobs, or none; those before it are done."""
    kind = random.choice(list(_JOBS))
    killed_at = random_failpoint(random, _JOBS[kind], 0.4)
    if killed_at is None:
        return
    if kind != "log reader":
        site.read_log()
    run_killed(SiteJob(kind, "reporting"), site, killed_at)


@pytest.mark.slow_after(2)
@settings(max_examples=_EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.integers(min_value=0, max_value=2**32))
def test_both_ends_are_equal_after_any_history_of_partitions(items: Site, seed: int) -> None:
    # What the server refuses, as a partition that is there already, ends a statement early.
    random = Random(seed)
    for _ in range(random.randrange(1, 4)):
        _transactions(items, random)
        _kill_a_job(items, random)
        with streams_as_threads():
            good_run(items)
        assert differing_rows(items) == {}
        if items.publication.articles[0].partitions is Partitions.SAME:
            assert division(items.databases.subscriber) == division(items.databases.publisher)
    validated = items.validate()
    validated.raise_error()
