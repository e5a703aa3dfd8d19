"""State of the agents: log readers and subscriptions with their backlog, latency, last run and last error. A few
queries answer it for all publications, of any number.

No server but the database is asked: a Subscriber's watermark is the one that its last run recorded, unless the caller
has asked the Subscriber.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, TypedDict

import sqlalchemy as sa
from sqlalchemy.sql.selectable import LateralFromClause

from tranrepl.distributor.database.connection import DatabaseConnection
from tranrepl.distributor.database.errors import RecordedError, errors_of_ids, is_of_validation
from tranrepl.distributor.database.healing import ended_acknowledged
from tranrepl.distributor.database.publications import PublicationRecord
from tranrepl.distributor.database.subscriptions import SubscriptionRecord
from tranrepl.distributor.tables import (
    WITHOUT_SNAPSHOT,
    RunStatus,
    SubscriptionStatus,
    msdistribution_history,
    mslogreader_history,
    mspublications,
    msrepl_batches,
    msrepl_errors,
    mssubscriptions,
)
from tranrepl.model.commands import FIRST_XACT_SEQNO
from tranrepl.settings.publication import Publication

EXPIRING_SHARE = 0.8
"""The part of max_distretention after which a subscription is about to expire."""
_ENDED_WELL = (RunStatus.SUCCEED, RunStatus.IDLE)
_DELIVERED_WELL = (RunStatus.SUCCEED, RunStatus.IN_PROGRESS, RunStatus.IDLE)


class SubscriptionState(StrEnum):
    """In Replication Monitor's words, the worst first."""

    EXPIRED = "Expired"
    """Deactivated: it must be reinitialized."""
    FAILED = "Failed"
    ROWS_DIFFER = "Rows differ"
    """A validation has found rows that differ, and none of all articles has passed since."""
    PERFORMANCE_CRITICAL = "Performance critical"
    EXPIRING_SOON = "Expiring soon"
    UNINITIALIZED = "Uninitialized"
    RETRYING = "Retrying failed command"
    IDLE = "Idle"
    RUNNING = "Running"


WRONG_STATES = frozenset(
    {
        SubscriptionState.EXPIRED,
        SubscriptionState.FAILED,
        SubscriptionState.ROWS_DIFFER,
        SubscriptionState.PERFORMANCE_CRITICAL,
        SubscriptionState.EXPIRING_SOON,
        SubscriptionState.RETRYING,
    }
)
"""Those in which somebody should look."""


@dataclass(frozen=True, slots=True)
class NewestRun:
    """The newest history row of an agent."""

    status: RunStatus
    time: datetime
    comments: str
    acknowledged: bool
    """A person has acknowledged its error."""

    @property
    def outcome(self) -> RunStatus:
        """How it ended, as far as something is wrong: well, once its error is acknowledged."""
        return RunStatus.SUCCEED if self.acknowledged else self.status

    @property
    def failed(self) -> bool:
        return self.outcome in (RunStatus.FAIL, RunStatus.RETRY)


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is stored and not delivered; nothing, as long as a subscription waits for its snapshot."""

    transactions: int
    commands: int
    since: datetime | None
    """When the first of it was committed; None where all is delivered."""
    at_most: bool
    """The watermark is inside of a batch, which counts as a whole."""


@dataclass(frozen=True, slots=True)
class SubscriptionOverview:
    """State of a subscription."""

    subscription: str
    status: SubscriptionStatus
    watermark: bytes
    last_run: NewestRun | None
    last_error: RecordedError | None
    """Newest unresolved error; where there is none, the newest that is no skipped command."""
    rows_differ: RecordedError | None
    """Newest error of a validation, as long as it is unresolved."""
    is_stopped: bool
    """Whether its newest error of a delivery or a snapshot is unresolved: a later run may have had nothing to do."""
    open_errors: int
    """How many of its errors are those of `tranrepl.distributor.database.errors.open_errors`."""
    backlog: Backlog
    delivery_rate: float | None
    """Commands a second of the last run that delivered without an error, else of all on average; None before the first.
    Source: `sp_replmonitorsubscriptionpendingcmds`."""
    last_latency_seconds: float | None
    """From commit to commit, of the last run that delivered; None before the first."""
    latencies: Sequence[int | None] = ()
    """The longest latency of each part of the time looked back at, in milliseconds; None where nothing was
    delivered."""

    @property
    def latency_seconds(self) -> float | None:
        """How long the first undelivered command has waited; None where nothing is undelivered."""
        since = self.backlog.since
        return None if since is None else max(0.0, (datetime.now(UTC) - since).total_seconds())

    @property
    def estimated_seconds(self) -> float | None:
        """Seconds to deliver the backlog, at the rate of the last runs; None where no rate was measured, or where an
        error stops it: nothing is delivered then."""
        last_failed = self.last_run is not None and self.last_run.failed
        failed = last_failed or self.is_stopped or self.status is SubscriptionStatus.INACTIVE
        return None if failed or self.delivery_rate is None else self.backlog.commands / self.delivery_rate

    def is_slow(self, publication: Publication) -> bool:
        """Return whether the first undelivered command has waited for the publication's `latency_threshold`."""
        latency, threshold = self.latency_seconds, publication.latency_threshold
        return latency is not None and threshold is not None and latency >= threshold

    def expires_soon(self, publication: Publication) -> bool:
        """Return whether clean-up deactivates the subscription soon, unless it delivers."""
        longest = publication.distributor.max_distretention * 3600
        return (self.latency_seconds or 0.0) >= longest * EXPIRING_SHARE

    def state(self, publication: Publication) -> SubscriptionState:
        """Return the state, the worst of those that hold."""
        run = self.last_run.outcome if self.last_run is not None else None
        found = {
            SubscriptionState.EXPIRED: self.status is SubscriptionStatus.INACTIVE,
            SubscriptionState.FAILED: run is RunStatus.FAIL or (self.is_stopped and run in _ENDED_WELL),
            SubscriptionState.ROWS_DIFFER: self.rows_differ is not None,
            SubscriptionState.PERFORMANCE_CRITICAL: self.is_slow(publication),
            SubscriptionState.EXPIRING_SOON: self.expires_soon(publication),
            SubscriptionState.UNINITIALIZED: run is None or self.status in WITHOUT_SNAPSHOT,
            SubscriptionState.RETRYING: run is RunStatus.RETRY,
            SubscriptionState.RUNNING: run in (RunStatus.START, RunStatus.IN_PROGRESS),
        }
        return next((state for state, holds in found.items() if holds), SubscriptionState.IDLE)


@dataclass(frozen=True, slots=True)
class PublicationOverview:
    """State of a publication's log reader and of its subscriptions."""

    publication: str
    publisher_db: str
    store: str
    last_run: NewestRun | None
    last_error: RecordedError | None
    stored_commands: int
    subscriptions: Sequence[SubscriptionOverview] = ()


class Overview:
    """Queries for the state of agents."""

    def __init__(self, database: DatabaseConnection) -> None:
        self._database = database

    def of(self, names: Collection[str], within: timedelta, parts: int) -> list[PublicationOverview]:
        """Return the publications of these names that are registered, in the order of their names.

        Latencies are of the time `within`, until now, in so many `parts`. Raises ConfigurationError where another
        version made the tables, TransientError where the database is away.
        """
        chosen = mspublications.c.publication.in_(names)
        with self._database.transaction() as connection:
            latencies = _latencies(connection, chosen, within, parts)
            subscriptions: dict[int, list[SubscriptionOverview]] = defaultdict(list)
            for row, found in _subscriptions(connection, chosen, {}):
                longest = latencies.get(row.subscription_id, {})
                each = [longest.get(part) for part in range(parts)]
                subscriptions[row.publication_id].append(replace(found, latencies=each))
            return [
                replace(found, subscriptions=subscriptions[row.publication_id])
                for row, found in _publications(connection, chosen)
            ]

    def log_reader(self, record: PublicationRecord) -> PublicationOverview:
        """Return the state of one publication's log reader, without the subscriptions."""
        with self._database.transaction() as connection:
            ((_, found),) = _publications(connection, mspublications.c.publication_id == record.publication_id)
        return found

    def subscription(self, subscription: SubscriptionRecord, watermark: bytes | None) -> SubscriptionOverview:
        """Return the state of one subscription. `watermark`: the Subscriber's, where that gave it."""
        number = subscription.subscription_id
        with self._database.transaction() as connection:
            known = {} if watermark is None else {number: watermark}
            ((_, found),) = _subscriptions(connection, mssubscriptions.c.subscription_id == number, known)
        return found


def _publications(
    connection: sa.Connection, chosen: sa.ColumnElement[bool]
) -> list[tuple[sa.Row[Any], PublicationOverview]]:
    publication = mspublications.c
    stored = (
        sa.select(sa.func.coalesce(sa.func.sum(msrepl_batches.c.commands), 0))
        .where(msrepl_batches.c.publication_id == publication.publication_id)
        .scalar_subquery()
    )
    newest = _newest(mslogreader_history, mslogreader_history.c.publication_id == publication.publication_id)
    error = _newest_error(publication.publication_id, msrepl_errors.c.subscription.is_(None))
    query = (
        sa.select(publication.publication_id, publication.publication, publication.publisher_db, publication.store)
        .add_columns(stored.label("stored"), *_columns_of_run(newest), error.c.id.label("error_id"))
        .select_from(_joined(mspublications, newest, error))
        .where(chosen)
        .order_by(publication.publication)
    )
    rows = connection.execute(query).all()
    errors = errors_of_ids(connection, {it.error_id for it in rows if it.error_id is not None})
    return [
        (
            row,
            PublicationOverview(
                publication=row.publication,
                publisher_db=row.publisher_db,
                store=row.store,
                last_run=_run(row),
                last_error=errors.get(row.error_id),
                stored_commands=int(row.stored),
            ),
        )
        for row in rows
    ]


def _subscriptions(
    connection: sa.Connection, chosen: sa.ColumnElement[bool], watermarks: Mapping[int, bytes]
) -> list[tuple[sa.Row[Any], SubscriptionOverview]]:
    """Return the chosen subscriptions, in the order of their names. `watermarks`: those that Subscribers gave."""
    rows = connection.execute(_select_subscriptions(chosen, watermarks)).all()
    found = {it.subscription_id: bytes(it.watermark) for it in rows}
    numbers = {number for it in rows for number in (it.error_id, it.validation_error_id) if number is not None}
    errors = errors_of_ids(connection, numbers, found)
    return [
        (
            row,
            SubscriptionOverview(
                subscription=row.subscription,
                status=SubscriptionStatus(row.status),
                watermark=bytes(row.watermark),
                last_run=_run(row),
                **_newest_errors(errors.get(row.error_id), errors.get(row.validation_error_id)),
                backlog=Backlog(int(row.transactions), int(row.commands), row.since, at_most=row.inside),
                delivery_rate=row.delivery_rate,
                last_latency_seconds=None if row.delivery_latency is None else row.delivery_latency / 1000,
            ),
        )
        for row in rows
    ]


def _select_subscriptions(chosen: sa.ColumnElement[bool], watermarks: Mapping[int, bytes]) -> sa.Select[Any]:
    subscription, history, batches = mssubscriptions.c, msdistribution_history.c, msrepl_batches.c
    mine = history.subscription_id == subscription.subscription_id
    newest = _newest(msdistribution_history, mine)
    delivered_well = history.runstatus.in_(_DELIVERED_WELL) & (history.delivery_rate > 0)
    delivered = _newest(msdistribution_history, mine & delivered_well, "delivered")
    average = sa.select(sa.func.avg(history.delivery_rate)).where(mine, history.delivery_rate > 0).scalar_subquery()
    measured = _newest(msdistribution_history, mine & history.delivery_latency.is_not(None), "measured")
    known = _newest(msdistribution_history, mine & history.xact_seqno.is_not(None), "known")
    its_errors = msrepl_errors.c.subscription == subscription.subscription
    error = _newest_error(subscription.publication_id, its_errors & ~is_of_validation())
    validated = _newest_error(subscription.publication_id, its_errors & is_of_validation(), "validation_error")
    recorded = sa.func.coalesce(known.c.xact_seqno, subscription.subscription_seqno, FIRST_XACT_SEQNO)
    given = {number: sa.literal(it, sa.LargeBinary) for number, it in watermarks.items()}
    watermark = sa.case(given, value=subscription.subscription_id, else_=recorded) if given else recorded
    backlog = (
        sa.select(
            sa.func.coalesce(sa.func.sum(batches.transactions), 0).label("transactions"),
            sa.func.coalesce(sa.func.sum(batches.commands), 0).label("commands"),
            sa.func.min(batches.first_commit_time).label("since"),
            sa.func.coalesce(sa.func.bool_or(batches.first_xact_seqno <= watermark), sa.false()).label("inside"),
        )
        .where(
            batches.publication_id == subscription.publication_id,
            batches.last_xact_seqno > watermark,
            subscription.status.not_in(WITHOUT_SNAPSHOT),
        )
        .lateral("backlog")
    )
    publications = mssubscriptions.join(mspublications, mspublications.c.publication_id == subscription.publication_id)
    return (
        sa.select(subscription.publication_id, subscription.subscription_id, subscription.subscription)
        .add_columns(subscription.status, watermark.label("watermark"), error.c.id.label("error_id"))
        .add_columns(validated.c.id.label("validation_error_id"))
        .add_columns(sa.func.coalesce(delivered.c.delivery_rate, average).label("delivery_rate"))
        .add_columns(measured.c.delivery_latency, *_columns_of_run(newest))
        .add_columns(backlog.c.transactions, backlog.c.commands, backlog.c.since, backlog.c.inside)
        .select_from(_joined(publications, newest, delivered, measured, known, error, validated, backlog))
        .where(chosen)
        .order_by(subscription.subscription)
    )


def _latencies(
    connection: sa.Connection, chosen: sa.ColumnElement[bool], within: timedelta, parts: int
) -> Mapping[int, Mapping[int, int]]:
    """Return the longest latency of each part of the time in which something was delivered, by subscription."""
    history = msdistribution_history.c
    since = sa.func.now() - within
    seconds = sa.func.extract("epoch", history.time - since)
    part = sa.cast(sa.func.floor(seconds * parts / within.total_seconds()), sa.Integer)
    query = (
        sa.select(history.subscription_id, sa.func.least(part, parts - 1), sa.func.max(history.delivery_latency))
        .join(mspublications, mspublications.c.publication_id == history.publication_id)
        .where(chosen, history.time >= since, history.delivery_latency.is_not(None))
        .group_by(history.subscription_id, part)
    )
    found: dict[int, dict[int, int]] = defaultdict(dict)
    for subscription_id, at, longest in connection.execute(query):
        found[subscription_id][at] = longest
    return found


def _newest(history: sa.Table, chosen: sa.ColumnElement[bool], name: str = "newest") -> LateralFromClause:
    rows = sa.select(history, ended_acknowledged(history).label("acknowledged")).where(chosen)
    return rows.order_by(history.c.id.desc()).limit(1).lateral(name)


class _NewestErrors(TypedDict):
    last_error: RecordedError | None
    rows_differ: RecordedError | None
    is_stopped: bool
    open_errors: int


def _newest_errors(*each: RecordedError | None) -> _NewestErrors:
    """Return what the newest error of a delivery and that of a validation say."""
    found = [it for it in each if it is not None]
    opened = [it for it in found if it.unresolved]
    return {
        "last_error": max(opened or found, key=lambda it: it.id, default=None),
        "rows_differ": next((it for it in opened if it.of_validation), None),
        "is_stopped": any(not it.of_validation for it in opened),
        "open_errors": len(opened),
    }


def _newest_error(
    publication_id: sa.ColumnElement[int], chosen: sa.ColumnElement[bool], name: str = "error"
) -> LateralFromClause:
    """Return the newest error that is no skipped command: those stopped nothing."""
    errors = msrepl_errors.c
    rows = sa.select(errors.id).where(errors.publication_id == publication_id, chosen, ~errors.skipped)
    return rows.order_by(errors.id.desc()).limit(1).lateral(name)


def _joined(table: sa.FromClause, *each: LateralFromClause) -> sa.FromClause:
    for it in each:
        table = table.outerjoin(it, sa.true())
    return table


def _columns_of_run(newest: LateralFromClause) -> list[sa.ColumnElement[Any]]:
    return [newest.c.runstatus, newest.c.time, newest.c.comments, newest.c.acknowledged]


def _run(row: sa.Row[Any]) -> NewestRun | None:
    if row.runstatus is None:
        return None
    return NewestRun(RunStatus(row.runstatus), row.time, row.comments, row.acknowledged)
