"""Rows of `msrepl_errors`, looked back at: what stopped an agent last, whether that is over, and what was skipped."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from tranrepl.distributor.database import DistributionDatabase, PublicationRecord, SubscriptionRecord
from tranrepl.distributor.tables import RunStatus, msdistribution_history, mslogreader_history, msrepl_errors
from tranrepl.errors import VALIDATION_FAILED, ErrorKind, ErrorReport
from tranrepl.jobs.validation_report import PASSED, compared_articles


@dataclass(frozen=True, slots=True)
class ErrorRow:
    report: ErrorReport
    """Its `message` holds message and remedy, a line each; its `number` the database's own too."""
    time: datetime


@dataclass(frozen=True, slots=True)
class SkippedRows:
    """Commands that `skip_errors` left out."""

    commands: int
    last: ErrorRow | None


def last_error(
    database: DistributionDatabase, record: PublicationRecord, subscription: SubscriptionRecord | None
) -> ErrorRow | None:
    """Return what stopped the log reader (without a subscription) or a subscription's distribution last, or what its
    last validation found. Skipped commands stopped nothing."""
    query = sa.select(msrepl_errors).where(_of(record, subscription), ~msrepl_errors.c.skipped)
    with database.transaction() as connection:
        row = connection.execute(query.order_by(msrepl_errors.c.id.desc()).limit(1)).one_or_none()
    return None if row is None else _error_row(row)


def skipped_since(
    database: DistributionDatabase, record: PublicationRecord, subscription: SubscriptionRecord, age: timedelta
) -> SkippedRows:
    """Return what was skipped in the last time. A command that a crash let be recorded twice counts once."""
    chosen = sa.and_(_of(record, subscription), msrepl_errors.c.skipped, msrepl_errors.c.time > sa.func.now() - age)
    commands = sa.select(msrepl_errors.c.xact_seqno, msrepl_errors.c.command_id).where(chosen).distinct().subquery()
    newest = sa.select(msrepl_errors).where(chosen).order_by(msrepl_errors.c.id.desc()).limit(1)
    with database.transaction() as connection:
        count = connection.execute(sa.select(sa.func.count()).select_from(commands)).scalar_one()
        row = connection.execute(newest).one_or_none()
    return SkippedRows(count, None if row is None else _error_row(row))


def ended_well_since(
    database: DistributionDatabase,
    record: PublicationRecord,
    subscription: SubscriptionRecord | None,
    error: ErrorRow,
) -> bool:
    """Return whether a later run of the agent ended without an error. After a failed validation only another one proves
    anything: one that compared all articles."""
    table = mslogreader_history if subscription is None else msdistribution_history
    chosen = sa.and_(
        table.c.publication_id == record.publication_id,
        table.c.time > error.time,
        table.c.error_id.is_(None),
        table.c.runstatus.in_((RunStatus.SUCCEED, RunStatus.IDLE)),
    )
    if subscription is not None:
        chosen &= table.c.subscription_id == subscription.subscription_id
    if error.report.number == VALIDATION_FAILED:
        whole = compared_articles(len(database.articles.registered(record)))
        chosen &= table.c.comments.startswith(PASSED) & table.c.comments.contains(whole)
    with database.transaction() as connection:
        return bool(connection.execute(sa.select(sa.exists().where(chosen))).scalar_one())


def _of(record: PublicationRecord, subscription: SubscriptionRecord | None) -> sa.ColumnElement[bool]:
    name = None if subscription is None else subscription.subscription
    return sa.and_(
        msrepl_errors.c.publication_id == record.publication_id,
        msrepl_errors.c.subscription.is_not_distinct_from(name),
    )


def _error_row(row: sa.Row[tuple[object, ...]]) -> ErrorRow:
    fields = row._mapping
    seqno = fields["xact_seqno"]
    report = ErrorReport(
        kind=ErrorKind(fields["error_type"]),
        message=fields["error_text"],
        number=fields["error_code"],
        xact_seqno=bytes(seqno).hex() if seqno is not None else None,
        command_id=fields["command_id"],
        article=fields["article"],
    )
    return ErrorRow(report, fields["time"])
