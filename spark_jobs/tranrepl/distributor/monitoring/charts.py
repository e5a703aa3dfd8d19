"""Latency by leg, throughput and backlog over a time: of what was measured as it was delivered, of the log reader's
history, and of the tracer tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from tranrepl.distributor.monitoring.backlog import backlog_since_last_run
from tranrepl.distributor.monitoring.measurements import measurements
from tranrepl.distributor.monitoring.period import Period
from tranrepl.distributor.monitoring.publication import MonitoredRecord
from tranrepl.distributor.monitoring.tokens import TokenLegs, newest_tokens
from tranrepl.distributor.tables import mslogreader_history
from tranrepl.model.latency import Leg, Quantiles


@dataclass(frozen=True, slots=True)
class ChartPart:
    """What a part of the time had."""

    start: datetime
    latency: Mapping[Leg, Quantiles]
    """How long the commands took that were committed at the Subscriber within it; empty where none were."""
    delivered_per_second: float | None
    """Commands; None before anything was measured."""
    transactions_per_second: float | None
    """Transactions that were delivered; None before anything was measured."""
    stored_per_second: float | None
    """Commands that the log reader has stored; None from before its history."""
    undelivered_commands: int | None
    """The most that a run within it left to one subscription, and, since the last run, what has come to lie before one;
    None where no run ended."""


@dataclass(frozen=True, slots=True)
class Charts:
    """The charts' values. Of several subscriptions: the latency of all their commands, the sum of what was delivered,
    and the largest backlog."""

    width_seconds: float
    parts: Sequence[ChartPart]
    tokens: Sequence[TokenLegs]
    measured_since: datetime | None
    """When measuring what is delivered began; None where nothing was measured ever."""
    stored_since: datetime | None
    """How far the log reader's history goes back; None where it has none."""
    measurements: int
    measurements_of_latency: int
    """How many of them latency is of: where there are very many, a sample of each part."""


@dataclass(frozen=True, slots=True)
class _Stored:
    commands: Mapping[int, int]
    since: datetime | None


def charts(
    connection: sa.Connection, record: MonitoredRecord, period: Period, subscription: str | None = None
) -> Charts:
    """Return the charts' values of one subscription, or of all."""
    chosen = [number for number, it in record.subscriptions.items() if subscription in (None, it.subscription)]
    measured = measurements(connection, record, period, chosen)
    waiting = backlog_since_last_run(connection, record, period, chosen)
    stored = _stored(connection, record, period)
    parts = []
    for at, (start, part) in enumerate(zip(period.starts, measured.parts, strict=True)):
        seconds, is_measured = period.seconds_of(at), _has_begun(measured.since, period, start)
        has_stored = _has_begun(stored.since, period, start)
        parts.append(
            ChartPart(
                start=start,
                latency=part.latency.all_quantiles(),
                delivered_per_second=part.commands / seconds if is_measured else None,
                transactions_per_second=part.transactions / seconds if is_measured else None,
                stored_per_second=stored.commands.get(at, 0) / seconds if has_stored else None,
                undelivered_commands=_larger(part.undelivered_commands, waiting[at]),
            )
        )
    return Charts(
        width_seconds=period.width.total_seconds(),
        parts=parts,
        tokens=newest_tokens(connection, record, period.first, chosen),
        measured_since=measured.since,
        stored_since=stored.since,
        measurements=measured.rows,
        measurements_of_latency=measured.rows_of_latency,
    )


def _has_begun(since: datetime | None, period: Period, start: datetime) -> bool:
    """Return whether a part is not wholly before that time."""
    return since is not None and since < start + period.width


def _larger(one: int | None, other: int | None) -> int | None:
    return max((it for it in (one, other) if it is not None), default=None)


def _stored(connection: sa.Connection, record: MonitoredRecord, period: Period) -> _Stored:
    history = mslogreader_history.c
    mine = history.publication_id == record.publication_id
    part = period.part_of_column(history.time).label("part")
    commands = sa.cast(sa.func.sum(history.delivered_commands), sa.BigInteger).label("commands")
    query = sa.select(part, commands).where(mine, history.time >= period.first).group_by(part)
    since = connection.scalar(sa.select(sa.func.min(history.time)).where(mine))
    return _Stored({row.part: row.commands for row in connection.execute(query)}, since)
