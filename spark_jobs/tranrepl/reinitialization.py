"""`tranrepl reinitialize`: a subscription begins anew, from rows that were loaded by hand.

Source: `sp_reinitsubscription`, for subscriptions without a snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping

from tranrepl.commands import FIRST_XACT_SEQNO
from tranrepl.connections import Connection
from tranrepl.distribution.opening import open_distribution
from tranrepl.distributor.tables import SubscriptionStatus
from tranrepl.errors import ConfigurationError
from tranrepl.jobs import DistributionRequest, LogReaderRequest
from tranrepl.log_reader.opening import open_log_reader
from tranrepl.settings import Publication


def reinitialize(publication: Publication, connections: Mapping[str, Connection], name: str) -> bytes:
    """Let a subscription begin after the last transaction that is stored, and be active. Returns its watermark.

    Raises ConfigurationError where the Publisher's log still holds changes: whether the rows that were loaded have
    them cannot be told.
    """
    with open_log_reader(LogReaderRequest(publication=publication), connections) as reader:
        if reader.publisher.probe(reader.publisher.end_of_log()).found_change:
            raise ConfigurationError(
                f"publication {publication.publication}: the Publisher's log holds changes still to be read",
                remedy="while nobody writes at the Publisher: run `tranrepl log-reader FILE`, load its rows into the "
                "Subscriber, and only then reinitialize",
            )
    request = DistributionRequest(publication=publication, subscription=name)
    with open_distribution(request, connections) as opened:
        watermark = opened.subscriber.standing().watermark
        start = opened.record.registered_xact_seqno or FIRST_XACT_SEQNO
        opened.subscriber.move_watermark(watermark, start)
        opened.database.forget_snapshots(opened.subscription)
        opened.database.set_subscription_status(opened.subscription, SubscriptionStatus.ACTIVE)
    return start
