"""Articles of subscriptions that wait for their snapshot, or were stopped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from tranrepl.distributor.monitoring.publication import MonitoredRecord
from tranrepl.distributor.tables import SubscriptionStatus, msarticle_subscriptions


@dataclass(frozen=True, slots=True)
class WaitingArticle:
    """An article of a subscription that nothing is delivered of."""

    subscription: str
    article: str
    status: SubscriptionStatus
    """Subscribed: it waits; initiated: its snapshot is on its way; inactive: it was stopped."""
    since: datetime
    reason: str | None


def waiting_articles(connection: sa.Connection, record: MonitoredRecord) -> Sequence[WaitingArticle]:
    """Return them by subscription and article."""
    articles = msarticle_subscriptions.c
    query = sa.select(msarticle_subscriptions).where(
        articles.subscription_id.in_(list(record.subscriptions)), articles.status != SubscriptionStatus.ACTIVE
    )
    found = [
        WaitingArticle(
            record.subscriptions[row.subscription_id].subscription,
            row.article,
            SubscriptionStatus(row.status),
            row.time,
            row.reason,
        )
        for row in connection.execute(query)
    ]
    return sorted(found, key=lambda it: (it.subscription, it.article))
