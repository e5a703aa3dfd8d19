"""How far each subscription is, as its last run that knew it recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from tranrepl.distributor.tables import msdistribution_history, mssubscriptions

_NO_SEQNO = b""


@dataclass(frozen=True, slots=True)
class KnownWatermark:
    """The last watermark that a run recorded, and when; of a subscription that has none, where its snapshot began, or
    nothing, and no time."""

    xact_seqno: bytes
    time: datetime | None


def known_watermarks(connection: sa.Connection, chosen: sa.ColumnElement[bool]) -> Mapping[int, KnownWatermark]:
    """Return the last known watermark of each of the chosen subscriptions, by their numbers."""
    history = msdistribution_history.c
    newest = (
        sa.select(history.xact_seqno, history.time)
        .where(history.subscription_id == mssubscriptions.c.subscription_id, history.xact_seqno.is_not(None))
        .order_by(history.id.desc())
        .limit(1)
        .lateral("newest")
    )
    query = (
        sa.select(
            mssubscriptions.c.subscription_id,
            sa.func.coalesce(newest.c.xact_seqno, mssubscriptions.c.subscription_seqno, _NO_SEQNO).label("watermark"),
            newest.c.time,
        )
        .select_from(mssubscriptions.outerjoin(newest, sa.true()))
        .where(chosen)
    )
    return {row.subscription_id: KnownWatermark(bytes(row.watermark), row.time) for row in connection.execute(query)}
