"""Results of the tasks that ran before this one in the same run."""

from __future__ import annotations

from collections.abc import Sequence

from airflow.sdk import Context

from tranrepl.errors import ErrorReport
from tranrepl.jobs.results import JobResult
from tranrepl_airflow.graph import LOG_READER

RESULT_KEY = "return_value"
"""XCom of a job: its JobResult. A job that failed has one too: it may have delivered before."""
ERROR_KEY = "error"
"""XCom of a task that failed: its ErrorReport."""


def state_of(task_id: str, context: Context) -> str | None:
    """Return the task's state in this run, as Airflow spells it."""
    ti = context["ti"]
    states = ti.get_task_states(dag_id=ti.dag_id, task_ids=[task_id], run_ids=[ti.run_id])
    state = states.get(ti.run_id, {}).get(task_id)
    return None if state is None else str(state)


def results_of(context: Context, attempts: Sequence[str]) -> list[JobResult]:
    """Return what the attempts (task ids) of this run have left as XCom, in this order."""
    results = [context["ti"].xcom_pull(task_ids=task_id, key=RESULT_KEY) for task_id in attempts]
    return [JobResult.model_validate(result) for result in results if result is not None]


def error_of(task_id: str, context: Context) -> ErrorReport | None:
    """Return what the task failed with; None where it did not, or its worker was killed."""
    report = context["ti"].xcom_pull(task_ids=task_id, key=ERROR_KEY)
    return ErrorReport.model_validate(report) if report else None


def log_reader_error(context: Context) -> ErrorReport | None:
    """Return what the run's log reader failed with."""
    return error_of(LOG_READER, context)
