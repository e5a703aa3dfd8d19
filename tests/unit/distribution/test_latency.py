"""What a delivery counts of latencies, compared with an account of each command by itself."""

from __future__ import annotations

import time
import tracemalloc
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tranrepl.connections import Connection
from tranrepl.distribution import latency
from tranrepl.distribution.latency import LatencyMeter, RegisteredBatches, buckets
from tranrepl.distributor.database import Batch
from tranrepl.errors import TransientError
from tranrepl.model.clock_difference import ClockDifference, microseconds_of
from tranrepl.model.command_rows import ROW_LAYOUT
from tranrepl.model.latency import DeliveredMinute, LatencyByLeg, by_minute

_DISTRIBUTION = Connection("distribution", "postgres")
_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
_AHEAD = 250_000
"""µs by which the distribution database's clock is ahead of ours."""
_BATCHES = (Batch("one", b"\0" * 7 + b"\1", b"\0" * 7 + b"\x09", _NOON, _NOON, 9, 9, 0, 40_000, _NOON),)


@pytest.fixture(autouse=True)
def _known_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    known = time.monotonic(), ClockDifference(microseconds=_AHEAD)
    monkeypatch.setattr(latency, "_known", {_DISTRIBUTION: known})


def _seqno(number: int) -> bytes:
    return number.to_bytes(8, "big")


@dataclass
class _Commands:
    """Commands of transactions 1, 2, …: when each was committed, and how many commands it has."""

    transactions: list[tuple[int, int]] = field(default_factory=list)
    first: int = 1

    def table(self) -> pa.Table:
        rows = [
            {"xact_seqno": _seqno(number), "command_id": command, "commit_time": time}
            for number, (time, commands) in enumerate(self.transactions, self.first)
            for command in range(1, commands + 1)
        ]
        return pa.Table.from_pylist(rows, schema=ROW_LAYOUT)


_transactions = st.lists(st.tuples(st.integers(-(10**9), 10**9), st.integers(1, 3)), min_size=1, max_size=30)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    _transactions,
    st.lists(st.integers(1, 30), max_size=4, unique=True),
    st.lists(st.integers(1, 30), max_size=4),
    st.integers(0, 10**9),
)
def test_each_command_is_counted_once_by_its_own_batch_and_commit(
    transactions: list[tuple[int, int]], batch_starts: list[int], commits: list[int], step: int
) -> None:
    """Commit batches and stored batches end anywhere."""
    noon = microseconds_of(_NOON)
    starts = sorted({1, *batch_starts})
    registered = [noon + number * 7_000_000 for number in range(len(starts))]
    differences = [None if number % 3 == 2 else number * 100_000 for number in range(len(starts))]
    batches = RegisteredBatches(_DISTRIBUTION, tuple(map(_seqno, starts)), tuple(registered), tuple(differences))
    meter, now = LatencyMeter(batches), noon
    told: list[DeliveredMinute] = []
    cuts = sorted({0, *(it for it in commits if it < len(transactions)), len(transactions)})
    patch = pytest.MonkeyPatch()
    for first, end in pairwise(cuts):
        part = [(noon + time, commands) for time, commands in transactions[first:end]]
        commands = _Commands(part, first + 1).table()
        # Applied in two pieces, as a long transaction is.
        meter.applied(commands.slice(0, 2))
        meter.applied(commands.slice(2))
        now += step
        patch.setattr(latency, "now_microseconds", lambda now=now: now)
        meter.committed(end - first)
        legs: dict[str, Counter[int]] = {name: Counter() for name in ("registered", "delivered", "overall")}
        for number, (committed_at, count) in enumerate(part, first + 1):
            batch = max(it for it, start in enumerate(starts) if start <= number)
            committed = committed_at - (differences[batch] or 0)
            took = (registered[batch] - committed, now + _AHEAD - registered[batch], now + _AHEAD - committed)
            for name, microseconds in zip(legs, took, strict=True):
                legs[name][int(buckets(np.array([microseconds]))[0])] += count
        counted = LatencyByLeg(**{name: dict(sorted(it.items())) for name, it in legs.items()})
        told.append(
            DeliveredMinute(
                minute=(now + _AHEAD) // 60_000_000,
                transactions=end - first,
                commands=sum(count for _, count in part),
                latency=counted,
            )
        )
    patch.undo()
    known = [it for it in differences if it is not None][-1]
    clocks = LatencyByLeg(clock_difference=known)
    expected = [it.model_copy(update={"latency": it.latency.plus(clocks)}) for it in by_minute(told)]
    assert expected == list(meter.minutes())


def test_what_is_not_committed_is_not_counted() -> None:
    meter = LatencyMeter(RegisteredBatches.of(_DISTRIBUTION, _BATCHES))
    meter.applied(_Commands([(microseconds_of(_NOON), 3)]).table())
    assert meter.minutes() == ()
    meter.committed(1)
    (minute,) = meter.minutes()
    assert (minute.transactions, minute.commands, minute.latency.clock_difference) == (1, 3, 40_000)


def test_a_transaction_of_any_size_waits_for_its_commit_in_little_memory() -> None:
    meter, commands = LatencyMeter(RegisteredBatches.of(_DISTRIBUTION, _BATCHES)), _Commands([(0, 10_000)]).table()
    meter.applied(commands)
    tracemalloc.start()
    for _ in range(20):
        meter.applied(commands)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 100_000, "a byte for two commands"
    meter.committed(1)
    assert meter.minutes()[0].commands == 210_000


def test_nothing_is_counted_where_the_clock_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_: Connection) -> ClockDifference:
        raise TransientError("away")

    monkeypatch.setattr(latency, "_clock_of", away)
    meter = LatencyMeter(RegisteredBatches.of(_DISTRIBUTION, _BATCHES))
    for _ in range(2):
        meter.applied(_Commands([(0, 1)]).table())
        meter.committed(1)
    assert meter.minutes() == ()


def test_a_batch_whose_registration_is_not_known_is_not_measured() -> None:
    unknown = Batch("two", _seqno(10), _seqno(11), _NOON, _NOON + timedelta(seconds=1), 2, 2, 0)
    assert RegisteredBatches.of(_DISTRIBUTION, [*_BATCHES, unknown]) is None
    assert RegisteredBatches.of(_DISTRIBUTION, []) is None
    meter = LatencyMeter(None)
    meter.applied(_Commands([(0, 1)]).table())
    meter.committed(1)
    assert meter.minutes() == ()
