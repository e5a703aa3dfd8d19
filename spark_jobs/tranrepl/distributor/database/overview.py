"""All publications of a distribution database at a glance: a few queries, whatever their number.

No server but the database is asked: a Subscriber's watermark is the one that its last run recorded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.selectable import LateralFromClause

from tranrepl.distributor.database.connection import DatabaseConnection
from tranrepl.distributor.database.healing import (
    Aftermath,
    compared_all,
    ended_acknowledged,
    ended_well,
    heals_snapshot,
    is_healed,
    stopped_snapshot,
)
from tranrepl.distributor.tables import (
    RunStatus,
    SubscriptionStatus,
    msdistribution_history,
    mslogreader_history,
    mspublications,
    msrepl_batches,
    msrepl_errors,
    mssubscriptions,
)
from tranrepl.errors import VALIDATION_FAILED

_NO_SEQNO = b""


@dataclass(frozen=True, slots=True)
class AgentRun:
    """The newest history row of an agent."""

    status: RunStatus
    time: datetime
    comments: str
    acknowledged: bool
    """A person has acknowledged its error."""

    @property
    def standing(self) -> RunStatus:
        """How it ended for whoever looks at what is wrong: well, once its error is acknowledged."""
        return RunStatus.SUCCEED if self.acknowledged else self.status


@dataclass(frozen=True, slots=True)
class AgentError:
    """The newest error of an agent. `healed`: it is over (`healing`)."""

    time: datetime
    text: str
    xact_seqno: bytes | None
    """The transaction that could not be applied; None where it was none of a transaction, as a failed validation."""
    healed: bool
    acknowledged_at: datetime | None
    acknowledged_by: str | None


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is stored and not delivered; the batch that the watermark is inside of counts as a whole."""

    commands: int
    since: datetime | None
    """When the first of it was committed; None where all is delivered."""


@dataclass(frozen=True, slots=True)
class SubscriptionOverview:
    """Where a subscription stands."""

    subscription: str
    status: SubscriptionStatus
    last_run: AgentRun | None
    last_error: AgentError | None
    backlog: Backlog
    delivery_rate: float | None
    """Commands a second of the last run that delivered; None before the first."""
    latency_ms: int | None
    """From commit to commit, of the last run that delivered; None before the first."""
    latencies: Sequence[int | None]
    """The longest latency of each part of the time looked back at, in milliseconds; None where nothing was
    delivered."""


@dataclass(frozen=True, slots=True)
class PublicationOverview:
    """Where a publication's log reader and subscriptions stand."""

    publication: str
    publisher_db: str
    store: str
    last_run: AgentRun | None
    last_error: AgentError | None
    stored_commands: int
    subscriptions: Sequence[SubscriptionOverview]


class Overview:
    """Queries over all publications at once."""

    def __init__(self, database: DatabaseConnection) -> None:
        self._database = database

    def of(self, names: Collection[str], within: timedelta, parts: int) -> list[PublicationOverview]:
        """Return the publications of these names that are registered, in the order of their names.

        Latencies are of the time `within`, until now, in so many `parts`. Raises ConfigurationError where another
        version made the tables, TransientError where the database is away.
        """
        with self._database.transaction() as connection:
            reading = _Reading(connection, names)
            subscriptions = reading.subscriptions(reading.latencies(within, parts), parts)
            return [
                PublicationOverview(
                    publication=row.publication,
                    publisher_db=row.publisher_db,
                    store=row.store,
                    last_run=_run(row),
                    last_error=_error(row, Aftermath(row.good_time)),
                    stored_commands=int(row.stored),
                    subscriptions=subscriptions[row.publication_id],
                )
                for row in reading.publications()
            ]


@dataclass(frozen=True, slots=True)
class _Reading:
    connection: sa.Connection
    names: Collection[str]

    def publications(self) -> Sequence[sa.Row[Any]]:
        publication = mspublications.c
        stored = (
            sa.select(sa.func.coalesce(sa.func.sum(msrepl_batches.c.commands), 0))
            .where(msrepl_batches.c.publication_id == publication.publication_id)
            .scalar_subquery()
        )
        newest = _newest(mslogreader_history, mslogreader_history.c.publication_id == publication.publication_id)
        error = _newest_error(publication.publication_id, msrepl_errors.c.subscription.is_(None))
        good = _newest_good(mslogreader_history, mslogreader_history.c.publication_id == publication.publication_id)
        query = (
            sa.select(publication.publication_id, publication.publication, publication.publisher_db, publication.store)
            .add_columns(stored.label("stored"), *_columns_of_run(newest), *_columns_of_error(error, good))
            .select_from(_joined(mspublications, newest, error, good))
            .where(publication.publication.in_(self.names))
            .order_by(publication.publication)
        )
        return self.connection.execute(query).all()

    def subscriptions(
        self, latencies: Mapping[int, Mapping[int, int]], parts: int
    ) -> Mapping[int, Sequence[SubscriptionOverview]]:
        found: dict[int, list[SubscriptionOverview]] = defaultdict(list)
        for row in self.connection.execute(self._subscriptions()):
            mine = latencies.get(row.subscription_id, {})
            since = Aftermath(
                row.good_time, row.validated_time, row.copied_time, bytes(row.watermark), row.undelivered > 0
            )
            found[row.publication_id].append(
                SubscriptionOverview(
                    subscription=row.subscription,
                    status=SubscriptionStatus(row.status),
                    last_run=_run(row),
                    last_error=_error(row, since),
                    backlog=Backlog(int(row.undelivered), row.since),
                    delivery_rate=row.delivery_rate,
                    latency_ms=row.delivery_latency,
                    latencies=[mine.get(part) for part in range(parts)],
                )
            )
        return found

    def _subscriptions(self) -> sa.Select[Any]:
        subscription, history = mssubscriptions.c, msdistribution_history.c
        mine = history.subscription_id == subscription.subscription_id
        newest = _newest(msdistribution_history, mine)
        delivered = _newest(msdistribution_history, mine & (history.delivery_rate > 0), "delivered")
        known = _newest(msdistribution_history, mine & history.xact_seqno.is_not(None), "known")
        error = _newest_error(subscription.publication_id, msrepl_errors.c.subscription == subscription.subscription)
        watermark = sa.func.coalesce(known.c.xact_seqno, subscription.subscription_seqno, _NO_SEQNO)
        backlog = (
            sa.select(
                sa.func.coalesce(sa.func.sum(msrepl_batches.c.commands), 0).label("undelivered"),
                sa.func.min(msrepl_batches.c.first_commit_time).label("since"),
            )
            .where(
                msrepl_batches.c.publication_id == subscription.publication_id,
                msrepl_batches.c.last_xact_seqno > watermark,
            )
            .lateral("backlog")
        )
        good = _newest_good(msdistribution_history, mine)
        publications = mssubscriptions.join(
            mspublications, mspublications.c.publication_id == subscription.publication_id
        )
        validated, copied = _newest_validation(mine, error), _newest_snapshot(mine, error)
        joined = _joined(publications, newest, delivered, known, error, good, validated, copied)
        return (
            sa.select(subscription.publication_id, subscription.subscription_id, subscription.subscription)
            .add_columns(subscription.status, delivered.c.delivery_rate, delivered.c.delivery_latency)
            .add_columns(*_columns_of_run(newest), backlog.c.undelivered, backlog.c.since)
            .add_columns(*_columns_of_error(error, good), watermark.label("watermark"))
            .add_columns(validated.c.time.label("validated_time"), copied.c.time.label("copied_time"))
            .select_from(joined.join(backlog, sa.true()))
            .where(mspublications.c.publication.in_(self.names))
            .order_by(subscription.subscription)
        )

    def latencies(self, within: timedelta, parts: int) -> Mapping[int, Mapping[int, int]]:
        """Return the longest latency of each part of the time in which something was delivered, by subscription."""
        history = msdistribution_history.c
        since = sa.func.now() - within
        seconds = sa.func.extract("epoch", history.time - since)
        part = sa.cast(sa.func.floor(seconds * parts / within.total_seconds()), sa.Integer)
        query = (
            sa.select(history.subscription_id, sa.func.least(part, parts - 1), sa.func.max(history.delivery_latency))
            .join(mspublications, mspublications.c.publication_id == history.publication_id)
            .where(mspublications.c.publication.in_(self.names), history.time >= since)
            .where(history.delivery_latency.is_not(None))
            .group_by(history.subscription_id, part)
        )
        found: dict[int, dict[int, int]] = defaultdict(dict)
        for subscription_id, at, longest in self.connection.execute(query):
            found[subscription_id][at] = longest
        return found


def _newest(history: sa.Table, chosen: sa.ColumnElement[bool], name: str = "newest") -> LateralFromClause:
    rows = sa.select(history, ended_acknowledged(history).label("acknowledged")).where(chosen)
    return rows.order_by(history.c.id.desc()).limit(1).lateral(name)


def _newest_error(publication_id: sa.ColumnElement[int], chosen: sa.ColumnElement[bool]) -> LateralFromClause:
    errors = msrepl_errors.c
    mine = sa.and_(errors.publication_id == publication_id, chosen, ~errors.skipped)
    rows = sa.select(errors.time, errors.error_code, errors.error_text, errors.xact_seqno)
    rows = rows.add_columns(errors.acknowledged_at, errors.acknowledged_by)
    rows = rows.add_columns(stopped_snapshot().label("of_snapshot")).where(mine)
    return rows.order_by(errors.id.desc()).limit(1).lateral("error")


def _newest_good(history: sa.Table, mine: sa.ColumnElement[bool]) -> LateralFromClause:
    return _newest(history, mine & ended_well(history), "good")


def _newest_validation(mine: sa.ColumnElement[bool], error: LateralFromClause) -> LateralFromClause:
    """Return the newest validation that passed since the error, where that is a validation's; otherwise none."""
    history = msdistribution_history
    since = error.c.error_code.startswith(VALIDATION_FAILED) & (history.c.time > error.c.time)
    return _newest(history, mine & since & compared_all(history), "validated")


def _newest_snapshot(mine: sa.ColumnElement[bool], error: LateralFromClause) -> LateralFromClause:
    """Return the newest run that heals the error, where that is a snapshot's; otherwise none."""
    history = msdistribution_history
    since = error.c.of_snapshot & (history.c.time > error.c.time)
    return _newest(history, mine & since & heals_snapshot(history), "copied")


def _joined(table: sa.FromClause, *each: LateralFromClause) -> sa.FromClause:
    for it in each:
        table = table.outerjoin(it, sa.true())
    return table


def _columns_of_run(newest: LateralFromClause) -> list[sa.ColumnElement[Any]]:
    return [newest.c.runstatus, newest.c.time, newest.c.comments, newest.c.acknowledged]


def _columns_of_error(error: LateralFromClause, good: LateralFromClause) -> list[sa.ColumnElement[Any]]:
    own = [error.c.time.label("error_time"), error.c.xact_seqno.label("error_seqno")]
    said = [error.c.error_code, error.c.error_text, error.c.of_snapshot]
    said += [error.c.acknowledged_at, error.c.acknowledged_by]
    return [*own, *said, good.c.time.label("good_time")]


def _run(row: sa.Row[Any]) -> AgentRun | None:
    if row.runstatus is None:
        return None
    return AgentRun(RunStatus(row.runstatus), row.time, row.comments, row.acknowledged)


def _error(row: sa.Row[Any], since: Aftermath) -> AgentError | None:
    if row.error_time is None:
        return None
    seqno = None if row.error_seqno is None else bytes(row.error_seqno)
    healed = is_healed(
        row.error_time,
        row.error_code,
        seqno,
        since,
        of_snapshot=row.of_snapshot,
        acknowledged=row.acknowledged_at is not None,
    )
    return AgentError(row.error_time, row.error_text, seqno, healed, row.acknowledged_at, row.acknowledged_by)
