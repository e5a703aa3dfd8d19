"""Latency by leg, throughput and backlog over a time: of what was measured as it was delivered, of the log reader's
history, and of the tracer tokens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from tranrepl.distributor.database.watermarks import KnownWatermark, known_watermarks
from tranrepl.distributor.monitoring.measurements import measurements
from tranrepl.distributor.monitoring.period import Period
from tranrepl.distributor.monitoring.publication import MonitoredRecord
from tranrepl.distributor.tables import (
    mslogreader_history,
    msrepl_batches,
    mssubscriptions,
    mstracer_history,
    mstracer_tokens,
)
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


def backlog_since_last_run(
    connection: sa.Connection, record: MonitoredRecord, period: Period, chosen: Sequence[int]
) -> Sequence[int | None]:
    """Return the largest backlog at the end of each part: None before the last run of all chosen subscriptions, for
    what lay before them then is not known any more.

    The batch that a watermark is inside of counts as a whole.
    """
    known = known_watermarks(connection, mssubscriptions.c.publication_id == record.publication_id)
    marks = {number: known[number] for number in chosen}
    registered = _registered(connection, record, period, marks) if marks else {}
    largest: list[int | None] = [None] * period.parts
    for number, mark in marks.items():
        begin = -1 if mark.time is None else period.part_of(mark.time)
        mine = registered.get(number, {})
        undelivered = 0
        for at in range(-1, period.parts):
            undelivered += mine.get(at, 0)
            if at >= max(begin, 0):
                largest[at] = max(undelivered, largest[at] or 0)
    return largest


def _registered(
    connection: sa.Connection, record: MonitoredRecord, period: Period, marks: Mapping[int, KnownWatermark]
) -> Mapping[int, Mapping[int, int]]:
    """Return the commands after each watermark that were registered in each part, by subscription."""
    batches = msrepl_batches.c
    after = sa.values(
        sa.column("subscription_id", sa.Integer), sa.column("watermark", sa.LargeBinary), name="after"
    ).data([(number, mark.xact_seqno) for number, mark in marks.items()])
    part = period.part_of_column(batches.entry_time).label("part")
    commands = sa.cast(sa.func.sum(batches.commands), sa.BigInteger).label("commands")
    query = (
        sa.select(after.c.subscription_id, part, commands)
        .select_from(after.join(msrepl_batches, batches.last_xact_seqno > after.c.watermark))
        .where(batches.publication_id == record.publication_id)
        .group_by(after.c.subscription_id, part)
    )
    found: dict[int, dict[int, int]] = defaultdict(dict)
    for row in connection.execute(query):
        found[row.subscription_id][row.part] = row.commands
    return found


_MOST_TOKENS = 500


@dataclass(frozen=True, slots=True)
class TokenLegs:
    """A token that was registered, and where it has arrived."""

    tracer_id: int
    time: datetime
    """When it was committed at the Publisher, by the distribution database's clock."""
    registered_ms: int
    """From the commit at the Publisher to the registration at the Distributor."""
    delivered_ms: int | None
    """From the commit at the Publisher until the last of the chosen subscriptions had it; None where none has."""
    arrived: int
    """How many of the chosen subscriptions have it."""


def newest_tokens(
    connection: sa.Connection, record: MonitoredRecord, since: datetime, chosen: Sequence[int]
) -> Sequence[TokenLegs]:
    """Return the newest tokens that were registered since then, in the order of their registration."""
    tokens, history = mstracer_tokens.c, mstracer_history.c
    arrivals = (
        sa.select(sa.func.max(history.subscriber_commit).label("last"), sa.func.count().label("arrived"))
        .where(history.parent_tracer_id == tokens.tracer_id, history.subscription_id.in_(chosen))
        .lateral("arrivals")
    )
    query = (
        sa.select(mstracer_tokens, arrivals.c.last, arrivals.c.arrived)
        .select_from(mstracer_tokens.join(arrivals, sa.true()))
        .where(tokens.publication_id == record.publication_id, tokens.distributor_commit >= since)
        .order_by(tokens.tracer_id.desc())
        .limit(_MOST_TOKENS)
    )
    return [_legs(row) for row in reversed(connection.execute(query).all())]


def _legs(row: sa.Row[Any]) -> TokenLegs:
    committed = row.publisher_commit - timedelta(microseconds=row.clock_difference or 0)
    return TokenLegs(
        tracer_id=row.tracer_id,
        time=committed,
        registered_ms=_milliseconds(committed, row.distributor_commit),
        delivered_ms=None if row.last is None else _milliseconds(committed, row.last),
        arrived=row.arrived,
    )


def _milliseconds(start: datetime, end: datetime) -> int:
    return max(0, round((end - start).total_seconds() * 1000))
