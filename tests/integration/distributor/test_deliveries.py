"""What was delivered, minute by minute: added up, thinned with age, and removed with what it is of."""

from __future__ import annotations

import random
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from conftest import DatabasesFactory
from support.observed import ITEM, distribution_rows
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.admin.cleanup import clean_up
from tranrepl.distributor.database import DistributionDatabase
from tranrepl.distributor.teardown import remove_publication, remove_subscription
from tranrepl.model.latency import DeliveredMinute, LatencyByLeg, together

_HOUR = timedelta(hours=1)
_MINUTE = timedelta(minutes=1)
_NAMES = ("reporting", "archive")
_ROWS = """
SELECT subscription, msrepl_deliveries.time, seconds, transactions, commands, undelivered_commands, latency
  FROM msrepl_deliveries JOIN mssubscriptions USING (subscription_id) ORDER BY 1, 2
"""
Rows = list[tuple[Any, ...]]


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    subscriptions = [{"name": it, "connection": "subscriber"} for it in _NAMES]
    store = {"connection": "distribution", "store": str(tmp_path / "store"), "history_retention": 5}
    distributor = {**store, "measurement_retention": 9}
    site = Site(databases(), tmp_path / "store", ["public.item"], SparkHere(), subscriptions, distributor=distributor)
    site.at_publisher(ITEM)
    site.set_up()
    return site


def _delivered(minute: int, chance: random.Random) -> DeliveredMinute:
    commands = chance.randrange(1, 1000)
    buckets = {chance.randrange(200): 1, chance.randrange(200, 257): commands - 1}
    latency = LatencyByLeg(registered=buckets, delivered={3: commands}, overall=buckets, clock_difference=minute)
    return DeliveredMinute(minute=minute, transactions=chance.randrange(9), commands=commands, latency=latency)


def _record(site: Site, subscription: str, delivered: Iterable[DeliveredMinute]) -> None:
    with site.topology.distributor() as database:
        record = database.publications.get(site.publication.publication)
        database.deliveries.record(record, database.subscriptions.get(record, subscription), list(delivered))


def _rows(site: Site) -> Rows:
    return [tuple(row) for row in distribution_rows(site, _ROWS)]


def _thinned(rows: Rows, now: datetime) -> Rows:
    """Return what clean-up is to make of rows."""
    old = (now - 5 * _HOUR).replace(minute=0, second=0, microsecond=0)
    kept = [row for row in rows if row[1] + _MINUTE > now - 9 * _HOUR]
    hours: dict[tuple[str, datetime], Rows] = {}
    for row in kept:
        if row[1] < old:
            hours.setdefault((row[0], row[1].replace(minute=0)), []).append(row)
    added_up: Rows = [
        (
            name,
            hour,
            3600,
            sum(row[3] for row in of_hour),
            sum(row[4] for row in of_hour),
            max((row[5] for row in of_hour if row[5] is not None), default=None),
            together(LatencyByLeg.model_validate(row[6]) for row in of_hour).model_dump(mode="json"),
        )
        for (name, hour), of_hour in hours.items()
    ]
    return sorted([*(row for row in kept if row[1] >= old), *added_up], key=lambda row: row[:2])


def test_old_minutes_are_added_up_to_hours_and_then_removed(site: Site) -> None:
    chance = random.Random(7)
    now = datetime.now(UTC)
    this_minute = int(now.timestamp()) // 60
    for name in _NAMES:
        # At the very border, the clock decides: between here and there it goes on.
        minutes = [it for it in chance.sample(range(2, 11 * 60), 200) if it not in (9 * 60, 9 * 60 + 1)]
        _record(site, name, [_delivered(this_minute - it, chance) for it in minutes])
    distribution_rows(
        site, "UPDATE msrepl_deliveries SET undelivered_commands = commands * 3 WHERE transactions % 2 = 0"
    )
    before = _rows(site)
    expected = _thinned(before, now)
    done = clean_up(site.topology)
    assert _rows(site) == expected
    assert done.delivery_rows == len(before) - len(expected) > 100
    assert {row[2] for row in expected} == {60, 3600}
    assert clean_up(site.topology).delivery_rows == 0
    assert _rows(site) == expected


def test_a_minute_that_comes_late_is_added_to_its_hour(site: Site) -> None:
    chance = random.Random(8)
    hour = int((datetime.now(UTC) - 7 * _HOUR).timestamp()) // 3600 * 60
    for minute in (hour + 5, hour + 9):
        _record(site, "reporting", [_delivered(minute, chance)])
        clean_up(site.topology)
    (row,) = _rows(site)
    assert row[1:3] == (datetime.fromtimestamp(hour * 60, UTC), 3600)
    assert row[4] == LatencyByLeg.model_validate(row[6]).commands


def test_spans_are_found_by_when_they_end(site: Site) -> None:
    chance = random.Random(9)
    minute = int(datetime.now(UTC).timestamp()) // 60
    _record(site, "reporting", [_delivered(minute - it, chance) for it in (0, 1, 2, 7 * 60)])
    clean_up(site.topology)
    begun = [datetime.fromtimestamp((minute - it) * 60, UTC) for it in (2, 1, 0)]
    hour = (begun[2] - 7 * _HOUR).replace(minute=0)
    with site.topology.distributor() as database:
        record = database.publications.get(site.publication.publication)
        subscription = database.subscriptions.get(record, "reporting")

        def since(time: datetime) -> list[datetime]:
            return [it.time for it in database.deliveries.latency_by_leg(record, subscription, time)]

        assert since(hour) == since(hour + 59 * _MINUTE) == [hour, *begun]
        assert since(hour + _HOUR) == begun
        assert since(begun[1]) == begun[1:]
        assert since(begun[1] + _MINUTE / 2) == begun[1:]


def test_several_that_add_to_one_minute_lose_nothing(site: Site) -> None:
    chance = random.Random(10)
    parts = [_delivered(7, chance) for _ in range(24)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda it: _record(site, "reporting", [it]), parts))
    (row,) = _rows(site)
    assert row[3:5] == (sum(it.transactions for it in parts), sum(it.commands for it in parts))
    assert LatencyByLeg.model_validate(row[6]) == together(it.latency for it in parts)


def test_they_go_with_their_subscription_and_publication(site: Site) -> None:
    chance = random.Random(11)
    for name in _NAMES:
        _record(site, name, [_delivered(7, chance)])
    with DistributionDatabase(site.connections["distribution"]) as database:
        record = database.publications.get(site.publication.publication)
        remove_subscription(database, record, "archive")
        assert [row[0] for row in _rows(site)] == ["reporting"]
        remove_publication(database, record)
    assert distribution_rows(site, "SELECT * FROM msrepl_deliveries") == []
