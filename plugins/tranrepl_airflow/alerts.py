"""Alerts: a publication's notifiers, notified once when something needs a person.

A task's callbacks run in the task's process (in the DAG processor where its worker was killed), a deadline's in the
executor. So all that an alert says comes from the error at hand and from settings: no database is queried.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import import_module
from typing import Any, cast

from airflow.sdk import BaseNotifier, Context
from airflow.sdk.log import redact  # type: ignore[attr-defined]

from tranrepl.errors import ConfigurationError, ErrorKind, ErrorReport
from tranrepl.next_steps import RUNBOOK, Place, named, step_lines, usual_file
from tranrepl.printable import one_line, printable
from tranrepl.settings.alert import Alert, AlertLevel
from tranrepl.settings.publication import Publication
from tranrepl_airflow.outcome import ReplicationFailed

log = logging.getLogger(__name__)


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
_LEVELS = tuple(AlertLevel)
"""The least first."""


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


@dataclass(frozen=True, slots=True)
class TaskFailedAlert:
    """A task's `on_failure_callback`: notifies one notifier that the task has failed for good."""

    alert: Alert
    event: AlertEvent
    publication: str
    subscription: str = ""
    only: ErrorKind | None = None
    """Only for errors of this kind; None: for every failure."""

    def __call__(self, context: Context) -> None:
        report = _report(context)
        if self.only is None or report.kind is self.only:
            place = Place(settings_file_of(context, self.publication), self.subscription)
            event = AlertEvent.SCHEMA_CHANGE if report.schema_change else self.event
            fields = alert_fields(event, self.publication, place, report, run_id_of(context))
            notify(self.alert, fields, context)


def task_failed_alerts(
    publication: Publication, event: AlertEvent, subscription: str = "", only: ErrorKind | None = None
) -> list[Callable[[Context], None]]:
    """Return a callback for each of the publication's notifiers."""
    return [TaskFailedAlert(it, event, publication.publication, subscription, only) for it in publication.alerts]


def alert_fields(event: AlertEvent, publication: str, place: Place, error: ErrorReport, run_id: str) -> AlertFields:
    """Return what an alert says of an error."""
    where = "/".join(filter(None, [publication, place.subscription]))
    what = "schema change stops the delivery" if error.schema_change else event.replace("_", " ")
    number = f" with error {error.shown_number}" if error.shown_number else ""
    steps = list(step_lines(error, place))
    return AlertFields(
        event=event,
        summary=f"{where}: {what}{number}",
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


def notify(alert: Alert, fields: AlertFields, context: Mapping[str, Any]) -> None:
    """Tell one notifier, whose templates find the fields as `alert`, unless it is to be told only of what asks
    more of a person. Raises what the notifier raises.

    Values are put into the templates and never taken for templates themselves: the notifier renders its arguments
    once.
    """
    if _LEVELS.index(fields.level) < _LEVELS.index(alert.level):
        return
    # A notifier puts its own arguments into the context that it is given.
    shown = {name: printable(str(value)) for name, value in asdict(fields).items()}
    template_context = cast("Any", {**context, "alert": shown})
    new_notifier(alert)(template_context)


def notify_all(alerts: Iterable[Alert], fields: AlertFields, context: Mapping[str, Any]) -> None:
    """Tell every notifier; one that fails is logged and keeps nothing from the others."""
    for alert in alerts:
        try:
            notify(alert, fields, context)
        except Exception:
            log.exception("Notifier %s failed", alert.notifier)


def new_notifier(alert: Alert) -> BaseNotifier:
    """Return the notifier with its arguments. Raises ConfigurationError where the settings do not give one."""
    module, _, name = alert.notifier.rpartition(".")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"alerts: notifier: {alert.notifier!r} cannot be imported: {error}",
            remedy="allowed: the import path of an Airflow notifier, as in "
            "airflow.providers.smtp.notifications.smtp.SmtpNotifier",
        ) from None
    if not (isinstance(found, type) and issubclass(found, BaseNotifier)):
        raise ConfigurationError(f"alerts: notifier: {alert.notifier!r} is no Airflow notifier (BaseNotifier)")
    try:
        return cast("Callable[..., BaseNotifier]", found)(**_escaping_html(alert.arguments))
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"alerts: arguments of {alert.notifier}: {error}") from None


def _escaping_html(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Let the template engine escape what goes into HTML: into an argument that is HTML by its name."""
    return {
        name: f"{{% autoescape true %}}{value}{{% endautoescape %}}"
        if "html" in name and isinstance(value, str) and "{{" in value
        else value
        for name, value in arguments.items()
    }


def run_is_late(context: Mapping[str, Any], publication: str, threshold: int, alerts: Sequence[Any]) -> None:
    """Send the alerts of a run's missed deadline. It runs in the executor, with no more of a context than the run."""
    fields = AlertFields(
        event=AlertEvent.RUN_IS_LATE,
        summary=f"{publication}: run is late",
        publication=publication,
        text=f"a run of publication {publication} has not ended {threshold} s after it was queued (latency_threshold)",
        run_id=context["dag_run"]["dag_run_id"],
        level=AlertEvent.RUN_IS_LATE.level,
    )
    notify_all([Alert.model_validate(it) for it in alerts], fields, context)


def _report(context: Mapping[str, Any]) -> ErrorReport:
    error = context.get("exception")
    if isinstance(error, ReplicationFailed):
        return error.report
    # A worker that was killed leaves Airflow's words for it, and whatever else is raised its own.
    return ErrorReport(kind=ErrorKind.INTERNAL, message=str(redact(str(error or "the task ended without a report"))))


def run_id_of(context: Mapping[str, Any]) -> str:
    return str(context.get("run_id") or "")


def settings_file_of(context: Mapping[str, Any], publication: str) -> str:
    """Return the path that commands about a task's work name."""
    return getattr(context.get("task"), "settings_file", None) or usual_file(publication)
