"""`tranrepl status`: where the log reader and every subscription stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum

from pydantic import BaseModel

from tranrepl.connections import Connection
from tranrepl.distribution.opening import open_distribution
from tranrepl.distributor.database import Batch, DistributionDatabase, SubscriptionRecord
from tranrepl.distributor.tables import RunStatus
from tranrepl.distributor.tables import SubscriptionStatus as RegisteredStatus
from tranrepl.jobs import DistributionRequest
from tranrepl.log_reader.continuity import find_break
from tranrepl.postgres import connect
from tranrepl.publisher.postgres import PostgresPublisher
from tranrepl.settings import Publication

_WITHOUT_SNAPSHOT = (RegisteredStatus.SUBSCRIBED, RegisteredStatus.INITIATED)
_EXPIRING_SHARE = 0.8
"""Of max_distretention."""


class LastRun(BaseModel):
    """The newest history row."""

    status: str
    time: datetime
    comments: str


class LogReaderStatus(BaseModel):
    slot: str | None
    """State of the slot; None where it does not exist."""
    unread_log_bytes: int | None
    problem: str | None = None
    """Why the log cannot be read on, and the way out; None where it can."""
    waits_for: str | None = None
    """A standby that must have the log before it is read further."""
    registered_xact_seqno: str | None
    last_run: LastRun | None


class LastError(BaseModel):
    """The newest row of `msrepl_errors`."""

    number: str | None
    text: str
    time: datetime
    article: str | None
    xact_seqno: str | None
    command_id: int | None


class SubscriptionState(StrEnum):
    """In Replication Monitor's words, the worst first."""

    EXPIRED = "Expired"
    """Deactivated: it must be reinitialized."""
    ERROR = "Error"
    PERFORMANCE_CRITICAL = "Performance critical"
    EXPIRING_SOON = "Expiring soon"
    UNINITIALIZED = "Uninitialized"
    RETRYING = "Retrying failed command"
    NOT_RUNNING = "Not running"
    RUNNING = "Running"


class SubscriptionStatus(BaseModel):
    subscription: str
    state: SubscriptionState
    watermark: str
    undelivered_transactions: int
    """In batches not delivered to their end; an upper bound where delivery stands inside a batch."""
    undelivered_commands: int
    estimated_seconds: int
    """To deliver them, at the rate of the last runs; as many as commands where no rate is known."""
    waiting_articles: list[str] = []
    """Articles that wait for their snapshot, or whose snapshot is on its way."""
    stopped_articles: dict[str, str] = {}
    """Articles whose rows are not known, and why: nothing is delivered before that is settled."""
    latency_seconds: float | None
    """Age of the first undelivered command; where there is none, what the last delivery took."""
    last_error: LastError | None
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
    connection = connections[publication.publisher.connection]
    try:
        record = database.publication(publication.publication)
        last = database.last_history(record)
        with connect(connection, "tranrepl status", autocommit=True) as session:
            publisher = PostgresPublisher(session, publication.publication)
            slot = publisher.slot()
            unread = publisher.end_of_log() - slot.confirmed_flush_lsn if slot else None
            waiting: list[str] = []
            publisher.readable_end_of_log(waiting.append)
            problem = find_break(publisher, connection, database, record)
    finally:
        database.close()
    return LogReaderStatus(
        slot=slot.state if slot else None,
        unread_log_bytes=unread,
        problem=str(problem) if problem else None,
        waits_for=waiting[0] if waiting else None,
        registered_xact_seqno=record.registered_xact_seqno.hex() if record.registered_xact_seqno else None,
        last_run=_last_run(last),
    )


def _subscription(publication: Publication, connections: Mapping[str, Connection], name: str) -> SubscriptionStatus:
    request = DistributionRequest(publication=publication, subscription=name)
    with open_distribution(request, connections) as opened:
        watermark = opened.subscriber.watermark()
        uninitialized = opened.subscription.status in _WITHOUT_SNAPSHOT
        pending = [] if uninitialized else opened.database.batches_after(opened.record, watermark)
        states = opened.database.article_states(opened.subscription)
        commands = sum(batch.commands for batch in pending)
        rate = opened.database.delivery_rate(opened.record, opened.subscription)
        last = opened.database.last_history(opened.record, opened.subscription)
        latency = (
            _age(pending[0].first_commit_time)
            if pending
            else opened.database.delivery_latency(opened.record, opened.subscription)
        )
        return SubscriptionStatus(
            subscription=name,
            state=_state(publication, opened.subscription, last, pending, latency),
            watermark=watermark.hex(),
            waiting_articles=[str(it.source) for it in publication.articles]
            if uninitialized
            else [name for name, state in states.items() if state.status in _WITHOUT_SNAPSHOT],
            stopped_articles={
                name: state.reason or "" for name, state in states.items() if state.status is RegisteredStatus.INACTIVE
            },
            undelivered_transactions=sum(batch.transactions for batch in pending),
            undelivered_commands=commands,
            estimated_seconds=int(commands / rate) if rate else commands,
            latency_seconds=latency,
            last_error=_last_error(opened.database.last_error(opened.record, opened.subscription)),
            delivered_commands=opened.database.delivered_commands(opened.record, opened.subscription),
            last_run=_last_run(last),
        )


def _state(
    publication: Publication,
    subscription: SubscriptionRecord,
    last: Mapping[str, object] | None,
    pending: Sequence[Batch],
    latency: float | None,
) -> SubscriptionState:
    threshold = publication.latency_threshold
    waiting = _age(pending[0].first_commit_time) if pending else 0.0
    longest = publication.distributor.max_distretention * 3600
    run = RunStatus(int(str(last["runstatus"]))) if last else None
    found = {
        SubscriptionState.EXPIRED: subscription.status is RegisteredStatus.INACTIVE,
        SubscriptionState.ERROR: run is RunStatus.FAIL,
        SubscriptionState.PERFORMANCE_CRITICAL: bool(threshold and latency and latency >= threshold),
        SubscriptionState.EXPIRING_SOON: waiting >= longest * _EXPIRING_SHARE,
        SubscriptionState.UNINITIALIZED: run is None or subscription.status in _WITHOUT_SNAPSHOT,
        SubscriptionState.RETRYING: run is RunStatus.RETRY,
        SubscriptionState.RUNNING: run in (RunStatus.START, RunStatus.IN_PROGRESS),
    }
    return next((state for state, holds in found.items() if holds), SubscriptionState.NOT_RUNNING)


def _age(time: datetime) -> float:
    return max(0.0, (datetime.now(UTC) - time).total_seconds())


def _last_error(row: Mapping[str, object] | None) -> LastError | None:
    if row is None:
        return None
    seqno = row["xact_seqno"]
    return LastError.model_validate(
        {
            "number": row["error_code"],
            "text": row["error_text"],
            "time": row["time"],
            "article": row["article"],
            "xact_seqno": seqno.hex() if isinstance(seqno, bytes) else None,
            "command_id": row["command_id"],
        }
    )


def _last_run(row: Mapping[str, object] | None) -> LastRun | None:
    if row is None:
        return None
    name = RunStatus(int(str(row["runstatus"]))).name.lower()
    return LastRun.model_validate({"status": name, "time": row["time"], "comments": row["comments"]})
