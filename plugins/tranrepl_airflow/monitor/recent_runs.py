"""Runs of a publication that were triggered by hand lately, from Airflow's own tables."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import datetime
from typing import Any

from airflow.models.dagrun import DagRun, DagRunNote
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from airflow.utils.types import DagRunType
from pydantic import BaseModel
from sqlalchemy import select

from tranrepl_airflow.monitor.task_logs import log_path
from tranrepl_airflow.publication_setup import CHECK_TASK, REPORT_KEY, CheckReport

_MOST = 10


class HandRun(BaseModel):
    """A run that somebody triggered."""

    dag_id: str
    run_id: str
    state: str
    user: str | None
    time: datetime
    conf: dict[str, Any]
    note: str | None
    """What came of it; None for those who may not see values of rows."""


class FollowedRun(BaseModel):
    """How a run goes, or went."""

    dag_id: str
    run_id: str
    state: str
    note: str | None
    """What came of it; None before its end, and for those who may not see values of rows."""
    log: str | None
    """The path of the log of the task that says most, below Airflow's own address: the last one, or one that failed."""


class LastCheck(BaseModel):
    """The newest check's report."""

    run_id: str
    time: datetime
    report: CheckReport


def recent_runs(dag_ids: Collection[str], *, notes: bool) -> list[HandRun]:
    """Return the newest runs of these DAGs that were triggered by hand, the latest first."""
    query = (
        select(DagRun, DagRunNote.content)
        .outerjoin(DagRunNote, DagRunNote.dag_run_id == DagRun.id)
        .where(DagRun.dag_id.in_(dag_ids), DagRun.run_type == DagRunType.MANUAL)
        .order_by(DagRun.id.desc())
        .limit(_MOST)
    )
    with create_session() as session:
        return [
            HandRun(
                dag_id=run.dag_id,
                run_id=run.run_id,
                state=str(run.state),
                user=run.triggering_user_name,
                time=run.run_after,
                conf=run.conf or {},
                note=_plain(note) if notes else None,
            )
            for run, note in session.execute(query)
        ]


def followed_run(dag_id: str, run_id: str, *, note: bool) -> FollowedRun | None:
    """Return how a run goes; None where there is none."""
    task, mine = TaskInstance, (TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id)
    failed = task.state.in_([TaskInstanceState.FAILED, TaskInstanceState.UP_FOR_RETRY])
    spoke = task.start_date.is_not(None) & (task.state != TaskInstanceState.SKIPPED)
    newest = select(task.task_id, task.try_number).where(*mine, spoke).order_by(failed.desc(), task.start_date.desc())
    query = (
        select(DagRun.state, DagRunNote.content)
        .outerjoin(DagRunNote, DagRunNote.dag_run_id == DagRun.id)
        .where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
    )
    with create_session() as session:
        run = session.execute(query).one_or_none()
        said = session.execute(newest.limit(1)).one_or_none()
    if run is None:
        return None
    log = log_path(dag_id, run_id, said.task_id, said.try_number) if said else None
    return FollowedRun(
        dag_id=dag_id, run_id=run_id, state=str(run.state), note=_plain(run.content) if note else None, log=log
    )


def _plain(note: str | None) -> str | None:
    """Return a note, which is Markdown, as the monitor shows it."""
    return None if note is None else note.replace("`", "")


def last_check(dag_id: str) -> LastCheck | None:
    """Return the newest report of a setup DAG's check; None before the first."""
    query = (
        select(XComModel.run_id, XComModel.timestamp, XComModel.value)
        .where(XComModel.dag_id == dag_id, XComModel.task_id == CHECK_TASK, XComModel.key == REPORT_KEY)
        .order_by(XComModel.timestamp.desc())
        .limit(1)
    )
    with create_session() as session:
        row = session.execute(query).one_or_none()
    if row is None:
        return None
    value = json.loads(row.value) if isinstance(row.value, str) else row.value
    return LastCheck(run_id=row.run_id, time=row.timestamp, report=CheckReport.model_validate(value))
