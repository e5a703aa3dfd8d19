"""A continuous log reader, between writers and what disturbs it at random: nothing is lost or doubled."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import psycopg
import pytest

from conftest import DatabasesFactory
from support.continuous_reader import read_continuously
from support.observed import (
    AUDIT,
    ITEM,
    assert_each_change_is_stored_once,
    assert_each_change_was_made_once_in_any_order,
)
from support.site import Site, execute
from support.spark_here import SparkHere
from tranrepl.errors import ErrorKind, ReplicationError

pytestmark = [pytest.mark.new_sessions, pytest.mark.slow]

_SECONDS = float(os.environ.get("TRANREPL_CHAOS_SECONDS", "15"))
_TERMINATED = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND"


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    site = Site(databases(), tmp_path / "store", ["public.item"], SparkHere(), polling_interval=0.1, replicate_ddl=True)
    site.at_publisher(ITEM)
    site.set_up()
    site.at_publisher(AUDIT)
    site.at_subscriber(AUDIT)
    return site


def _write(site: Site, seed: int, over: Event) -> None:
    chance = random.Random(seed)
    with psycopg.connect(**site.databases.publisher.libpq_parameters("writer"), autocommit=True) as session:  # type: ignore[arg-type]
        while not over.is_set():
            first = 10 * chance.randrange(50) + seed
            count = chance.choice([1, 3, 200])
            rows = (
                f"SELECT {first} + 1000 * n, {seed}, repeat('x', {chance.randrange(2000)}) "
                f"FROM generate_series(1, {count}) n"
            )
            session.execute(
                chance.choice(
                    [
                        f"INSERT INTO item {rows} ON CONFLICT (id) DO UPDATE SET note = item.note || 'y'",
                        f"UPDATE item SET note = 'z{chance.random()}' WHERE id % 10 = {seed} AND random() < 0.1",
                        f"DELETE FROM item WHERE id % 10 = {seed} AND random() < 0.3",
                    ]
                )
            )
            time.sleep(chance.choice([0, 0.001, 0.02, 0.2]))


def _disturb(site: Site, chance: random.Random) -> None:
    disturbances: list[Callable[[], object]] = [
        lambda: site.at_publisher(f"{_TERMINATED} application_name = 'tranrepl log reader'"),
        lambda: execute(site.databases.distribution, f"{_TERMINATED} application_name LIKE 'tranrepl%'"),
        lambda: site.read_log(),
        lambda: site.at_publisher(
            "INSERT INTO item SELECT 9 + 10 * n, 9, repeat('l', 3000) FROM generate_series(1000000, 1003000) n "
            "ON CONFLICT DO NOTHING"
        ),
        lambda: site.at_publisher(f"ALTER TABLE item ALTER COLUMN note SET DEFAULT '{chance.random()}'"),
        lambda: site.set_up(),
        lambda: site.deliver(),
    ]
    try:
        chance.choice(disturbances)()
    except ReplicationError as error:
        if error.kind not in (ErrorKind.TRANSIENT, ErrorKind.FENCED):
            raise


def test_nothing_is_lost_doubled_or_reordered_whatever_disturbs_it(site: Site) -> None:
    chance, over, ends = random.Random(os.environ.get("TRANREPL_FUZZ_SEED", "1")), Event(), list[str]()

    def read() -> None:
        while not over.is_set():
            try:
                error = read_continuously(site, chance.choice([1.0, 3.0])).error
            except ReplicationError as problem:
                error = problem.report
            if error is not None:
                ends.append(f"{error.kind}: {error.message}")

    threads = [Thread(target=_write, args=(site, number, over)) for number in (1, 2)] + [Thread(target=read)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + _SECONDS
    while time.monotonic() < until:
        time.sleep(chance.random())
        _disturb(site, chance)
    over.set()
    for thread in threads:
        thread.join()
    assert [it for it in ends if not it.startswith((ErrorKind.TRANSIENT, ErrorKind.FENCED))] == []
    site.read_log().raise_error()
    assert_each_change_is_stored_once(site)
    site.deliver().raise_error()
    assert site.differences() == []
    assert_each_change_was_made_once_in_any_order(site)
