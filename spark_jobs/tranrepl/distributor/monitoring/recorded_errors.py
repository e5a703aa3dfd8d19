"""Errors as they are recorded, with the command that failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tranrepl.distributor.monitoring.publication import MonitoredRecord, seqno_text
from tranrepl.distributor.tables import (
    RunStatus,
    msdistribution_history,
    mslogreader_history,
    msrepl_errors,
    mssubscriptions,
)
from tranrepl.errors import ErrorKind


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
    """Whether a run of the agent that came after it ended well."""


def newest_errors(
    connection: sa.Connection,
    record: MonitoredRecord,
    count: int,
    subscription: str | None = None,
    before: int | None = None,
) -> Sequence[RecordedError]:
    """Return the newest errors, the latest first; of one subscription, earlier than an error, where that is given."""
    errors = msrepl_errors.c
    query = sa.select(msrepl_errors).where(errors.publication_id == record.publication_id)
    if subscription is not None:
        query = query.where(errors.subscription == subscription)
    if before is not None:
        query = query.where(errors.id < before)
    last_good = _last_good(connection, record)
    rows = connection.execute(query.order_by(errors.id.desc()).limit(count))
    return [_error(row, last_good.get(row.subscription)) for row in rows]


def _last_good(connection: sa.Connection, record: MonitoredRecord) -> Mapping[str | None, datetime]:
    """Return when the newest run that ended well did, of each subscription and, under None, of the log reader."""
    distribution, reader = msdistribution_history.c, mslogreader_history.c
    of_subscription = _newest_good(
        msdistribution_history, distribution.subscription_id == mssubscriptions.c.subscription_id
    )
    query = sa.select(mssubscriptions.c.subscription, of_subscription.scalar_subquery().label("time")).where(
        mssubscriptions.c.publication_id == record.publication_id
    )
    found = {row.subscription: row.time for row in connection.execute(query)}
    found[None] = connection.scalar(_newest_good(mslogreader_history, reader.publication_id == record.publication_id))
    return {name: time for name, time in found.items() if time is not None}


def _newest_good(history: sa.Table, mine: sa.ColumnElement[bool]) -> sa.Select[tuple[datetime]]:
    well = history.c.runstatus.in_((RunStatus.SUCCEED, RunStatus.IDLE))
    chosen = sa.select(history.c.time).where(mine, well, history.c.error_id.is_(None))
    return chosen.order_by(history.c.time.desc()).limit(1)


def _error(row: sa.Row[Any], last_good: datetime | None) -> RecordedError:
    return RecordedError(
        id=row.id,
        time=row.time,
        subscription=row.subscription,
        kind=ErrorKind(row.error_type),
        number=row.error_code,
        text=row.error_text,
        article=row.article,
        key=row.row_key,
        xact_seqno=seqno_text(row.xact_seqno),
        command_id=row.command_id,
        command=row.command,
        skipped=row.skipped,
        healed=last_good is not None and last_good > row.time,
    )
