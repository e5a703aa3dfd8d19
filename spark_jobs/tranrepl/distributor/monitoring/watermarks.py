"""How far each subscription is, as its last run that knew it recorded."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import sqlalchemy as sa

from tranrepl.distributor.monitoring.publication import MonitoredRecord
from tranrepl.distributor.tables import msdistribution_history, mssubscriptions

_NO_SEQNO = b""


def watermarks(
    connection: sa.Connection, record: MonitoredRecord, before: datetime | None = None
) -> Mapping[int, bytes]:
    """Return the last watermark of each subscription, recorded `before` that time where one is given; of one that has
    none, where its snapshot began, or nothing."""
    history = msdistribution_history.c
    known = sa.select(history.xact_seqno).where(
        history.subscription_id == mssubscriptions.c.subscription_id, history.xact_seqno.is_not(None)
    )
    if before is not None:
        known = known.where(history.time < before)
    newest = known.order_by(history.time.desc()).limit(1).scalar_subquery()
    query = sa.select(
        mssubscriptions.c.subscription_id,
        sa.func.coalesce(newest, mssubscriptions.c.subscription_seqno, _NO_SEQNO).label("watermark"),
    ).where(mssubscriptions.c.publication_id == record.publication_id)
    return {row.subscription_id: bytes(row.watermark) for row in connection.execute(query)}
