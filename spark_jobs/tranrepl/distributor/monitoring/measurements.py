"""What was committed at Subscribers, added up for each part of a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import sqlalchemy as sa

from tranrepl.distributor.monitoring.period import Period
from tranrepl.distributor.monitoring.publication import MonitoredRecord
from tranrepl.distributor.tables import msrepl_deliveries
from tranrepl.model.latency import LatencyByLeg, Leg

MOST_ADDED_UP = 20_000
"""The latencies of so many rows are added up: more of them would hold up whoever looks."""
_SECOND = sa.literal(timedelta(seconds=1))
_LONGEST_SPAN = timedelta(hours=1)
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
    with_latency: bool
    """False where there are too many rows to add their latencies up."""


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
    with_latency = rows <= MOST_ADDED_UP
    if with_latency:
        _add_latencies(connection, within, period, parts)
    since = connection.scalar(sa.select(sa.func.min(_deliveries.time)).where(mine))
    return Measurements(parts, since, with_latency)


def _add_sums(
    connection: sa.Connection, within: sa.ColumnElement[bool], period: Period, parts: Sequence[MeasuredPart]
) -> int:
    """Add up how much was committed; return the number of rows."""
    query = sa.select(
        _deliveries.time,
        _deliveries.seconds,
        sa.func.sum(_deliveries.transactions).label("transactions"),
        sa.func.sum(_deliveries.commands).label("commands"),
        sa.func.max(_deliveries.undelivered_commands).label("undelivered"),
        sa.func.count().label("rows"),
    ).where(within)
    found = connection.execute(query.group_by(_deliveries.time, _deliveries.seconds)).all()
    for row in found:
        for at, share in period.shares(row.time, timedelta(seconds=row.seconds)):
            part = parts[at]
            part.transactions += float(row.transactions) * share
            part.commands += float(row.commands) * share
            if row.undelivered is not None:
                part.undelivered_commands = max(part.undelivered_commands or 0, row.undelivered)
    return sum(row.rows for row in found)


def _add_latencies(
    connection: sa.Connection, within: sa.ColumnElement[bool], period: Period, parts: Sequence[MeasuredPart]
) -> None:
    # One value for all rows of a moment: the driver reads it at once.
    latencies = sa.func.json_agg(_deliveries.latency, type_=sa.JSON).label("latencies")
    query = sa.select(_deliveries.time, _deliveries.seconds, latencies).where(within)
    for row in connection.execute(query.group_by(_deliveries.time, _deliveries.seconds)):
        for at, _ in period.shares(row.time, timedelta(seconds=row.seconds)):
            parts[at].count(row.latencies)
