"""`tranrepl status`: where the log reader and every subscription stand."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from pydantic import BaseModel

from tranrepl.connections import Connection
from tranrepl.distribution.opening import open_distribution
from tranrepl.distributor.database import DistributionDatabase
from tranrepl.distributor.tables import RunStatus
from tranrepl.jobs import DistributionRequest
from tranrepl.postgres import connect
from tranrepl.publisher.postgres import PostgresPublisher
from tranrepl.settings import Publication


class LastRun(BaseModel):
    """The newest history row."""

    status: str
    time: datetime
    comments: str


class LogReaderStatus(BaseModel):
    slot: str | None
    """State of the slot; None where it does not exist."""
    unread_log_bytes: int | None
    registered_xact_seqno: str | None
    last_run: LastRun | None


class SubscriptionStatus(BaseModel):
    subscription: str
    watermark: str
    undelivered_transactions: int
    """In batches not delivered to their end; an upper bound where delivery stands inside a batch."""
    undelivered_commands: int
    delivered_commands: dict[str, int]
    """By article, since the subscription was created."""
    last_run: LastRun | None


class PublicationStatus(BaseModel):
    publication: str
    log_reader: LogReaderStatus
    subscriptions: list[SubscriptionStatus]


def status(publication: Publication, connections: Mapping[str, Connection]) -> PublicationStatus:
    """Read the state at Publisher, Distributor and Subscribers. Raises ConfigurationError where it is not set up."""
    return PublicationStatus(
        publication=publication.publication,
        log_reader=_log_reader(publication, connections),
        subscriptions=[
            _subscription(publication, connections, subscription.name) for subscription in publication.subscriptions
        ],
    )


def _log_reader(publication: Publication, connections: Mapping[str, Connection]) -> LogReaderStatus:
    database = DistributionDatabase(connections[publication.distributor.connection])
    try:
        record = database.publication(publication.publication)
        last = database.last_history(record)
    finally:
        database.close()
    with connect(connections[publication.publisher.connection], "tranrepl status", autocommit=True) as session:
        publisher = PostgresPublisher(session, publication.publication)
        slot = publisher.slot()
        unread = publisher.end_of_log() - slot.confirmed_flush_lsn if slot else None
    return LogReaderStatus(
        slot=slot.state if slot else None,
        unread_log_bytes=unread,
        registered_xact_seqno=record.registered_xact_seqno.hex() if record.registered_xact_seqno else None,
        last_run=_last_run(last),
    )


def _subscription(publication: Publication, connections: Mapping[str, Connection], name: str) -> SubscriptionStatus:
    request = DistributionRequest(publication=publication, subscription=name)
    with open_distribution(request, connections) as opened:
        watermark = opened.subscriber.watermark()
        pending = opened.database.batches_after(opened.record, watermark)
        return SubscriptionStatus(
            subscription=name,
            watermark=watermark.hex(),
            undelivered_transactions=sum(batch.transactions for batch in pending),
            undelivered_commands=sum(batch.commands for batch in pending),
            delivered_commands=opened.database.delivered_commands(opened.record, opened.subscription),
            last_run=_last_run(opened.database.last_history(opened.record, opened.subscription)),
        )


def _last_run(row: Mapping[str, object] | None) -> LastRun | None:
    if row is None:
        return None
    name = RunStatus(int(str(row["runstatus"]))).name.lower()
    return LastRun.model_validate({"status": name, "time": row["time"], "comments": row["comments"]})
