"""The publication that is looked at, and its subscriptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from tranrepl.distributor.database.subscriptions import SubscriptionRecord, subscription_record
from tranrepl.distributor.tables import mspublications, mssubscriptions


@dataclass(frozen=True, slots=True)
class MonitoredRecord:
    """A publication, with its subscriptions by their numbers in the order of their names."""

    publication_id: int
    publication: str
    publisher_db: str
    log_name: str
    store: str
    subscriptions: Mapping[int, SubscriptionRecord]

    def name_of(self, subscription_id: int | None) -> str | None:
        """Return a subscription's name; None for the log reader."""
        return None if subscription_id is None else self.subscriptions[subscription_id].subscription

    def number_of(self, subscription: str) -> int | None:
        """Return a subscription's number; None where there is none of the name."""
        return next((number for number, it in self.subscriptions.items() if it.subscription == subscription), None)


def find_publication(connection: sa.Connection, name: str) -> MonitoredRecord | None:
    """Return the publication of this name; None where it is not set up."""
    row = connection.execute(sa.select(mspublications).where(mspublications.c.publication == name)).one_or_none()
    if row is None:
        return None
    subscriptions = connection.execute(
        sa.select(mssubscriptions)
        .where(mssubscriptions.c.publication_id == row.publication_id)
        .order_by(mssubscriptions.c.subscription)
    )
    return MonitoredRecord(
        row.publication_id,
        row.publication,
        row.publisher_db,
        row.slot_name,
        row.store,
        {it.subscription_id: subscription_record(it) for it in subscriptions},
    )


def seqno_text(seqno: bytes | None) -> str | None:
    """Return an `xact_seqno` as `sp_browsereplcmds` shows it."""
    return None if seqno is None else f"0x{bytes(seqno).hex()}"
