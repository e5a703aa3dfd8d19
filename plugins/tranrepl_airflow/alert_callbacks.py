"""When alerts are sent: by a task's callbacks and by its operator, and by a run's deadline.

A task's callbacks run in the task's process (in the DAG processor where its worker was killed), a deadline's in the
executor. So they query no database; only early warnings do, which an operator looks for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context
from airflow.sdk.log import redact  # type: ignore[attr-defined]

from tranrepl.errors import ErrorKind, ErrorReport, ReplicationError
from tranrepl.jobs.results import JobResult
from tranrepl.printable import one_event
from tranrepl.remedies import Place, usual_file
from tranrepl.settings.alert import Alert
from tranrepl.settings.publication import Publication
from tranrepl_airflow.alerts import (
    AlertEvent,
    early_warning_alert,
    error_alert,
    late_run_alert,
    schema_change_alert,
    skipped_alert,
)
from tranrepl_airflow.earlier_tasks import results_of
from tranrepl_airflow.job_connections import resolve_connections
from tranrepl_airflow.notifiers import notify, notify_all
from tranrepl_airflow.outcome import ReplicationFailed

if TYPE_CHECKING:
    from tranrepl.admin.early_warnings import EarlyWarning

log = logging.getLogger(__name__)

_LOOKED_EVERY_SECONDS = 60.0
_WAITED_SECONDS = 10.0
"""How long a look that is under way when the task ends is waited for."""


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
            notify(self.alert, error_alert(event, self.publication, place, report, run_id_of(context)), context)


def task_failed_alerts(
    publication: Publication, event: AlertEvent, subscription: str = "", only: ErrorKind | None = None
) -> list[Callable[[Context], None]]:
    """Return a callback for each of the publication's notifiers."""
    return [TaskFailedAlert(it, event, publication.publication, subscription, only) for it in publication.alerts]


@dataclass(frozen=True, slots=True)
class SkippedBeforeFailure:
    """A task's `on_failure_callback`: where the task is the run's last one to deliver, and attempts have skipped
    commands before it failed."""

    publication: Publication
    subscription: str
    attempts: tuple[str, ...]
    only: ErrorKind | None = None
    """Only where it failed with an error of this kind; None: for every failure."""

    def __call__(self, context: Context) -> None:
        error = context.get("exception")
        if self.only is not None and not (isinstance(error, ReplicationFailed) and error.report.kind is self.only):
            return
        alert_skipped(self.publication, self.subscription, results_of(context, self.attempts), context)


def run_is_late(context: Mapping[str, Any], publication: str, threshold: int, alerts: Sequence[Any]) -> None:
    """Send the alerts of a run's missed deadline. It runs in the executor, with no more of a context than the run."""
    fields = late_run_alert(publication, threshold, context["dag_run"]["dag_run_id"])
    notify_all([Alert.model_validate(it) for it in alerts], fields, context)


def alert_skipped(publication: Publication, subscription: str, results: Sequence[JobResult], context: Context) -> None:
    """Send one alert for a run and subscription, and log it, where commands were skipped. Raises nothing: what was
    delivered was delivered."""
    place = Place(settings_file_of(context, publication.publication), subscription)
    fields = skipped_alert(publication.publication, place, results, run_id_of(context))
    if fields is not None:
        log.warning("%s", one_event(fields.text))
        notify_all(publication.alerts, fields, dict(context))


def alert_schema_changes(publication: Publication, place: Place, result: JobResult, context: Mapping[str, Any]) -> None:
    """Send an alert where a job met schema changes, once for each try: a later one meets none of what an earlier one
    has registered or delivered. Raises nothing: what was done was done."""
    fields = schema_change_alert(publication.publication, place, result, run_id_of(context))
    if fields is not None:
        notify_all(publication.alerts, fields, dict(context))


def alert_early(publication: Publication, place: Place, context: Mapping[str, Any]) -> None:
    """Send alerts of what should be warned of. Raises nothing: the task has done its work."""
    if not publication.alerts:
        return
    try:
        found = _new_warnings(publication)
    except ReplicationError as error:
        log.warning("Early warnings were not checked: %s", one_event(error.message))
    except Exception:
        log.exception("Early warnings were not checked")
    else:
        for it in found:
            notify_all(
                publication.alerts, early_warning_alert(publication.publication, place, it, run_id_of(context)), context
            )


@contextmanager
def looking_for_early_warnings(publication: Publication, place: Place, context: Mapping[str, Any]) -> Iterator[None]:
    """Send alerts of what should be warned of once a minute, meanwhile. Raises nothing."""
    over = Event()

    def look() -> None:
        while not over.wait(_LOOKED_EVERY_SECONDS):
            alert_early(publication, place, context)

    if not publication.alerts:
        yield
        return
    thread = Thread(target=look, name="tranrepl-early-warnings", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(_WAITED_SECONDS)


def _new_warnings(publication: Publication) -> list[EarlyWarning]:
    # Imported here: parsing a DAG file loads no database driver.
    from tranrepl.admin.early_warnings import new_early_warnings
    from tranrepl.topology import Topology

    ends = [publication.publisher.connection, publication.distributor.connection]
    return new_early_warnings(Topology(publication, resolve_connections(ends).by_id))


def _report(context: Mapping[str, Any]) -> ErrorReport:
    error = context.get("exception")
    if isinstance(error, ReplicationFailed):
        return error.report
    # A killed worker leaves Airflow's words for it; any other error has its own.
    return ErrorReport(kind=ErrorKind.INTERNAL, message=str(redact(str(error or "the task ended without a report"))))


def run_id_of(context: Mapping[str, Any]) -> str:
    return str(context.get("run_id") or "")


def settings_file_of(context: Mapping[str, Any], publication: str) -> str:
    """Return the path that commands about a task's work name."""
    return getattr(context.get("task"), "settings_file", None) or usual_file(publication)
