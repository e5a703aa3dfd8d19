"""What was done to a publication by hand lately, as Airflow's own tables have it."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import datetime
from typing import Any

from airflow.models.dagrun import DagRun, DagRunNote
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from airflow.utils.types import DagRunType
from pydantic import BaseModel
from sqlalchemy import select

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
                note=note if notes else None,
            )
            for run, note in session.execute(query)
        ]


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
