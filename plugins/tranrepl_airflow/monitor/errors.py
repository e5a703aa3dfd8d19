"""Errors as the pages show them: of an agent the newest, of a publication all that are recorded or unresolved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Self

import sqlalchemy as sa
from pydantic import BaseModel

from tranrepl.distributor.database import DistributionDatabase, PublicationRecord
from tranrepl.distributor.database.errors import Failure, RecordedError, newest_failures, open_errors
from tranrepl.distributor.monitoring.publication import MonitoredRecord
from tranrepl.distributor.stored_commands import first_transaction
from tranrepl.errors import SUBSCRIPTION_DEACTIVATED, VALIDATION_FAILED, ErrorKind
from tranrepl.remedies import Place, named, step_lines, with_short_key
from tranrepl_airflow.monitor.publications import MonitoredPublication

WITHHELD = "Shown to those who may edit the DAG: it may hold values of rows."
PAGE = 50
"""Errors on one page."""


class ShownError(BaseModel):
    """An error. Its text is only for those who may edit the DAG, as are key, command and next steps."""

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
    xact_seqno: str | None
    """The transaction of the failing command, with 0x; None where it was none of a command."""
    command_id: int | None
    damaged_batch: bool = False
    """A batch is not in the store as it was registered: nobody can look at its transactions, or skip them."""
    key: str | None = None
    """The row of the failing command. Only a publication's list of errors has it, the command and the next steps."""
    command: str | None = None
    """As `tranrepl browse` shows it."""
    skipped: bool
    """Its command was left out (`skip_errors`), or an administrator has skipped its transaction."""
    healed: bool
    times: int = 1
    """How often it came. Only a publication's list of errors counts it."""
    first: datetime | None = None
    """When it came first."""
    open: bool = False
    """Whether it is one of those that count (`open_errors`)."""
    acknowledged_at: datetime | None
    acknowledged_by: str | None
    next_steps: list[str] = []
    """What can be done, as lines of a shell; none where it is not open."""

    @property
    def unresolved(self) -> bool:
        """Whether somebody has to do something about it."""
        return not (self.healed or self.skipped)

    @property
    def of_validation(self) -> bool:
        """Whether rows differed: a run of the publication mends none of them."""
        return (self.number or "").startswith(VALIDATION_FAILED)

    @property
    def stops_delivery(self) -> bool:
        """Whether a subscription waits at a transaction, which could be skipped."""
        is_deactivated = (self.number or "").startswith(SUBSCRIPTION_DEACTIVATED)
        is_stored = self.xact_seqno is not None and not self.damaged_batch
        return self.subscription is not None and is_stored and not is_deactivated

    @classmethod
    def of(cls, error: RecordedError, settings_file: str, *, values: bool) -> Self:
        """Return an error, with values of rows only where `values`. Commands name `settings_file`."""
        report, place = error.report, Place(settings_file, error.subscription or "")
        return cls(
            id=error.id,
            time=error.time,
            subscription=error.subscription,
            kind=report.kind,
            number=report.number,
            text=named(with_short_key(error.text, report), place, report.article) if values else WITHHELD,
            article=report.article,
            xact_seqno=f"0x{report.xact_seqno}" if report.xact_seqno else None,
            command_id=report.command_id,
            damaged_batch=report.damaged_batch,
            skipped=error.skipped or error.skipped_by_hand,
            healed=error.healed,
            acknowledged_at=error.acknowledged_at,
            acknowledged_by=error.acknowledged_by,
        )


class ErrorList(BaseModel):
    errors: list[ShownError]
    subscriptions: list[str]
    """All of the publication."""
    earlier: int | None
    """What to ask for `before` to get the earlier ones; None where there are none."""


@dataclass(frozen=True, slots=True)
class ErrorQuestion:
    """Which errors are selected."""

    settings_file: str
    may_edit: bool
    subscription: str | None = None
    before: int | None = None

    def ask(self, connection: sa.Connection, record: MonitoredRecord) -> ErrorList:
        """Return the newest of the chosen errors, the latest first; one that came again and again once."""
        found = newest_failures(connection, record.publication_id, PAGE + 1, self.subscription, self.before)
        errors = found[:PAGE]
        opened = {it.id for it in open_errors(connection, record.publication_id)}
        return ErrorList(
            errors=[self._shown(it, is_open=it.newest.id in opened) for it in errors],
            subscriptions=[it.subscription for it in record.subscriptions.values()],
            earlier=errors[-1].newest.id if len(found) > PAGE else None,
        )

    def _shown(self, failure: Failure, *, is_open: bool) -> ShownError:
        error = failure.newest
        shown = ShownError.of(error, self.settings_file, values=self.may_edit)
        shown.times, shown.first, shown.open = failure.times, failure.first, is_open
        if self.may_edit:
            shown.key = with_short_key(error.report.key or "", error.report) or None
            shown.command = error.report.command
            if shown.open:
                place = Place(self.settings_file, error.subscription or "")
                shown.next_steps = list(step_lines(error.report, place))
        return shown


def open_failures(
    database: DistributionDatabase, publication: MonitoredPublication, *, values: bool
) -> list[ShownError]:
    """Return the errors that count, with their texts only where `values`."""
    record = database.publications.find(publication.publication)
    with database.transaction() as connection:
        errors: Sequence[RecordedError] = () if record is None else open_errors(connection, record.publication_id)
    return [ShownError.of(it, publication.settings_file, values=values) for it in errors]


def next_transaction(database: DistributionDatabase, record: PublicationRecord, subscription: str) -> bytes | None:
    """Return the `xact_seqno` of the first stored transaction that the subscription does not have, as its last run
    recorded; None where it has all of them, or is not set up."""
    found = database.subscriptions.find(record, subscription)
    if found is None:
        return None
    known = database.overview.subscription(found, None).watermark
    return first_transaction(record, database.batches.after(record, known), known)
