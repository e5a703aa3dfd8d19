"""Errors as they are recorded: what stopped an agent, and commands that were skipped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from tranrepl.distributor.database.connection import DatabaseConnection
from tranrepl.distributor.database.healing import stopped_snapshot
from tranrepl.distributor.database.publications import PublicationRecord
from tranrepl.distributor.database.subscriptions import SubscriptionRecord
from tranrepl.distributor.tables import msrepl_errors
from tranrepl.distributor.text_encoding import writable
from tranrepl.errors import ErrorKind, ErrorReport
from tranrepl.printable import printable


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """A row of `msrepl_errors`."""

    report: ErrorReport
    """Its `message` holds message and remedy, a line each; its `number` the database's own number too."""
    time: datetime
    of_snapshot: bool = False
    acknowledged_at: datetime | None = None
    acknowledged_by: str | None = None


@dataclass(frozen=True, slots=True)
class SkippedRows:
    """Commands that `skip_errors` left out, and the error of the last one."""

    commands: int
    last: ErrorRow | None


class Errors:
    """What `msrepl_errors` holds."""

    def __init__(self, database: DatabaseConnection) -> None:
        self._database = database

    def record(self, record: PublicationRecord, error: ErrorReport, subscription: str | None = None) -> int:
        """Record what stopped an agent. Returns the row's id, which goes into the history row."""
        with self._database.transaction() as connection:
            values = writable(connection, _error_values(record, error, subscription))
            result = connection.execute(msrepl_errors.insert().values(**values))
        key = result.inserted_primary_key
        return int(key[0]) if key else 0

    def record_skipped(self, record: PublicationRecord, subscription: str, errors: Sequence[ErrorReport]) -> None:
        """Record commands that `skip_errors` left out, with what they were."""
        with self._database.transaction() as connection:
            rows = [{**_error_values(record, error, subscription), "skipped": True} for error in errors]
            connection.execute(msrepl_errors.insert(), [writable(connection, row) for row in rows])

    def last(self, record: PublicationRecord, subscription: SubscriptionRecord | None) -> ErrorRow | None:
        """Return what stopped the log reader (without a subscription) or a subscription's distribution last, or what
        its last validation found; None before the first. Skipped commands are left out: they stopped nothing."""
        query = sa.select(msrepl_errors, stopped_snapshot().label("of_snapshot"))
        query = query.where(_of(record, subscription), ~msrepl_errors.c.skipped)
        with self._database.transaction() as connection:
            row = connection.execute(query.order_by(msrepl_errors.c.id.desc()).limit(1)).one_or_none()
        return None if row is None else replace(_error_row(row), of_snapshot=row.of_snapshot)

    def acknowledge(self, ids: Sequence[int], who: str) -> None:
        """Let these errors count no more: a person has seen them."""
        chosen = sa.and_(msrepl_errors.c.id.in_(ids), msrepl_errors.c.acknowledged_at.is_(None))
        with self._database.transaction() as connection:
            values = writable(connection, {"acknowledged_by": who})
            connection.execute(
                msrepl_errors.update().where(chosen).values(**values, acknowledged_at=sa.func.clock_timestamp())
            )

    def skipped_since(self, record: PublicationRecord, subscription: SubscriptionRecord, age: timedelta) -> SkippedRows:
        """Return the commands that were skipped within `age`. One that was recorded twice, because its job was killed
        and run again, counts once."""
        chosen = sa.and_(_of(record, subscription), msrepl_errors.c.skipped, msrepl_errors.c.time > sa.func.now() - age)
        commands = sa.select(msrepl_errors.c.xact_seqno, msrepl_errors.c.command_id).where(chosen).distinct().subquery()
        newest = sa.select(msrepl_errors).where(chosen).order_by(msrepl_errors.c.id.desc()).limit(1)
        with self._database.transaction() as connection:
            count = connection.execute(sa.select(sa.func.count()).select_from(commands)).scalar_one()
            row = connection.execute(newest).one_or_none()
        return SkippedRows(count, None if row is None else _error_row(row))


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
        message="",
        number=fields["error_code"],
        xact_seqno=bytes(seqno).hex() if seqno is not None else None,
        command_id=fields["command_id"],
        article=fields["article"],
        key=fields["row_key"],
        not_repaired=fields["not_repaired"],
        schema_change=fields["schema_change"],
    )
    # Its lines are the message's and its remedy's.
    report = report.model_copy(update={"message": printable(fields["error_text"])})
    return ErrorRow(
        report,
        fields["time"],
        acknowledged_at=fields["acknowledged_at"],
        acknowledged_by=fields["acknowledged_by"],
    )


def _error_values(record: PublicationRecord, error: ErrorReport, subscription: str | None) -> dict[str, object]:
    """Return a row of `msrepl_errors`."""
    return {
        "publication_id": record.publication_id,
        "subscription": subscription,
        "error_type": error.kind,
        "error_code": error.shown_number or None,
        "error_text": "\n".join(filter(None, [error.message, error.remedy])),
        "article": error.article,
        "xact_seqno": bytes.fromhex(error.xact_seqno) if error.xact_seqno else None,
        "command_id": error.command_id,
        "command": error.command,
        "row_key": error.shown_key,
        "not_repaired": error.not_repaired,
        "schema_change": error.schema_change,
    }
