"""`tranrepl cleanup`: remove what every Subscriber has, and what is too old to be kept for one that has not; put small
batches together."""

from __future__ import annotations

from tranrepl.distributor.cleanup import ActiveSubscription, Cleanup, remove_expired
from tranrepl.distributor.database import DistributionDatabase, PublicationRecord, SubscriptionRecord
from tranrepl.distributor.merging import merge_small_batches
from tranrepl.distributor.store_mark import require_own_store
from tranrepl.distributor.tables import SubscriptionStatus
from tranrepl.errors import ConfigurationError, ReplicationError
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.topology import Topology


def clean_up(topology: Topology) -> Cleanup:
    """Clean up one publication: its batches, their folders, its history. Small batches that stay are put together.

    A Subscriber that does not answer keeps what it may need, and is named in the result. Raises ConfigurationError
    where the publication is not set up or its store cannot be reached from here.
    """
    publication = topology.publication
    with topology.distributor() as database:
        record = database.publications.get(publication.publication)
        # What others have there is no orphan of ours.
        require_own_store(database, record.store)
        subscriptions: list[ActiveSubscription] = []
        unreachable: dict[str, str] = {}
        for subscription in database.subscriptions.active(record):
            watermark: bytes | None = None
            try:
                watermark = _needed_after(topology, database, record, subscription)
            except ReplicationError as error:
                unreachable[subscription.subscription] = error.message
            subscriptions.append(ActiveSubscription(subscription, watermark))
        done = remove_expired(database, record, publication.distributor, subscriptions)
        watermarks = {it.watermark for it in subscriptions if it.watermark is not None}
        merged = merge_small_batches(database, record, watermarks)
    return done.model_copy(update={"unreachable": unreachable, "merged_batches": merged})


def _needed_after(
    topology: Topology, database: DistributionDatabase, record: PublicationRecord, subscription: SubscriptionRecord
) -> bytes:
    """Return the transaction after which the subscription needs what is stored. A snapshot that is on its way will show
    all up to where it began."""
    if subscription.status is not SubscriptionStatus.INITIATED:
        return _watermark(topology, record, subscription.subscription)
    states = database.snapshots.article_states(subscription).values()
    initiated = [it.xact_seqno for it in states if it.status is SubscriptionStatus.INITIATED]
    return min((it for it in initiated if it is not None), default=FIRST_XACT_SEQNO)


def _watermark(topology: Topology, record: PublicationRecord, name: str) -> bytes:
    """Return the Subscriber's watermark. Raises ReplicationError where the Subscriber does not answer."""
    with topology.subscriber(name, record.publisher_system, "tranrepl cleanup") as subscriber:
        # Its last commits may have waited for no disk: after a crash it would need what they applied again.
        watermark = subscriber.find_durable_watermark()
        if watermark is None:
            raise ConfigurationError(f"{subscriber.where}: the subscription is not set up there")
    return watermark
