"""What a distribution job opens before it delivers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tranrepl.connections import Connection
from tranrepl.distributor.database import DistributionDatabase, PublicationRecord, SubscriptionRecord
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
