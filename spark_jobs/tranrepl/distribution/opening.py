"""What a distribution job opens before it delivers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tranrepl.connections import Connection
from tranrepl.distributor.database import DistributionDatabase, PublicationRecord, SubscriptionRecord
from tranrepl.distributor.tables import SubscriptionStatus
from tranrepl.errors import MUST_BE_REINITIALIZED, ConfigurationError
from tranrepl.jobs import DistributionRequest
from tranrepl.settings import Publication
from tranrepl.subscriber.dialect import Subscriber, SubscriptionKey
from tranrepl.subscriber.dialects import dialect_of


@dataclass(frozen=True, slots=True)
class OpenDistribution:
    database: DistributionDatabase
    record: PublicationRecord
    subscription: SubscriptionRecord
    connection: Connection
    """Of the Subscriber."""
    distribution: Connection
    key: SubscriptionKey
    subscriber: Subscriber

    def refuse_incomplete(self, watermark: bytes) -> None:
        """Raises ConfigurationError 21074 where commands after the watermark may be gone."""
        removed = self.record.removed_xact_seqno
        inactive = self.subscription.status is SubscriptionStatus.INACTIVE
        if not inactive and (removed is None or watermark >= removed):
            return
        why = "is inactive" if inactive else f"stands at 0x{watermark.hex()}, and clean-up has removed what follows"
        raise ConfigurationError(
            f"subscription {self.subscription.subscription} of publication {self.record.publication} {why}: it must "
            "be reinitialized",
            remedy="load the Publisher's rows into its Subscriber anew, then "
            f"`tranrepl reinitialize FILE -s {self.subscription.subscription}`",
            number=MUST_BE_REINITIALIZED,
        )


def subscription_key(publication: Publication, publisher: Connection, subscription: str) -> SubscriptionKey:
    """How a subscription's rows at the Subscriber are named."""
    return SubscriptionKey(
        f"{publisher.host or ''}:{publisher.port or ''}",
        publisher.database or "",
        publication.publication,
        subscription,
    )


@contextmanager
def open_distribution(
    request: DistributionRequest, connections: Mapping[str, Connection]
) -> Iterator[OpenDistribution]:
    """Connect to the distribution database and the Subscriber; both are closed at the end."""
    publication = request.publication
    settings = publication.subscription(request.subscription)
    connection = connections[settings.connection]
    key = subscription_key(publication, connections[publication.publisher.connection], settings.name)
    database = DistributionDatabase(connections[publication.distributor.connection])
    try:
        record = database.publication(publication.publication)
        subscription = database.subscription(record, settings.name)
        with dialect_of(connection).subscriber(connection, key, "tranrepl distribution") as subscriber:
            distribution = connections[publication.distributor.connection]
            yield OpenDistribution(database, record, subscription, connection, distribution, key, subscriber)
    finally:
        database.close()
