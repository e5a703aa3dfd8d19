"""Commits at Subscribers, added up for each part of a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import sqlalchemy as sa

from tranrepl.distributor.monitoring.period import Period
from tranrepl.distributor.monitoring.publication import MonitoredRecord
from tranrepl.distributor.tables import msrepl_deliveries
from tranrepl.model.latency import LatencyByLeg, Leg

MOST_ADDED_UP = 20_000
"""The latencies of so many rows are added up, of more a sample: all would hold up who looks."""
_SECOND = sa.literal(timedelta(seconds=1))
_LONGEST_SPAN = timedelta(hours=1)
_SPREAD = 1_000_003
"""Above any number of a subscription: two rows have one value of the sample's only where they are the same."""
_NOT_NEGATIVE = 2**31
_deliveries = msrepl_deliveries.c


@dataclass(slots=True)
class MeasuredPart:
    """What a part of the time had, of all chosen subscriptions together."""

    transactions: float = 0.0
    commands: float = 0.0
    undelivered_commands: int | None = None
    """The most that a run within it left to one of them; None where none ended."""
    buckets: Mapping[Leg, dict[str, int]] = field(default_factory=lambda: {leg: {} for leg in Leg})

    @property
    def latency(self) -> LatencyByLeg:
        return LatencyByLeg.model_validate({leg.value: counts for leg, counts in self.buckets.items()})

    def count(self, latencies: Iterable[Mapping[str, Mapping[str, int]]]) -> None:
        """Add latencies as they are stored: there are thousands of them, which are checked when they are one."""
        for leg, counts in self.buckets.items():
            for latency in latencies:
                for bucket, commands in latency[leg.value].items():
                    counts[bucket] = counts.get(bucket, 0) + commands


@dataclass(frozen=True, slots=True)
class Measurements:
    """What was measured. `since`: when measuring began; None where nothing was measured ever."""

    parts: Sequence[MeasuredPart]
    since: datetime | None
    rows: int
    rows_of_latency: int
    """How many of them the latencies are of: where there are too many, a sample of each part."""


def measurements(
    connection: sa.Connection, record: MonitoredRecord, period: Period, chosen: Sequence[int]
) -> Measurements:
    """Return what is measured of the chosen subscriptions.

    An hour of long ago counts in each part that it is in: its commands by how much of it is there, as if they were
    evenly spread, and its latencies in all of them.
    """
    mine = sa.and_(
        _deliveries.publication_id == record.publication_id,
        _deliveries.subscription_id.in_(chosen),
    )
    ends_later = _deliveries.time + _deliveries.seconds * _SECOND > period.first
    within = sa.and_(mine, _deliveries.time > period.first - _LONGEST_SPAN, ends_later)
    parts = [MeasuredPart() for _ in range(period.parts)]
    rows = _add_sums(connection, within, period, parts)
    of_latency = _add_latencies(connection, within & _sample(rows, period), period, parts)
    since = connection.scalar(sa.select(sa.func.min(_deliveries.time)).where(mine))
    return Measurements(parts, since, rows.total(), of_latency)


def _add_sums(
    connection: sa.Connection, within: sa.ColumnElement[bool], period: Period, parts: Sequence[MeasuredPart]
) -> Counter[int]:
    """Add up how much was committed; return the number of rows that begin in each part, or, under -1, before."""
    query = sa.select(
        _deliveries.time,
        _deliveries.seconds,
        sa.func.sum(_deliveries.transactions).label("transactions"),
        sa.func.sum(_deliveries.commands).label("commands"),
        sa.func.max(_deliveries.undelivered_commands).label("undelivered"),
        sa.func.count().label("rows"),
    ).where(within)
    rows = Counter[int]()
    for row in connection.execute(query.group_by(_deliveries.time, _deliveries.seconds)):
        rows[period.part_of(row.time)] += row.rows
        for at, share in period.shares(row.time, timedelta(seconds=row.seconds)):
            part = parts[at]
            part.transactions += float(row.transactions) * share
            part.commands += float(row.commands) * share
            if row.undelivered is not None:
                part.undelivered_commands = max(part.undelivered_commands or 0, row.undelivered)
    return rows


def _sample(rows: Counter[int], period: Period) -> sa.ColumnElement[bool]:
    """Return what leaves a sample of the rows of each part that has more of them than its share; all, where they are
    not too many together. Which rows are in it is as good as chance, and always the same."""
    share = max(1, MOST_ADDED_UP // period.parts)
    every = {part: -(-count // share) for part, count in rows.items() if count > share}
    if rows.total() <= MOST_ADDED_UP or not every:
        return sa.true()
    span = sa.cast(sa.func.extract("epoch", _deliveries.time) / _deliveries.seconds, sa.BigInteger)
    number = sa.cast(sa.func.hashint8(span * _SPREAD + _deliveries.subscription_id), sa.BigInteger) + _NOT_NEGATIVE
    one_of = sa.case(every, value=period.part_of_column(_deliveries.time), else_=1)
    return sa.func.mod(number, one_of) == 0


def _add_latencies(
    connection: sa.Connection, within: sa.ColumnElement[bool], period: Period, parts: Sequence[MeasuredPart]
) -> int:
    """Add up the latencies; return the number of rows."""
    # One value for all rows of a moment: the driver reads it at once.
    latencies = sa.func.json_agg(_deliveries.latency, type_=sa.JSON).label("latencies")
    query = sa.select(_deliveries.time, _deliveries.seconds, latencies).where(within)
    rows = 0
    for row in connection.execute(query.group_by(_deliveries.time, _deliveries.seconds)):
        rows += len(row.latencies)
        for at, _ in period.shares(row.time, timedelta(seconds=row.seconds)):
            parts[at].count(row.latencies)
    return rows
