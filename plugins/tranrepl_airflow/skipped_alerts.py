"""The alert that a run's deliveries have skipped commands: one for a run and subscription, however it ended."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from airflow.sdk import Context

from tranrepl.errors import ErrorKind, ErrorReport
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.skipped_report import skipped_steps, skipped_warning
from tranrepl.next_steps import Place
from tranrepl.printable import one_event
from tranrepl.settings.publication import Publication
from tranrepl_airflow.alerts import AlertEvent, AlertFields, alert_fields, notify_all, settings_file_of
from tranrepl_airflow.operators import RESULT_KEY
from tranrepl_airflow.outcome import ReplicationFailed

log = logging.getLogger(__name__)


def results_of(context: Context, attempts: Sequence[str]) -> list[JobResult]:
    """Return what the attempts (task ids) of this run have left as XCom, in this order."""
    results = [context["ti"].xcom_pull(task_ids=task_id, key=RESULT_KEY) for task_id in attempts]
    return [JobResult.model_validate(result) for result in results if result is not None]


def alert_skipped(publication: Publication, subscription: str, results: Sequence[JobResult], context: Context) -> None:
    """Tell every notifier, and the task's log, where commands were skipped. Raises nothing: what was delivered was
    delivered."""
    total = reduce(JobResult.plus, results, JobResult())
    place = Place(settings_file_of(context, publication.publication), subscription)
    warning = skipped_warning(place, total)
    if warning is None:
        return
    log.warning("%s", one_event(warning))
    fields = skipped_fields(publication.publication, place, total, warning, str(context.get("run_id") or ""))
    notify_all(publication.alerts, fields, dict(context))


def skipped_fields(publication: str, place: Place, total: JobResult, warning: str, run_id: str) -> AlertFields:
    """Return what there is to say: of the first command, all that is known."""
    first = next(iter(total.first_skipped), ErrorReport(kind=ErrorKind.DATA, message=warning))
    fields = alert_fields(AlertEvent.COMMAND_SKIPPED, publication, place, first, run_id)
    commands = "1 command" if total.skipped == 1 else f"{total.skipped:,} commands"
    summary = f"{publication}/{place.subscription}: {commands} skipped, the first with error {fields.number}"
    # The ways on after an error begin with delivering it, or with passing over it: both have happened.
    return replace(fields, summary=summary, text=warning, next_steps="\n".join(skipped_steps(place, total)), runbook="")


@dataclass(frozen=True, slots=True)
class SkippedBeforeFailure:
    """A task's `on_failure_callback`: where the task is the run's last one to deliver, and attempts have skipped
    commands before it failed."""

    publication: dict[str, Any]
    subscription: str
    attempts: tuple[str, ...]
    only: ErrorKind | None = None
    """Only where it failed with an error of this kind; None: for every failure."""

    def __call__(self, context: Context) -> None:
        error = context.get("exception")
        if self.only is not None and not (isinstance(error, ReplicationFailed) and error.report.kind is self.only):
            return
        publication = Publication.model_validate(self.publication)
        alert_skipped(publication, self.subscription, results_of(context, self.attempts), context)
