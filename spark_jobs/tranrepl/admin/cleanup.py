"""`tranrepl cleanup`: remove what every Subscriber has, and what is too old to be kept for one that has not."""

from __future__ import annotations

from collections.abc import Mapping

from tranrepl.connections import Connection
from tranrepl.distribution.opening import subscription_key
from tranrepl.distributor.cleanup import ActiveSubscription, Cleanup, remove_expired
from tranrepl.distributor.database import DistributionDatabase, PublicationRecord, SubscriptionRecord
from tranrepl.distributor.tables import SubscriptionStatus
from tranrepl.errors import ConfigurationError, ReplicationError
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.settings.publication import Publication
from tranrepl.subscriber.dialects import dialect_of


def clean_up(publication: Publication, connections: Mapping[str, Connection]) -> Cleanup:
    """Clean up one publication: its batches, their folders, its history.

    A Subscriber that cannot be asked keeps what it may need, and is named in the result. Raises ConfigurationError
    where the publication is not set up or its store cannot be reached from here.
    """
    database = DistributionDatabase(connections[publication.distributor.connection])
    try:
        record = database.publication(publication.publication)
        subscriptions: list[ActiveSubscription] = []
        unreachable: dict[str, str] = {}
        for subscription in database.active_subscriptions(record):
            watermark: bytes | None = None
            try:
                watermark = _needed_after(publication, connections, database, record, subscription)
            except ReplicationError as error:
                unreachable[subscription.subscription] = error.message
            subscriptions.append(ActiveSubscription(subscription, watermark))
        done = remove_expired(database, record, publication.distributor, subscriptions)
    finally:
        database.close()
    return done.model_copy(update={"unreachable": unreachable})


def _needed_after(
    publication: Publication,
    connections: Mapping[str, Connection],
    database: DistributionDatabase,
    record: PublicationRecord,
    subscription: SubscriptionRecord,
) -> bytes:
    """Of a subscription whose snapshot is on its way: the snapshot will show all up to there."""
    if subscription.status is not SubscriptionStatus.INITIATED:
        return _watermark(publication, connections, record, subscription.subscription)
    states = database.article_states(subscription).values()
    initiated = [it.xact_seqno for it in states if it.status is SubscriptionStatus.INITIATED]
    return min((it for it in initiated if it is not None), default=FIRST_XACT_SEQNO)


def _watermark(
    publication: Publication, connections: Mapping[str, Connection], record: PublicationRecord, name: str
) -> bytes:
    """Raises ReplicationError where the Subscriber does not tell."""
    connection = connections[publication.subscription(name).connection]
    publisher = connections[publication.publisher.connection]
    key = subscription_key(publication, publisher, record.publisher_system, name)
    with dialect_of(connection).subscriber(connection, key, "tranrepl cleanup") as subscriber:
        watermark = subscriber.find_watermark()
        if watermark is None:
            raise ConfigurationError(f"{subscriber.where}: the subscription is not set up there")
    return watermark
