"""Errors as they are recorded: what stopped an agent, and commands that were skipped."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from tranrepl.distributor.database.connection import DatabaseConnection, writable
from tranrepl.distributor.database.healing import ended_well, healed, skipped_by_hand, stopped_snapshot
from tranrepl.distributor.database.publications import PublicationRecord
from tranrepl.distributor.database.subscriptions import SubscriptionRecord
from tranrepl.distributor.tables import msrepl_errors, mssubscriptions
from tranrepl.errors import VALIDATION_FAILED, ErrorKind, ErrorReport


@dataclass(frozen=True, slots=True)
class RecordedError:
    """A row of `msrepl_errors`. The number of its report is SQL Server's, and the database's own."""

    id: int
    subscription: str | None
    """None for the log reader."""
    report: ErrorReport
    time: datetime
    skipped: bool
    """Whether the command was left out, as `skip_errors` says."""
    healed: bool
    """Whether it is over (`tranrepl.distributor.database.healing`)."""
    skipped_by_hand: bool
    """Whether an administrator has skipped its transaction since."""
    acknowledged_at: datetime | None
    acknowledged_by: str | None

    @property
    def unresolved(self) -> bool:
        """Whether somebody has to do something about it."""
        return not (self.healed or self.skipped)

    @property
    def of_validation(self) -> bool:
        """Whether rows differed."""
        return (self.report.number or "").startswith(VALIDATION_FAILED)

    @property
    def text(self) -> str:
        """Message and remedy, a line each."""
        return "\n→ ".join(filter(None, [self.report.message, self.report.remedy]))


@dataclass(frozen=True, slots=True)
class Failure:
    """An error that came again and again, as one: of the same command, or with the same text."""

    newest: RecordedError
    times: int
    first: datetime


@dataclass(frozen=True, slots=True)
class SkippedRows:
    """Commands that `skip_errors` left out, and the error of the last one."""

    commands: int
    last: RecordedError | None


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
        chosen = sa.and_(
            msrepl_errors.c.publication_id == record.publication_id,
            msrepl_errors.c.subscription == subscription.subscription,
            msrepl_errors.c.skipped,
            msrepl_errors.c.time > sa.func.now() - age,
        )
        commands = sa.select(msrepl_errors.c.xact_seqno, msrepl_errors.c.command_id).where(chosen).distinct().subquery()
        with self._database.transaction() as connection:
            count = connection.execute(sa.select(sa.func.count()).select_from(commands)).scalar_one()
            newest = _read(connection, chosen, count=1)
        return SkippedRows(count, next(iter(newest), None))


def is_of_validation() -> sa.ColumnElement[bool]:
    """Return what chooses the errors of validations that found rows which differ."""
    return sa.func.coalesce(msrepl_errors.c.error_code.startswith(VALIDATION_FAILED), sa.false())


def newest_errors(connection: sa.Connection, publication_id: int, count: int) -> Sequence[RecordedError]:
    """Return the newest errors of a publication, the latest first."""
    return _read(connection, _chosen(publication_id, None), count=count)


def newest_failures(
    connection: sa.Connection,
    publication_id: int,
    count: int,
    subscription: str | None = None,
    before: int | None = None,
) -> Sequence[Failure]:
    """Return the newest failures of a publication, the latest first; of one subscription, and those that last came
    earlier than an error, where that is given."""
    errors = msrepl_errors.c
    newest = sa.func.max(errors.id)
    text = sa.case((errors.xact_seqno.is_(None), errors.error_text))
    command = (errors.error_code, errors.xact_seqno, errors.command_id, text)
    query = (
        sa.select(newest.label("id"), sa.func.count().label("times"), sa.func.min(errors.time).label("first"))
        .where(_chosen(publication_id, subscription))
        .group_by(errors.subscription, errors.skipped, errors.acknowledged_at.is_(None), *command)
        .order_by(newest.desc())
        .limit(count)
    )
    rows = connection.execute(query if before is None else query.having(newest < before)).all()
    found = errors_of_ids(connection, {it.id for it in rows})
    return [Failure(found[it.id], it.times, it.first) for it in rows]


def _chosen(publication_id: int, subscription: str | None) -> sa.ColumnElement[bool]:
    mine = msrepl_errors.c.publication_id == publication_id
    return mine if subscription is None else mine & (msrepl_errors.c.subscription == subscription)


def errors_of_ids(
    connection: sa.Connection, ids: Collection[int], watermarks: Mapping[int, bytes] | None = None
) -> Mapping[int, RecordedError]:
    """Return errors by their numbers. `watermarks`: known ones, by subscriptions' numbers."""
    found = _read(connection, msrepl_errors.c.id.in_(ids), watermarks=watermarks) if ids else ()
    return {it.id: it for it in found}


def open_errors(connection: sa.Connection, publication_id: int) -> Sequence[RecordedError]:
    """Return the newest error of the log reader and of each subscription, and its newest one of a validation, where
    they are unresolved; by their names."""
    errors = msrepl_errors.c
    mine = sa.and_(errors.publication_id == publication_id, ~errors.skipped)
    newest = sa.select(sa.func.max(errors.id)).where(mine).group_by(errors.subscription, is_of_validation())
    found = _read(connection, errors.id.in_(newest))
    return sorted((it for it in found if it.unresolved), key=lambda it: it.subscription or "")


def _read(
    connection: sa.Connection,
    chosen: sa.ColumnElement[bool],
    *,
    count: int | None = None,
    watermarks: Mapping[int, bytes] | None = None,
) -> Sequence[RecordedError]:
    errors, subscription = msrepl_errors.c, mssubscriptions.c
    is_its = sa.and_(
        subscription.publication_id == errors.publication_id, subscription.subscription == errors.subscription
    )
    query = (
        sa.select(msrepl_errors, subscription.subscription_id)
        .add_columns(stopped_snapshot().label("of_snapshot"), ended_well().label("ended_well"))
        .add_columns(skipped_by_hand().label("skipped_by_hand"))
        .select_from(msrepl_errors.outerjoin(mssubscriptions, is_its))
        .where(chosen)
        .order_by(errors.id.desc())
        .limit(count)
    )
    rows = connection.execute(query).all()
    over = healed(connection, rows, watermarks)
    return [_error(row, is_healed=is_healed) for row, is_healed in zip(rows, over, strict=True)]


def _error(row: sa.Row[Any], *, is_healed: bool) -> RecordedError:
    report = ErrorReport(
        kind=ErrorKind(row.error_type),
        message=row.error_text,
        remedy=row.remedy,
        number=row.error_code,
        xact_seqno=None if row.xact_seqno is None else bytes(row.xact_seqno).hex(),
        command_id=row.command_id,
        command=row.command,
        article=row.article,
        key=row.row_key,
        not_repaired=row.not_repaired,
        schema_change=row.schema_change,
        damaged_batch=row.damaged_batch,
    )
    return RecordedError(
        id=row.id,
        subscription=row.subscription,
        report=report,
        time=row.time,
        skipped=row.skipped,
        healed=is_healed,
        skipped_by_hand=row.skipped_by_hand,
        acknowledged_at=row.acknowledged_at,
        acknowledged_by=row.acknowledged_by,
    )


def _error_values(record: PublicationRecord, error: ErrorReport, subscription: str | None) -> dict[str, object]:
    """Return a row of `msrepl_errors`."""
    return {
        "publication_id": record.publication_id,
        "subscription": subscription,
        "error_type": error.kind,
        "error_code": error.shown_number or None,
        "error_text": error.message,
        "remedy": error.remedy,
        "article": error.article,
        "xact_seqno": bytes.fromhex(error.xact_seqno) if error.xact_seqno else None,
        "command_id": error.command_id,
        "command": error.command,
        "row_key": error.shown_key,
        "not_repaired": error.not_repaired,
        "schema_change": error.schema_change,
        "damaged_batch": error.damaged_batch,
    }
