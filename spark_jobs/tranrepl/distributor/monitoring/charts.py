"""Latency by leg, throughput and backlog over a time, from the agents' history and the tracer tokens."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate, islice
from typing import Any

import sqlalchemy as sa

from tranrepl.distributor.monitoring.publication import MonitoredRecord
from tranrepl.distributor.monitoring.tokens import TokenLegs, newest_tokens
from tranrepl.distributor.monitoring.watermarks import watermarks
from tranrepl.distributor.tables import msdistribution_history, mslogreader_history

_MOST_STORED = 20_000
"""The most runs of the log reader that the backlog is counted by: the newest ones."""


@dataclass(frozen=True, slots=True)
class Period:
    """A time of whole parts, each `width` long, that begin at multiples of it; the last one has not ended."""

    width: timedelta
    parts: int
    now: datetime

    @property
    def starts(self) -> Sequence[datetime]:
        """The beginning of each part."""
        width = self.width.total_seconds()
        last = int(self.now.timestamp() // width)
        return [datetime.fromtimestamp(at * width, UTC) for at in range(last - self.parts + 1, last + 1)]

    def seconds_of(self, at: int) -> float:
        """Return how long a part has been: the last one is no whole one."""
        if at < self.parts - 1:
            return self.width.total_seconds()
        return max(1.0, (self.now - self.starts[-1]).total_seconds())


@dataclass(frozen=True, slots=True)
class ChartPart:
    """What a part of the time had. None where nothing was registered or delivered, or is known."""

    start: datetime
    registered_ms: int | None
    """The longest latency from the commit at the Publisher to the registration at the Distributor."""
    delivered_ms: int | None
    """The longest latency from the commit at the Publisher to the commit at the Subscriber."""
    stored_per_second: float
    """Commands."""
    delivered_per_second: float
    undelivered_commands: int | None
    """At the end of the part: of the subscription that had most."""


@dataclass(frozen=True, slots=True)
class Charts:
    """The charts' values. Of several subscriptions: the longest latency, the sum of what was delivered, and the largest
    backlog."""

    width_seconds: float
    parts: Sequence[ChartPart]
    tokens: Sequence[TokenLegs]


@dataclass(slots=True)
class _Delivered:
    """What subscriptions had delivered in each part."""

    latencies: dict[int, int]
    commands: dict[int, int]
    watermarks: dict[int, dict[int, bytes]]
    """By subscription, the last of each part that recorded one."""


def charts(
    connection: sa.Connection, record: MonitoredRecord, period: Period, subscription: str | None = None
) -> Charts:
    """Return the charts' values of one subscription, or of all."""
    chosen = [number for number, it in record.subscriptions.items() if subscription in (None, it.subscription)]
    starts = period.starts
    registered = _registered(connection, record, period)
    delivered = _delivered(connection, record, period, chosen)
    undelivered = _undelivered(connection, record, period, delivered.watermarks, chosen)
    return Charts(
        width_seconds=period.width.total_seconds(),
        parts=[
            ChartPart(
                start=start,
                registered_ms=registered[at].latency if at in registered else None,
                delivered_ms=delivered.latencies.get(at),
                stored_per_second=(registered[at].commands if at in registered else 0) / period.seconds_of(at),
                delivered_per_second=delivered.commands.get(at, 0) / period.seconds_of(at),
                undelivered_commands=undelivered[at],
            )
            for at, start in enumerate(starts)
        ],
        tokens=newest_tokens(connection, record, starts[0], chosen),
    )


def _part_of(period: Period, time: sa.ColumnElement[datetime]) -> sa.ColumnElement[int]:
    seconds = sa.func.extract("epoch", time) - period.starts[0].timestamp()
    part = sa.cast(sa.func.floor(seconds / period.width.total_seconds()), sa.Integer)
    # A clock that is ahead of ours writes times that are still to come.
    return sa.func.least(part, period.parts - 1)


def _registered(connection: sa.Connection, record: MonitoredRecord, period: Period) -> Mapping[int, Any]:
    history = mslogreader_history.c
    part = _part_of(period, history.time).label("part")
    query = (
        sa.select(
            part,
            sa.func.max(history.delivery_latency).label("latency"),
            sa.cast(sa.func.sum(history.delivered_commands), sa.BigInteger).label("commands"),
        )
        .where(history.publication_id == record.publication_id, history.time >= period.starts[0])
        .group_by(part)
    )
    return {row.part: row for row in connection.execute(query)}


def _delivered(connection: sa.Connection, record: MonitoredRecord, period: Period, chosen: Sequence[int]) -> _Delivered:
    history = msdistribution_history.c
    part = _part_of(period, history.time).label("part")
    # No maximum of binary values before PostgreSQL 18.
    watermark = sa.func.max(sa.func.encode(history.xact_seqno, "hex").collate("C")).label("watermark")
    query = (
        sa.select(
            history.subscription_id,
            part,
            sa.func.max(history.delivery_latency).label("latency"),
            sa.cast(sa.func.sum(history.delivered_commands), sa.BigInteger).label("commands"),
            watermark,
        )
        .where(
            history.publication_id == record.publication_id,
            history.time >= period.starts[0],
            history.subscription_id.in_(chosen),
        )
        .group_by(history.subscription_id, part)
    )
    found = _Delivered({}, defaultdict(int), defaultdict(dict))
    for row in connection.execute(query):
        if row.latency is not None:
            found.latencies[row.part] = max(row.latency, found.latencies.get(row.part, 0))
        found.commands[row.part] += row.commands
        if row.watermark is not None:
            found.watermarks[row.subscription_id][row.part] = bytes.fromhex(row.watermark)
    return found


@dataclass(frozen=True, slots=True)
class _Stored:
    """What the log reader had stored by when, and up to which transaction."""

    times: Sequence[datetime]
    seqnos: Sequence[bytes]
    sums: Sequence[int]

    def by(self, time: datetime) -> int:
        at = bisect_right(self.times, time)
        return self.sums[at - 1] if at else 0

    def up_to(self, seqno: bytes) -> int:
        at = bisect_right(self.seqnos, seqno)
        return self.sums[at - 1] if at else 0


def _undelivered(
    connection: sa.Connection,
    record: MonitoredRecord,
    period: Period,
    recorded: Mapping[int, Mapping[int, bytes]],
    chosen: Sequence[int],
) -> Sequence[int | None]:
    """Return the largest backlog at the end of each part."""
    before = watermarks(connection, record, period.starts[0])
    if not chosen:
        return [None] * period.parts
    stored = _stored(connection, record, period.starts[0], min(before[it] for it in chosen))
    ends = [*period.starts[1:], period.now]
    each = [
        [max(0, stored.by(end) - stored.up_to(mark)) for end, mark in zip(ends, marks, strict=True)]
        for marks in (_carried(before[it], recorded.get(it, {}), period.parts) for it in chosen)
    ]
    return [max(of_part) for of_part in zip(*each, strict=True)]


def _carried(first: bytes, recorded: Mapping[int, bytes], parts: int) -> Iterator[bytes]:
    """Yield the watermark at the end of each part: the last one that was recorded by then."""
    marks = accumulate(range(parts), lambda mark, at: max(mark, recorded.get(at, mark)), initial=first)
    return islice(marks, 1, None)


def _stored(connection: sa.Connection, record: MonitoredRecord, since: datetime, mark: bytes) -> _Stored:
    history = mslogreader_history.c
    query = (
        sa.select(history.time, history.xact_seqno, history.delivered_commands)
        .where(
            history.publication_id == record.publication_id,
            history.delivered_commands > 0,
            history.xact_seqno.is_not(None),
            sa.or_(history.time >= since, history.xact_seqno > mark),
        )
        .order_by(history.id.desc())
        .limit(_MOST_STORED)
    )
    rows = list(reversed(connection.execute(query).all()))
    return _Stored(
        [row.time for row in rows],
        [bytes(row.xact_seqno) for row in rows],
        list(accumulate(row.delivered_commands for row in rows)),
    )
