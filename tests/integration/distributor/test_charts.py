"""What the charts of a publication have, held against a calculation from each command."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any

import pytest

from conftest import DatabaseFactory
from support.large_history import Size, make_large_history
from tranrepl.connections import Connection
from tranrepl.distributor.database import DistributionDatabase, PublicationRecord, SubscriptionRecord
from tranrepl.distributor.monitoring import measurements
from tranrepl.distributor.monitoring.charts import Charts, charts
from tranrepl.distributor.monitoring.period import Period
from tranrepl.distributor.monitoring.publication import find_publication
from tranrepl.distributor.store import store_at
from tranrepl.distributor.tables import (
    RunStatus,
    msdistribution_history,
    mslogreader_history,
    msrepl_batches,
    msrepl_deliveries,
)
from tranrepl.model.latency import LatencyByLeg, Leg, quantile

_NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
_MINUTE, _HOUR = timedelta(minutes=1), timedelta(hours=1)
_SUBSCRIPTIONS = (1, 2, 3)
_NAMES = {number: f"shop_00{number}" for number in _SUBSCRIPTIONS}
_ADDED_UP_AFTER = timedelta(hours=30)
"""Minutes that are older were added up to hours."""


@dataclass(slots=True)
class _Seen:
    """What one who watches everything would have written down of a publication."""

    spans: list[tuple[int, datetime, timedelta, int, LatencyByLeg, int | None]] = field(default_factory=list)
    """Subscription, when it began, its length, transactions, latency of its commands, what a run left."""
    stored: list[tuple[datetime, int]] = field(default_factory=list)
    """When how many commands were stored: the place of each is its number."""
    watermarks: dict[int, tuple[datetime, int]] = field(default_factory=dict)
    """The last run of each subscription, and how many of `stored` it had delivered."""


def _latency(chance: random.Random) -> LatencyByLeg:
    buckets = {leg.value: Counter(chance.choices(range(60, 100), k=25)) for leg in Leg}
    return LatencyByLeg.model_validate(buckets)


def _watched(connection: Connection, chance: random.Random) -> _Seen:
    seen = _Seen()
    for number in _SUBSCRIPTIONS[:2]:
        for age in range(0, 40 * 60, chance.randint(3, 11)):
            time = _NOW.replace(second=0) - age * _MINUTE
            if age * _MINUTE < _ADDED_UP_AFTER:
                left = chance.choice((None, chance.randint(0, 90)))
                seen.spans.append((number, time, _MINUTE, chance.randint(0, 9), _latency(chance), left))
        for age in range(30, 40 * 24, chance.randint(1, 5)):
            time = _NOW.replace(minute=0, second=0) - age * _HOUR
            seen.spans.append((number, time, _HOUR, chance.randint(0, 900), _latency(chance), chance.randint(0, 90)))
    # The clock of the database is ahead of ours.
    seen.spans.append((1, _NOW.replace(second=0) + 3 * _MINUTE, _MINUTE, 4, _latency(chance), None))
    times = sorted(_NOW - timedelta(minutes=chance.uniform(0, 29 * 60)) for _ in range(400))
    seen.stored = [(time, chance.randint(1, 50)) for time in times]
    for number in _SUBSCRIPTIONS[:2]:
        ended = _NOW - timedelta(minutes=chance.uniform(0, 300))
        seen.watermarks[number] = (ended, bisect_left(times, ended) - chance.randint(0, 4))
    _write(connection, seen)
    return seen


def _write(connection: Connection, seen: _Seen) -> None:
    with DistributionDatabase(connection) as database, database.transaction() as session:
        for place, (time, commands) in enumerate(seen.stored, 1):
            batch = {"first_xact_seqno": _seqno(place), "last_xact_seqno": _seqno(place), "transactions": 1}
            times = dict.fromkeys(("first_commit_time", "last_commit_time", "entry_time"), time)
            of_batch = {**batch, **times, "publication_id": 1, "folder": f"f{place}", "commands": commands}
            session.execute(msrepl_batches.insert().values(**of_batch, log_bytes=1))
            session.execute(mslogreader_history.insert().values(_run(time, place, commands)))
        for number, (time, place) in seen.watermarks.items():
            session.execute(msdistribution_history.insert().values(subscription_id=number, **_run(time, place, 0)))
        for number, time, length, transactions, latency, left in seen.spans:
            session.execute(
                msrepl_deliveries.insert().values(
                    subscription_id=number,
                    time=time,
                    publication_id=1,
                    seconds=int(length.total_seconds()),
                    transactions=transactions,
                    commands=latency.commands,
                    undelivered_commands=left,
                    latency=latency.model_dump(mode="json"),
                )
            )


def _seqno(place: int) -> bytes:
    return place.to_bytes(8, "big")


def _run(time: datetime, place: int, commands: int) -> dict[str, Any]:
    counts = dict.fromkeys(("delivered_transactions", "delivered_commands"), commands)
    about = {"publication_id": 1, "runstatus": RunStatus.SUCCEED, "start_time": time, "time": time, "duration": 1.0}
    return {**about, **counts, "comments": "", "xact_seqno": _seqno(place), "delivery_rate": 1.0} | {
        "commands_by_article": {}
    }


@dataclass(slots=True)
class _Reference:
    """Calculates the series plainly: minute by minute, command by command."""

    seen: _Seen
    period: Period
    chosen: Sequence[int]
    starts: Sequence[datetime] = field(init=False)

    def __post_init__(self) -> None:
        self.starts = list(self.period.starts)

    def _within(self, time: datetime, length: timedelta, part: int) -> float:
        """Return how many minutes of a span are in a part; those to come are in the last one."""
        begin = self.starts[part]
        end, last = begin + self.period.width, part == self.period.parts - 1
        if time + length <= begin or (time >= end and not last):
            return 0.0
        minutes = [time + at * _MINUTE for at in range(int(length / _MINUTE))]
        return sum(begin <= it and (it < end or last) for it in minutes) / len(minutes)

    def series(self) -> list[tuple[Any, ...]]:
        return [self._part(at) for at in range(self.period.parts)]

    def _part(self, at: int) -> tuple[Any, ...]:
        start, seconds = self.starts[at], self.period.width.total_seconds()
        if at == self.period.parts - 1:
            seconds = (_NOW - start).total_seconds()
        mine = [it for it in self.seen.spans if it[0] in self.chosen]
        shares = [(it, self._within(it[1], it[2], at)) for it in mine]
        inside = [(it, share) for it, share in shares if share]
        commands = sum(it[4].commands * share for it, share in inside)
        transactions = sum(it[3] * share for it, share in inside)
        stored = [count for time, count in self.seen.stored if start <= time < start + self.period.width]
        began = min((it[1] for it in mine), default=None)
        measured = began is not None and began < start + self.period.width
        known = self.seen.stored[0][0] < start + self.period.width
        return (
            start,
            self._quantiles([it[4] for it, _ in inside]),
            pytest.approx(commands / seconds) if measured else None,
            pytest.approx(transactions / seconds) if measured else None,
            pytest.approx(sum(stored) / seconds) if known else None,
            self._undelivered([it[5] for it, _ in inside], at),
        )

    def _quantiles(self, latencies: Sequence[LatencyByLeg]) -> dict[Leg, tuple[float, ...]]:
        found = {}
        for leg in Leg:
            each = sorted(bucket for it in latencies for bucket, count in it.of(leg).items() for _ in range(count))
            if each:
                ranked = [each[ceil(len(each) * share) - 1] for share in (0.5, 0.95, 0.99)]
                found[leg] = tuple(quantile({bucket: 1}, 1.0) for bucket in ranked)
        return found

    def _undelivered(self, left: Sequence[int | None], at: int) -> int | None:
        known = [it for it in left if it is not None]
        end = min(self.starts[at] + self.period.width, _NOW)
        for number in self.chosen:
            ran, delivered = self.seen.watermarks.get(number, (None, 0))
            if ran is None or ran < end:
                known.append(sum(count for time, count in self.seen.stored[delivered:] if time < end))
        return max(known, default=None)


def _of(found: Charts) -> list[tuple[Any, ...]]:
    return [
        (
            it.start,
            {leg: (of_leg.p50, of_leg.p95, of_leg.p99) for leg, of_leg in it.latency.items()},
            it.delivered_per_second,
            it.transactions_per_second,
            it.stored_per_second,
            it.undelivered_commands,
        )
        for it in found.parts
    ]


def _charts(connection: Connection, period: Period, subscription: str | None) -> Charts:
    with DistributionDatabase(connection) as database, database.transaction() as session:
        record = find_publication(session, "large")
        assert record is not None
        return charts(session, record, period, subscription)


@pytest.fixture
def distribution(database: DatabaseFactory) -> Connection:
    connection = database("charts")
    make_large_history(connection, Size(articles=1, subscriptions=3, runs=0), "large")
    return connection


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("seed", range(2))
def test_every_series_is_what_a_calculation_from_each_command_has(distribution: Connection, seed: int) -> None:
    seen = _watched(distribution, random.Random(seed))
    for width, parts in ((_MINUTE, 60), (15 * _MINUTE, 130), (2 * _HOUR, 84), (8 * _HOUR, 90)):
        period = Period(width, parts, _NOW)
        for chosen in ((1,), (2,), (3,), _SUBSCRIPTIONS):
            name = _NAMES[chosen[0]] if len(chosen) == 1 else None
            assert _of(_charts(distribution, period, name)) == _Reference(seen, period, chosen).series(), (width, name)


def test_what_a_delivery_measured_and_clean_up_added_up_is_what_the_charts_have(distribution: Connection) -> None:
    latencies = defaultdict(list)
    record = PublicationRecord(1, "large", store_at("store"), "slot", None, None)
    seen = _watched(distribution, random.Random(7))
    period = Period(2 * _HOUR, 84, _NOW)
    with DistributionDatabase(distribution) as database:
        subscription: SubscriptionRecord = database.subscriptions.get(record, _NAMES[1])
        for it in database.deliveries.latency_by_leg(record, subscription, period.first):
            latencies[period.part_of(it.time)].append(it.latency)
    found = _charts(distribution, period, _NAMES[1])
    assert seen.spans
    for at, part in enumerate(found.parts):
        together = LatencyByLeg()
        for latency in latencies.get(at, []):
            together = together.plus(latency)
        assert part.latency == together.all_quantiles()


def test_latencies_of_very_many_measurements_are_those_of_a_sample_of_each_part(
    distribution: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    _watched(distribution, random.Random(7))
    period = Period(48 * _HOUR, 15, _NOW)
    whole = _charts(distribution, period, None)
    assert whole.measurements_of_latency == whole.measurements
    most = 300
    monkeypatch.setattr(measurements, "MOST_ADDED_UP", most)
    found = _charts(distribution, period, None)
    assert most / 3 < found.measurements_of_latency < 1.3 * most < found.measurements == whole.measurements
    assert [it[2:] for it in _of(found)] == [it[2:] for it in _of(whole)]
    for sampled, part in zip(found.parts, whole.parts, strict=True):
        assert set(sampled.latency) == set(part.latency)
        for leg, quantiles in part.latency.items():
            assert sampled.latency[leg].p50 == pytest.approx(quantiles.p50, rel=0.5)
            assert sampled.latency[leg].p95 == pytest.approx(quantiles.p95, rel=0.25)
