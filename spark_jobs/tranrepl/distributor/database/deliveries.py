"""What was delivered to each subscription, minute by minute, how long it took, and what was left: what charts show.

A row is of a minute, and of an hour once it is older than the agents' history. Whatever is added up loses nothing but
the time within the hour: latencies are kept as counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from tranrepl.distributor.database.connection import DatabaseConnection
from tranrepl.distributor.database.publications import PublicationRecord
from tranrepl.distributor.database.subscriptions import SubscriptionRecord
from tranrepl.distributor.tables import msrepl_batches, msrepl_deliveries
from tranrepl.model.latency import NOTHING_MEASURED, DeliveredMinute, LatencyByLeg, together

_SECOND = sa.literal(timedelta(seconds=1))
_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class DeliveredSpan:
    """What was committed at a Subscriber within a minute, or within an hour of long ago."""

    time: datetime
    """When it began."""
    length: timedelta
    transactions: int
    commands: int
    undelivered_commands: int | None
    """The most that a run within it left undelivered; None where none ended."""
    latency: LatencyByLeg


class Deliveries:
    """What `msrepl_deliveries` holds. Times are of the database's clock."""

    def __init__(self, database: DatabaseConnection) -> None:
        self._database = database

    def record(
        self, record: PublicationRecord, subscription: SubscriptionRecord, minutes: Sequence[DeliveredMinute]
    ) -> None:
        """Add what was committed to the rows of its minutes."""
        if not minutes:
            return
        with self._database.transaction() as connection:
            for it in minutes:
                time = _EPOCH + it.minute * _MINUTE
                found = _locked(connection, record, subscription, time)
                latency = LatencyByLeg.model_validate(found.latency).plus(it.latency)
                connection.execute(
                    msrepl_deliveries.update()
                    .where(_is(subscription, time))
                    .values(
                        transactions=found.transactions + it.transactions,
                        commands=found.commands + it.commands,
                        latency=latency.model_dump(mode="json"),
                    )
                )

    def record_undelivered(self, record: PublicationRecord, subscription: SubscriptionRecord, watermark: bytes) -> None:
        """Write down what a run that ends now leaves undelivered, the watermark being there."""
        left = sa.select(sa.func.coalesce(sa.func.sum(msrepl_batches.c.commands), 0)).where(
            msrepl_batches.c.publication_id == record.publication_id, msrepl_batches.c.last_xact_seqno > watermark
        )
        now = sa.func.date_trunc("minute", sa.func.now(), "UTC")
        row = insert(msrepl_deliveries).values(
            **_nothing_yet(record, subscription), time=now, undelivered_commands=left.scalar_subquery()
        )
        most = sa.func.greatest(msrepl_deliveries.c.undelivered_commands, row.excluded.undelivered_commands)
        with self._database.transaction() as connection:
            connection.execute(
                row.on_conflict_do_update(
                    index_elements=msrepl_deliveries.primary_key, set_={"undelivered_commands": most}
                )
            )

    def latency_by_leg(
        self, record: PublicationRecord, subscription: SubscriptionRecord, since: datetime
    ) -> list[DeliveredSpan]:
        """Return what was delivered since then, in order: spans in which no run did anything are left out.

        `latency.quantiles(leg)` of a span are its own; those of several, `together` of their latencies gives.
        """
        query = sa.select(msrepl_deliveries).where(
            msrepl_deliveries.c.publication_id == record.publication_id,
            msrepl_deliveries.c.subscription_id == subscription.subscription_id,
            msrepl_deliveries.c.time > since - _HOUR,
            _end() > since,
        )
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(msrepl_deliveries.c.time)).all()
        return [_span(row) for row in rows]

    def thin(self, record: PublicationRecord, by_minute: timedelta, by_hour: timedelta) -> int:
        """Add the rows of whole hours up that are older than `by_minute`, and remove those older than `by_hour`; return
        by how many rows there are fewer."""
        mine = msrepl_deliveries.c.publication_id == record.publication_id
        minute = msrepl_deliveries.c.seconds < _HOUR.total_seconds()
        old = sa.func.date_trunc("hour", sa.func.now() - by_minute, "UTC")
        with self._database.transaction() as connection:
            removed = connection.execute(
                msrepl_deliveries.delete().where(mine, _end() <= sa.func.now() - by_hour)
            ).rowcount
            rows = connection.execute(
                msrepl_deliveries.delete()
                .where(mine, minute, msrepl_deliveries.c.time < old)
                .returning(msrepl_deliveries)
            ).all()
            if not rows:
                return removed
            # A clock that went back lets a minute come to an hour that is added up already.
            known = msrepl_deliveries.c.time.in_({_hour_of(row) for row in rows})
            added_up = connection.execute(
                msrepl_deliveries.delete().where(mine, known).returning(msrepl_deliveries)
            ).all()
            rows = [*rows, *added_up]
            hours = _by_hour(rows)
            connection.execute(msrepl_deliveries.insert(), hours)
        return removed + len(rows) - len(hours)


def _by_hour(rows: Sequence[sa.Row[Any]]) -> list[dict[str, Any]]:
    """Return a row for each hour and subscription."""
    hours = groupby(
        sorted(rows, key=lambda row: (row.subscription_id, row.time)),
        lambda row: (row.subscription_id, _hour_of(row)),
    )
    return [_of_hour(number, hour, list(of_hour)) for (number, hour), of_hour in hours]


def _hour_of(row: sa.Row[Any]) -> datetime:
    time: datetime = row.time
    return time - (time - _EPOCH) % _HOUR


def _of_hour(subscription_id: int, hour: datetime, rows: Sequence[sa.Row[Any]]) -> dict[str, Any]:
    left = [row.undelivered_commands for row in rows if row.undelivered_commands is not None]
    return {
        "subscription_id": subscription_id,
        "time": hour,
        "publication_id": rows[0].publication_id,
        "seconds": int(_HOUR.total_seconds()),
        "transactions": sum(row.transactions for row in rows),
        "commands": sum(row.commands for row in rows),
        "undelivered_commands": max(left, default=None),
        "latency": together(LatencyByLeg.model_validate(row.latency) for row in rows).model_dump(mode="json"),
    }


def _locked(
    connection: sa.Connection, record: PublicationRecord, subscription: SubscriptionRecord, time: datetime
) -> sa.Row[Any]:
    """Return the row of a minute, made where it is missing: what else adds to it waits until we have."""
    connection.execute(
        insert(msrepl_deliveries).values(**_nothing_yet(record, subscription), time=time).on_conflict_do_nothing()
    )
    return connection.execute(sa.select(msrepl_deliveries).where(_is(subscription, time)).with_for_update()).one()


def _nothing_yet(record: PublicationRecord, subscription: SubscriptionRecord) -> dict[str, object]:
    """Return the row of a minute without the minute, as it begins."""
    return {
        "subscription_id": subscription.subscription_id,
        "publication_id": record.publication_id,
        "seconds": int(_MINUTE.total_seconds()),
        "transactions": 0,
        "commands": 0,
        "latency": NOTHING_MEASURED.model_dump(mode="json"),
    }


def _end() -> sa.ColumnElement[datetime]:
    return msrepl_deliveries.c.time + msrepl_deliveries.c.seconds * _SECOND


def _is(subscription: SubscriptionRecord, time: datetime) -> sa.ColumnElement[bool]:
    return sa.and_(
        msrepl_deliveries.c.subscription_id == subscription.subscription_id, msrepl_deliveries.c.time == time
    )


def _span(row: sa.Row[Any]) -> DeliveredSpan:
    return DeliveredSpan(
        row.time,
        timedelta(seconds=row.seconds),
        row.transactions,
        row.commands,
        row.undelivered_commands,
        LatencyByLeg.model_validate(row.latency),
    )
