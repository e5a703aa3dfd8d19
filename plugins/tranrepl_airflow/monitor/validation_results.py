"""Validations, with what differed as their tasks' results have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from pydantic import ValidationError

from tranrepl.distributor.monitoring.publication import MonitoredRecord
from tranrepl.distributor.monitoring.runs import Agent, AgentRun, ChosenRuns, newest_runs
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.validation_report import SubscriptionValidation
from tranrepl_airflow.earlier_tasks import RESULT_KEY
from tranrepl_airflow.monitor.agent_history import withheld
from tranrepl_airflow.monitor.task_logs import Task, tasks_between

_MOST = 30


@dataclass(frozen=True, slots=True)
class ValidationRun:
    """A validation of one subscription."""

    run: AgentRun
    task_log: str | None
    """Path of the task's log, below Airflow's own address; None where no task is known."""
    equal: bool
    """Whether nothing differed, or what did was repaired."""
    result: SubscriptionValidation | None
    """What was compared, and the first rows that differ by their keys; None where no task's result is known. The keys
    are left out for those who may not edit the DAG."""


def newest_validations(
    connection: sa.Connection, record: MonitoredRecord, *, may_edit: bool
) -> Sequence[ValidationRun]:
    """Return the newest validations, the latest first."""
    runs = newest_runs(connection, record, ChosenRuns(_MOST, Agent.VALIDATION))
    if not runs:
        return []
    starts = [it.start_time for it in runs]
    # A validation is written into the history when it has ended: its row begins then.
    tasks = tasks_between(record.publication, min(starts), max(starts))
    found = [(it, tasks.of(it)) for it in runs]
    results = _results([task for _, task in found if task is not None])
    return [_validation(it, task, results.get(_key(task)) if task else None, may_edit) for it, task in found]


def _validation(
    run: AgentRun, task: Task | None, result: SubscriptionValidation | None, may_edit: bool
) -> ValidationRun:
    shown = result if may_edit or result is None else result.shortened(0)
    return ValidationRun(
        run=run if may_edit else withheld(run),
        task_log=None if task is None else task.log,
        equal=not run.failed,
        result=shown,
    )


def _key(task: Task) -> tuple[str, str, str]:
    return task.dag_id, task.run_id, task.task_id


def _results(tasks: Sequence[Task]) -> Mapping[tuple[str, str, str], SubscriptionValidation]:
    keys = sa.tuple_(XComModel.dag_id, XComModel.run_id, XComModel.task_id)
    query = sa.select(XComModel.dag_id, XComModel.run_id, XComModel.task_id, XComModel.value).where(
        XComModel.key == RESULT_KEY, keys.in_([_key(it) for it in tasks])
    )
    with create_session() as session:
        rows = session.execute(query).all() if tasks else []
    read = {(row.dag_id, row.run_id, row.task_id): _result(row.value) for row in rows}
    return {key: it for key, it in read.items() if it is not None}


def _result(value: Any) -> SubscriptionValidation | None:
    try:
        return JobResult.model_validate(value).validation
    except ValidationError:
        # Another version's.
        return None
