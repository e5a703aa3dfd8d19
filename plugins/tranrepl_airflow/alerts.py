"""Texts of alerts, from their errors and remedies. Notifiers send them (`notifiers`), called
by a task's callbacks and operators (`alert_callbacks`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import reduce
from typing import TYPE_CHECKING

from tranrepl.errors import ErrorKind, ErrorReport
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.skipped_report import skipped_steps, skipped_warning
from tranrepl.printable import one_line
from tranrepl.remedies import RUNBOOK, Place, named, step_lines
from tranrepl.settings.alert import AlertLevel

if TYPE_CHECKING:
    from tranrepl.admin.early_warnings import EarlyWarning

_SCHEMA_CHANGE_RUNBOOK = "docs/how-to/schema-changes.md"
_MOST_SCHEMA_CHANGES = 20


class AlertEvent(StrEnum):
    BATCH_FAILED = "batch_failed"
    LOG_READER_FAILED = "log_reader_failed"
    SNAPSHOT_FAILED = "snapshot_failed"
    SUBSCRIPTION_DEACTIVATED = "subscription_deactivated"
    VALIDATION_FAILED = "validation_failed"
    RUN_IS_LATE = "run_is_late"
    COMMAND_SKIPPED = "command_skipped"
    SCHEMA_CHANGE = "schema_change"
    EARLY_WARNING = "early_warning"
    TEST = "test"

    @property
    def level(self) -> AlertLevel:
        """How much it asks of a person where nothing else is said: what has stopped is an error."""
        return AlertLevel.WARNING if self in _NOTHING_HAS_STOPPED else AlertLevel.ERROR


_NOTHING_HAS_STOPPED = (AlertEvent.RUN_IS_LATE, AlertEvent.COMMAND_SKIPPED, AlertEvent.EARLY_WARNING)


@dataclass(frozen=True, slots=True)
class AlertFields:
    """What a notifier's templates find as `alert`; empty where it is not known."""

    event: AlertEvent
    summary: str
    """One line of names and numbers, as for a subject."""
    publication: str
    subscription: str = ""
    number: str = ""
    text: str = ""
    remedy: str = ""
    xact_seqno: str = ""
    """Hexadecimal, with 0x."""
    command_id: str = ""
    article: str = ""
    key: str = ""
    browse: str = ""
    """The `tranrepl` call that shows the transaction."""
    next_steps: str = ""
    """All calls to go on with, a line each, with what each is for as a comment above it."""
    runbook: str = ""
    """The page that says when to take which, in the repository."""
    run_id: str = ""
    level: AlertLevel = AlertLevel.ERROR


def error_alert(event: AlertEvent, publication: str, place: Place, error: ErrorReport, run_id: str) -> AlertFields:
    """Return what an alert says of an error."""
    what = "schema change stops the delivery" if error.schema_change else event.replace("_", " ")
    number = f" with error {error.shown_number}" if error.shown_number else ""
    steps = list(step_lines(error, place))
    return AlertFields(
        event=event,
        summary=f"{_where(publication, place.subscription)}: {what}{number}",
        publication=publication,
        subscription=place.subscription,
        number=error.shown_number,
        text=named(error.message, place, error.article),
        remedy=named(error.remedy or "", place, error.article),
        xact_seqno=f"0x{error.xact_seqno}" if error.xact_seqno else "",
        command_id="" if error.command_id is None else str(error.command_id),
        article=one_line(error.article or ""),
        key=error.shown_key or "",
        browse=next((line for line in steps if line.startswith("tranrepl browse ")), ""),
        next_steps="\n".join(steps),
        runbook=RUNBOOK if error.xact_seqno else "",
        run_id=run_id,
        level=event.level,
    )


def skipped_alert(publication: str, place: Place, attempts: Sequence[JobResult], run_id: str) -> AlertFields | None:
    """Return what an alert says of the commands that a run's attempts to deliver have skipped: of the first one, all
    that is known. None where none was skipped."""
    total = reduce(JobResult.plus, attempts, JobResult())
    warning = skipped_warning(place, total)
    if warning is None:
        return None
    first = next(iter(total.first_skipped), ErrorReport(kind=ErrorKind.DATA, message=warning))
    fields = error_alert(AlertEvent.COMMAND_SKIPPED, publication, place, first, run_id)
    commands = "1 command" if total.skipped == 1 else f"{total.skipped:,} commands"
    where = _where(publication, place.subscription)
    summary = f"{where}: {commands} skipped, the first with error {fields.number}"
    # The ways on after an error begin with delivering it, or with passing over it: both have happened.
    return replace(fields, summary=summary, text=warning, next_steps="\n".join(skipped_steps(place, total)), runbook="")


def schema_change_alert(publication: str, place: Place, result: JobResult, run_id: str) -> AlertFields | None:
    """Return what an alert says of the schema changes that a job met: first what they ask of a person or cost, then
    which were replicated. None where it met none."""
    warnings, applied = result.schema_change_warnings, result.applied_schema_changes
    if not warnings and not applied:
        return None
    lines = [named(it, place) for it in (*warnings, *applied)]
    left = len(lines) - _MOST_SCHEMA_CHANGES
    more = [f"and {left} more"] if left > 0 else []
    what = "schema change to look at" if warnings else "schema change replicated"
    return AlertFields(
        event=AlertEvent.SCHEMA_CHANGE,
        summary=f"{_where(publication, place.subscription)}: {what}",
        publication=publication,
        subscription=place.subscription,
        text="\n".join([*lines[:_MOST_SCHEMA_CHANGES], *more]),
        runbook=_SCHEMA_CHANGE_RUNBOOK,
        run_id=run_id,
        level=AlertLevel.WARNING if warnings else AlertLevel.INFO,
    )


def early_warning_alert(publication: str, place: Place, warning: EarlyWarning, run_id: str) -> AlertFields:
    """Return what an alert says of an early warning."""
    return AlertFields(
        event=AlertEvent.EARLY_WARNING,
        summary=f"{_where(publication, warning.subscription)}: {warning.kind}",
        publication=publication,
        subscription=warning.subscription,
        number=warning.kind.number,
        text=warning.text,
        remedy=named(warning.remedy, place),
        run_id=run_id,
        level=AlertEvent.EARLY_WARNING.level,
    )


def late_run_alert(publication: str, threshold: int, run_id: str) -> AlertFields:
    """Return what an alert says of a run that has not ended in time. `threshold`: in seconds."""
    return AlertFields(
        event=AlertEvent.RUN_IS_LATE,
        summary=f"{publication}: run is late",
        publication=publication,
        text=f"a run of publication {publication} has not ended {threshold} s after it was queued (latency_threshold)",
        run_id=run_id,
        level=AlertEvent.RUN_IS_LATE.level,
    )


def trial_alert(publication: str) -> AlertFields:
    """Return what an alert says that tries a notifier."""
    return AlertFields(
        event=AlertEvent.TEST,
        summary=f"{publication}: test alert",
        publication=publication,
        text="a test alert: nothing has happened",
        level=AlertLevel.ERROR,
    )


def _where(publication: str, subscription: str) -> str:
    return f"{publication}/{subscription}" if subscription else publication
