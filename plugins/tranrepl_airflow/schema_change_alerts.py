"""The alert that a job met schema changes: what they ask of a person or cost, and which were replicated.

It is sent by the task of the job, once for each try: a later try meets none of what an earlier one has registered or
delivered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tranrepl.jobs.results import JobResult
from tranrepl.next_steps import Place, named
from tranrepl.settings.alert import AlertLevel
from tranrepl.settings.publication import Publication
from tranrepl_airflow.alerts import AlertEvent, AlertFields, notify_all, run_id_of

_MOST_LINES = 20
_RUNBOOK = "docs/how-to/schema-changes.md"


def alert_schema_changes(publication: Publication, place: Place, result: JobResult, context: Mapping[str, Any]) -> None:
    """Tell every notifier that asks for it, where the job met schema changes. Raises nothing: what was done was
    done."""
    fields = schema_change_fields(publication.publication, place, result, run_id_of(context))
    if fields is not None:
        notify_all(publication.alerts, fields, dict(context))


def schema_change_fields(publication: str, place: Place, result: JobResult, run_id: str) -> AlertFields | None:
    """Return what there is to say; None where there is nothing. What asks for something comes first."""
    warnings, applied = result.schema_change_warnings, result.applied_schema_changes
    if not warnings and not applied:
        return None
    level = AlertLevel.WARNING if warnings else AlertLevel.INFO
    lines = [named(it, place) for it in (*warnings, *applied)]
    more = [f"and {len(lines) - _MOST_LINES} more"] if len(lines) > _MOST_LINES else []
    where = "/".join(filter(None, [publication, place.subscription]))
    return AlertFields(
        event=AlertEvent.SCHEMA_CHANGE,
        summary=f"{where}: {'schema change to look at' if warnings else 'schema change replicated'}",
        publication=publication,
        subscription=place.subscription,
        text="\n".join([*lines[:_MOST_LINES], *more]),
        runbook=_RUNBOOK,
        run_id=run_id,
        level=level,
    )
