"""Errors as they are recorded, with the command that failed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tranrepl.distributor.database.healing import (
    Aftermath,
    compared_all,
    ended_well,
    heals_snapshot,
    is_healed,
    stopped_snapshot,
)
from tranrepl.distributor.monitoring.publication import MonitoredRecord, seqno_text
from tranrepl.distributor.monitoring.watermarks import known_watermarks
from tranrepl.distributor.tables import (
    SubscriptionStatus,
    msdistribution_history,
    mslogreader_history,
    msrepl_batches,
    msrepl_errors,
    mssubscriptions,
)
from tranrepl.errors import VALIDATION_FAILED, ErrorKind


@dataclass(frozen=True, slots=True)
class RecordedError:
    """A row of `msrepl_errors`."""

    id: int
    time: datetime
    subscription: str | None
    """None for the log reader."""
    kind: ErrorKind
    number: str | None
    """SQL Server's number, and the database's own."""
    text: str
    """Message and remedy, a line each."""
    article: str | None
    key: str | None
    xact_seqno: str | None
    command_id: int | None
    command: str | None
    """As `tranrepl browse` shows it."""
    skipped: bool
    """Whether the command was left out, as `skip_errors` says."""
    healed: bool
    """Whether it is over (`tranrepl.distributor.database.healing`)."""
    not_repaired: str | None
    """Why a validation does not correct the article's rows."""
    schema_change: bool
    acknowledged_at: datetime | None
    acknowledged_by: str | None


def newest_errors(
    connection: sa.Connection,
    record: MonitoredRecord,
    count: int,
    subscription: str | None = None,
    before: int | None = None,
) -> Sequence[RecordedError]:
    """Return the newest errors, the latest first; of one subscription, earlier than an error, where that is given."""
    errors = msrepl_errors.c
    query = _select().where(errors.publication_id == record.publication_id)
    if subscription is not None:
        query = query.where(errors.subscription == subscription)
    if before is not None:
        query = query.where(errors.id < before)
    return _errors(connection, record, query.order_by(errors.id.desc()).limit(count))


def standing_errors(connection: sa.Connection, record: MonitoredRecord) -> Sequence[RecordedError]:
    """Return the newest error of each subscription that is not deactivated, where it is not healed; by their names."""
    errors = msrepl_errors.c
    living = [it.subscription for it in record.subscriptions.values() if it.status is not SubscriptionStatus.INACTIVE]
    mine = sa.and_(errors.publication_id == record.publication_id, errors.subscription.in_(living), ~errors.skipped)
    newest = sa.select(sa.func.max(errors.id)).where(mine).group_by(errors.subscription)
    query = _select().where(errors.id.in_(newest)).order_by(errors.subscription)
    return [it for it in _errors(connection, record, query) if not it.healed]


def _select() -> sa.Select[Any]:
    return sa.select(msrepl_errors, stopped_snapshot().label("of_snapshot"))


def _errors(connection: sa.Connection, record: MonitoredRecord, query: sa.Select[Any]) -> Sequence[RecordedError]:
    rows = connection.execute(query).all()
    since = _aftermath(connection, record, rows)
    return [_error(row, since[row.subscription]) for row in rows]


def _aftermath(
    connection: sa.Connection, record: MonitoredRecord, rows: Sequence[sa.Row[Any]]
) -> Mapping[str | None, Aftermath]:
    """Return where each subscription stands and, under None, the log reader."""
    found: dict[str | None, Aftermath] = defaultdict(lambda: Aftermath(None))
    of_reader = _newest_good(mslogreader_history, mslogreader_history.c.publication_id == record.publication_id)
    found[None] = Aftermath(connection.scalar(of_reader))
    stored_to = connection.scalar(
        sa.select(msrepl_batches.c.last_xact_seqno)
        .where(msrepl_batches.c.publication_id == record.publication_id)
        .order_by(msrepl_batches.c.last_xact_seqno.desc())
        .limit(1)
    )
    good, validated = _last_good(connection, record), _last_validated(connection, record, rows)
    copied = _last_copied(connection, record, rows)
    for number, mark in known_watermarks(connection, record).items():
        has_undelivered = stored_to is not None and bytes(stored_to) > mark.xact_seqno
        since = Aftermath(good.get(number), validated.get(number), copied.get(number), mark.xact_seqno, has_undelivered)
        found[record.name_of(number)] = since
    return found


def _last_good(connection: sa.Connection, record: MonitoredRecord) -> Mapping[int, datetime]:
    of_subscription = _newest_good(
        msdistribution_history, msdistribution_history.c.subscription_id == mssubscriptions.c.subscription_id
    )
    query = sa.select(mssubscriptions.c.subscription_id, of_subscription.scalar_subquery().label("time")).where(
        mssubscriptions.c.publication_id == record.publication_id
    )
    return {row.subscription_id: row.time for row in connection.execute(query)}


def _newest_good(history: sa.Table, mine: sa.ColumnElement[bool]) -> sa.Select[datetime]:
    return sa.select(history.c.time).where(mine, ended_well(history)).order_by(history.c.time.desc()).limit(1)


def _last_validated(
    connection: sa.Connection, record: MonitoredRecord, rows: Sequence[sa.Row[Any]]
) -> Mapping[int, datetime]:
    """Return when a validation of all articles last passed, of the subscriptions whose errors a validation reported."""
    failed = [it for it in rows if (it.error_code or "").startswith(VALIDATION_FAILED)]
    return _newest_since(connection, record, failed, compared_all(msdistribution_history))


def _last_copied(
    connection: sa.Connection, record: MonitoredRecord, rows: Sequence[sa.Row[Any]]
) -> Mapping[int, datetime]:
    """Return when what heals a snapshot's error last ended, of the subscriptions that have one."""
    failed = [it for it in rows if it.of_snapshot]
    return _newest_since(connection, record, failed, heals_snapshot(msdistribution_history))


def _newest_since(
    connection: sa.Connection,
    record: MonitoredRecord,
    failed: Sequence[sa.Row[Any]],
    chosen: sa.ColumnElement[bool],
) -> Mapping[int, datetime]:
    if not failed:
        return {}
    history = msdistribution_history.c
    numbers = {record.number_of(it.subscription) for it in failed}
    query = sa.select(history.subscription_id, sa.func.max(history.time).label("time")).where(
        history.subscription_id.in_(numbers),
        history.time > min(it.time for it in failed),
        chosen,
    )
    return {row.subscription_id: row.time for row in connection.execute(query.group_by(history.subscription_id))}


def _error(row: sa.Row[Any], since: Aftermath) -> RecordedError:
    seqno = None if row.xact_seqno is None else bytes(row.xact_seqno)
    return RecordedError(
        id=row.id,
        time=row.time,
        subscription=row.subscription,
        kind=ErrorKind(row.error_type),
        number=row.error_code,
        text=row.error_text,
        article=row.article,
        key=row.row_key,
        xact_seqno=seqno_text(seqno),
        command_id=row.command_id,
        command=row.command,
        skipped=row.skipped,
        healed=is_healed(
            row.time,
            row.error_code,
            seqno,
            since,
            of_snapshot=row.of_snapshot,
            acknowledged=row.acknowledged_at is not None,
        ),
        not_repaired=row.not_repaired,
        schema_change=row.schema_change,
        acknowledged_at=row.acknowledged_at,
        acknowledged_by=row.acknowledged_by,
    )
