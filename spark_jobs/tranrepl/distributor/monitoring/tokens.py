"""Tracer tokens as the charts have them: what each leg took, without the difference of the clocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from tranrepl.distributor.monitoring.publication import MonitoredRecord
from tranrepl.distributor.tables import mstracer_history, mstracer_tokens

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
