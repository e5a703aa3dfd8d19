"""Runs that somebody triggers from the monitor: by Airflow's own route and rights, and in its audit log."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.datamodels.dag_run import TriggerDAGRunPostBody
from airflow.api_fastapi.core_api.datamodels.dags import DAGPatchBody
from airflow.api_fastapi.core_api.routes.public.dag_run import trigger_dag_run
from airflow.api_fastapi.core_api.routes.public.dags import patch_dag
from airflow.models import Log
from airflow.models.dag import DagModel
from airflow.models.dagbag import DBDagBag
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from fastapi import HTTPException, Request
from pydantic import BaseModel
from sqlalchemy import select

from tranrepl_airflow.monitor.actions import Action, dag_id_of

OUR_HEADER = "X-Replication-Monitor"
"""A page of another site cannot send it: the browser asks this server first, which does not answer that."""
_OWN_SITE = (None, "same-origin")
_EVENT = "trigger_dag_run"
"""As Airflow's own route names it in the audit log."""


class TriggeredRun(BaseModel):
    """A run that waits for the scheduler."""

    dag_id: str
    run_id: str
    paused: bool
    """The DAG is paused: the run waits until somebody unpauses it."""
    state: str = "queued"


class Unpaused(BaseModel):
    """A DAG whose runs go on."""

    dag_id: str


def sent_by_our_page(request: Request) -> None:
    """Raise HTTPException 403 for a request that a page of another site may have sent."""
    if request.headers.get(OUR_HEADER) is None or request.headers.get("Sec-Fetch-Site") not in _OWN_SITE:
        raise HTTPException(403)


def triggerable(user: BaseUser, dag_ids: Collection[str]) -> set[str]:
    """Return those of these DAGs that Airflow would let the user trigger."""
    teams, authorized = DagModel.get_dag_id_to_team_name_mapping(list(dag_ids)), get_auth_manager().is_authorized_dag
    return {
        it
        for it in dag_ids
        if authorized(
            method="POST",
            access_entity=DagAccessEntity.RUN,
            details=DagDetails(id=it, team_name=teams.get(it)),
            user=user,
        )
    }


def allowed_actions(user: BaseUser, publication: str) -> frozenset[Action]:
    """Return the actions on a publication whose DAGs are there, and which the user may trigger."""
    by_action = {it: dag_id_of(it, publication) for it in Action}
    allowed = triggerable(user, paused_dags(by_action.values()))
    return frozenset(action for action, dag_id in by_action.items() if dag_id in allowed)


def paused_dags(dag_ids: Iterable[str]) -> dict[str, bool]:
    """Return which of these DAGs are there, and whether each is paused."""
    query = select(DagModel.dag_id, DagModel.is_paused).where(DagModel.dag_id.in_(set(dag_ids)), ~DagModel.is_stale)
    with create_session() as session:
        return {dag_id: bool(paused) for dag_id, paused in session.execute(query)}


def trigger(user: BaseUser, request: Request, dag_id: str, conf: Mapping[str, Any]) -> TriggeredRun:
    """Trigger a run, which Airflow's audit log has under the user's name.

    Raises HTTPException: 403 where the user may not, 404 where there is no such DAG, 400 for what its parameters
    refuse.
    """
    if dag_id not in triggerable(user, [dag_id]):
        raise HTTPException(403)
    _record(user, dag_id, conf)
    body = TriggerDAGRunPostBody(logical_date=None, conf=dict(conf), note=None)
    with create_session() as session:
        # It returns a row of Airflow's tables, of which FastAPI makes the response that is its type.
        run = cast("DagRun", trigger_dag_run(dag_id, body, DBDagBag(), user, session, request))
        run_id = run.run_id
    return TriggeredRun(dag_id=dag_id, run_id=run_id, paused=paused_dags([dag_id]).get(dag_id, False))


def unpause(user: BaseUser, dag_id: str) -> Unpaused:
    """Unpause a DAG that the user may edit. Raises HTTPException 404 where there is no such DAG."""
    _record(user, dag_id, {"is_paused": False}, "patch_dag")
    with create_session() as session:
        patch_dag(dag_id, DAGPatchBody(is_paused=False), session, None)
    return Unpaused(dag_id=dag_id)


def _record(user: BaseUser, dag_id: str, conf: Mapping[str, Any], event: str = _EVENT) -> None:
    """Write what is asked for, before it is done, and also where it fails."""
    name = user.get_name()
    with create_session() as session:
        session.add(
            Log(
                event=event,
                task_instance=None,
                owner=name,
                owner_display_name=name,
                extra=json.dumps({"conf": conf, "from": "Replication Monitor"}),
                dag_id=dag_id,
            )
        )
