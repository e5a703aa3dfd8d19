"""Rights to see and to do, by DAG, from Airflow's own auth manager."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_view
from fastapi import Depends

MAY_SEE_MONITOR = Depends(requires_access_view(AccessView.PLUGINS))


@dataclass(frozen=True, slots=True)
class Reader:
    """Who looks: the DAGs that they may read, and those that they may edit, who alone see values of rows."""

    readable: frozenset[str]
    editable: frozenset[str]


def reader_of(user: GetUserDep) -> Reader:
    """Return what the user may see."""
    auth = get_auth_manager()
    readable = auth.get_authorized_dag_ids(user=user, method="GET")
    editable = auth.get_authorized_dag_ids(user=user, method="PUT")
    return Reader(frozenset(readable), frozenset(editable))


ReaderDep = Annotated[Reader, Depends(reader_of)]
