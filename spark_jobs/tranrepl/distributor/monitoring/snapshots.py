"""Progress of the snapshots of a publication's subscriptions, and articles that wait for one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tranrepl.distributor.database.healing import is_snapshot
from tranrepl.distributor.database.subscriptions import SubscriptionRecord
from tranrepl.distributor.monitoring.publication import MonitoredRecord
from tranrepl.distributor.tables import (
    WITHOUT_SNAPSHOT,
    RunStatus,
    SubscriptionStatus,
    msarticle_subscriptions,
    msdistribution_history,
    mssubscriptions,
)


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """How far a table is."""

    article: str
    rows: int
    bytes: int
    share: float
    """The part of the table's pages, from 0 to 1."""
    seconds_left: float | None
    """None where nothing is known yet, and once it is whole."""


@dataclass(frozen=True, slots=True)
class SubscriptionSnapshot:
    """A subscription's newest snapshot, and what waits for one."""

    subscription: str
    registered: SubscriptionStatus
    """Subscribed: the whole subscription waits for its snapshot."""
    status: str | None
    """How the snapshot's run went; None where the history has none."""
    start_time: datetime | None
    time: datetime | None
    tables: Sequence[TableSnapshot]
    waiting: Sequence[WaitingArticle]


def newest_snapshots(connection: sa.Connection, record: MonitoredRecord) -> Sequence[SubscriptionSnapshot]:
    """Return the newest snapshot of each subscription that the history has one of, or where something waits."""
    runs = {row.subscription_id: row for row in connection.execute(_newest(record))}
    waiting: dict[str, list[WaitingArticle]] = defaultdict(list)
    for it in waiting_articles(connection, record):
        waiting[it.subscription].append(it)
    return [
        _snapshot(it, runs.get(number), waiting.get(it.subscription, ()))
        for number, it in record.subscriptions.items()
        if number in runs or it.subscription in waiting or it.status in WITHOUT_SNAPSHOT
    ]


def _newest(record: MonitoredRecord) -> sa.Select[Any]:
    history = msdistribution_history.c
    columns = (history.subscription_id, history.runstatus, history.start_time, history.time, history.snapshot)
    newest = (
        sa.select(*columns)
        .where(
            history.subscription_id == mssubscriptions.c.subscription_id,
            is_snapshot(msdistribution_history),
        )
        .order_by(history.id.desc())
        .limit(1)
        .lateral("newest")
    )
    joined = mssubscriptions.join(newest, sa.true())
    return sa.select(newest).select_from(joined).where(mssubscriptions.c.publication_id == record.publication_id)


def _snapshot(
    subscription: SubscriptionRecord, run: sa.Row[Any] | None, waiting: Sequence[WaitingArticle]
) -> SubscriptionSnapshot:
    return SubscriptionSnapshot(
        subscription=subscription.subscription,
        registered=subscription.status,
        status=None if run is None else RunStatus(run.runstatus).name.lower(),
        start_time=None if run is None else run.start_time,
        time=None if run is None else run.time,
        tables=() if run is None else [_table(it) for it in run.snapshot],
        waiting=waiting,
    )


def _table(stored: Mapping[str, Any]) -> TableSnapshot:
    share = float(stored["share"])
    left = stored["seconds"] * (1 - share) / share if 0 < share < 1 else None
    return TableSnapshot(stored["article"], stored["rows"], stored["bytes"], share, left)


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
