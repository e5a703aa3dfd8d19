"""`tranrepl reinitialize`: a publication, or a subscription of it, begins anew.

Source: `sp_reinitsubscription`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto

from tranrepl.connections import Connection
from tranrepl.distribution.opening import open_distribution, subscription_key
from tranrepl.distributor.database import DistributionDatabase, PublicationRecord
from tranrepl.distributor.tables import SubscriptionStatus
from tranrepl.errors import ConfigurationError
from tranrepl.jobs.requests import DistributionRequest, LogReaderRequest
from tranrepl.log_reader.opening import open_log_reader
from tranrepl.model.commands import FIRST_XACT_SEQNO, XACT_SEQNO_BYTES
from tranrepl.postgres.session import connect
from tranrepl.publisher.postgres.log_identity import read_log_identity
from tranrepl.publisher.postgres.publisher import PostgresPublisher
from tranrepl.settings.publication import Publication, SyncType
from tranrepl.subscriber.dialects import dialect_of
from tranrepl.subscriber.snapshot import fence_after


class Rows(Enum):
    """Where the Subscribers' rows come from when a publication begins anew."""

    SNAPSHOT = auto()
    """From the Publisher, where a subscription takes snapshots."""
    THERE = auto()
    """They are the Publisher's already, or will be corrected afterwards."""


def forget_log(
    publication: Publication, connections: Mapping[str, Connection], rows: Rows, say: Callable[[str], None]
) -> None:
    """Forget what is registered of the Publisher's log, stored commands among it, and drop its slot: the next setup
    makes both new. It can be done again at any point, and whatever state the slot and what is registered are in.

    Until `begin_after_registration`, or a snapshot, nothing is delivered. Raises TransientError where the slot is in
    use.
    """
    database = DistributionDatabase(connections[publication.distributor.connection])
    connection = connections[publication.publisher.connection]
    try:
        with connect(connection, "tranrepl reinitialize", autocommit=True) as session:
            publisher = PostgresPublisher(session, publication.publication)
            publisher.require_idle_slot()
            database.migrate()
            record = database.find_publication(publication.publication)
            log = read_log_identity(connection)
            if record is not None and record.publisher_system not in (None, log.system):
                say(
                    f"the other server, {record.publisher_system}, still keeps its log for slot {record.slot_name}: "
                    f"where it lives on, SELECT pg_drop_replication_slot('{record.slot_name}') there"
                )
            if record is not None:
                _fence_off(publication, connections, record)
                database.forget_log(
                    record,
                    {
                        it.name: SubscriptionStatus.SUBSCRIBED
                        if rows is Rows.SNAPSHOT and it.sync_type is SyncType.AUTOMATIC
                        else SubscriptionStatus.INACTIVE
                        for it in publication.subscriptions
                    },
                )
                say(f"forgot stored commands and registration of publication {publication.publication}")
            for done in publisher.drop_slot():
                say(done)
    finally:
        database.close()


def _fence_off(publication: Publication, connections: Mapping[str, Connection], record: PublicationRecord) -> None:
    """End deliveries that are on their way: the new beginning may have a watermark under another key."""
    publisher = connections[publication.publisher.connection]
    for it in publication.subscriptions if record.publisher_system is not None else ():
        key, connection = (
            subscription_key(publication, publisher, record.publisher_system, it.name),
            connections[it.connection],
        )
        with dialect_of(connection).subscriber(connection, key, "tranrepl reinitialize") as subscriber:
            if subscriber.find_watermark() is not None:
                watermark = subscriber.position().watermark
                subscriber.move_watermark(watermark, fence_after(watermark))


def begin_after_registration(publication: Publication, connections: Mapping[str, Connection], name: str) -> bytes:
    """Let a subscription begin where the log is registered from, and be active: it has all that was committed before.
    Returns its watermark."""
    request = DistributionRequest(publication=publication, subscription=name)
    with open_distribution(request, connections) as opened:
        position = opened.subscriber.position()
        start = (max(opened.record.start_lsn or 0, 1) - 1).to_bytes(XACT_SEQNO_BYTES, "big")
        opened.subscriber.move_watermark(position.watermark, start)
        done = "begins where the log is registered from, by an administrator"
        opened.database.record_administration(opened.record, opened.subscription, start, done)
        opened.database.set_subscription_status(opened.subscription, SubscriptionStatus.ACTIVE)
    return start


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
        watermark = opened.subscriber.position().watermark
        start = opened.record.registered_xact_seqno or FIRST_XACT_SEQNO
        opened.subscriber.move_watermark(watermark, start)
        opened.database.forget_snapshots(opened.subscription)
        opened.database.set_subscription_status(opened.subscription, SubscriptionStatus.ACTIVE)
    return start
