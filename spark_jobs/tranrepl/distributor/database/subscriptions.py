"""The subscriptions of a publication, and what each of them waits for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from tranrepl.distributor.database.connection import DatabaseConnection
from tranrepl.distributor.database.publications import PublicationRecord
from tranrepl.distributor.tables import SubscriptionStatus, mssubscriptions
from tranrepl.errors import ConfigurationError
from tranrepl.remedies import RUN_SETUP


@dataclass(frozen=True, slots=True)
class SubscriptionRecord:
    """A subscription as registered."""

    subscription_id: int
    subscription: str
    status: SubscriptionStatus
    subscriber_db: str
    subscription_seqno: bytes | None = None
    """The watermark that it began with, where a snapshot was its beginning."""


class Subscriptions:
    """What `mssubscriptions` holds."""

    def __init__(self, database: DatabaseConnection) -> None:
        self._database = database

    def set_up(
        self,
        record: PublicationRecord,
        name: str,
        subscriber_db: str,
        status: SubscriptionStatus = SubscriptionStatus.ACTIVE,
    ) -> SubscriptionRecord:
        """Register a new subscription, of this status; one that is there is left alone."""
        with self._database.transaction() as connection:
            row = self._row(connection, record, name)
            if row is None:
                added = mssubscriptions.insert().values(
                    publication_id=record.publication_id, subscription=name, subscriber_db=subscriber_db, status=status
                )
                row = connection.execute(added.returning(mssubscriptions)).one()
        return subscription_record(row)

    def find(self, record: PublicationRecord, name: str) -> SubscriptionRecord | None:
        """Return the subscription as registered; None where it is not."""
        with self._database.reading() as connection:
            row = self._row(connection, record, name)
        return None if row is None else subscription_record(row)

    def get(self, record: PublicationRecord, name: str) -> SubscriptionRecord:
        """Return the subscription as registered. Raises ConfigurationError where it is not set up."""
        with self._database.reading() as connection:
            row = self._row(connection, record, name)
        if row is None:
            raise ConfigurationError(
                f"{self._database.where}: subscription {name} of publication {record.publication} is not set up",
                remedy=RUN_SETUP,
            )
        return subscription_record(row)

    def active(self, record: PublicationRecord) -> list[SubscriptionRecord]:
        """Return those that need stored commands, now or as soon as their snapshot is there."""
        return self._of_status(record, SubscriptionStatus.ACTIVE, SubscriptionStatus.INITIATED)

    def living(self, record: PublicationRecord) -> list[SubscriptionRecord]:
        """Return all that are not deactivated."""
        return self._of_status(record, *(it for it in SubscriptionStatus if it is not SubscriptionStatus.INACTIVE))

    def _of_status(self, record: PublicationRecord, *statuses: SubscriptionStatus) -> list[SubscriptionRecord]:
        with self._database.reading() as connection:
            rows = connection.execute(
                sa.select(mssubscriptions)
                .where(
                    mssubscriptions.c.publication_id == record.publication_id,
                    mssubscriptions.c.status.in_(statuses),
                )
                .order_by(mssubscriptions.c.subscription_id)
            ).all()
        return [subscription_record(row) for row in rows]

    def set_status(self, subscription: SubscriptionRecord, status: SubscriptionStatus) -> bool:
        """Set the status. Returns whether it was another before."""
        with self._database.transaction() as connection:
            changed = connection.execute(
                mssubscriptions.update()
                .where(
                    mssubscriptions.c.subscription_id == subscription.subscription_id,
                    mssubscriptions.c.status != status,
                )
                .values(status=status)
            )
        return changed.rowcount == 1

    def _row(self, connection: sa.Connection, record: PublicationRecord, name: str) -> sa.Row[Any] | None:
        return connection.execute(
            sa.select(mssubscriptions).where(
                mssubscriptions.c.publication_id == record.publication_id, mssubscriptions.c.subscription == name
            )
        ).one_or_none()


def subscription_record(row: sa.Row[Any]) -> SubscriptionRecord:
    """Return what a row of `mssubscriptions` says."""
    seqno = row.subscription_seqno
    return SubscriptionRecord(
        row.subscription_id,
        row.subscription,
        SubscriptionStatus(row.status),
        row.subscriber_db,
        bytes(seqno) if seqno is not None else None,
    )
