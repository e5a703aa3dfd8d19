"""The publication that a request is about, where its reader may see it, and what its distribution database says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Generic, TypeVar

import sqlalchemy as sa
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import Depends, HTTPException, status

from tranrepl.admin.status.server_answers import PendingAnswer, error_line
from tranrepl.distributor.database import DistributionDatabase
from tranrepl.distributor.monitoring.publication import MonitoredRecord, find_publication
from tranrepl.errors import ReplicationError
from tranrepl_airflow.dag_builder import (
    ADMINISTRATION_PREFIX,
    REINITIALIZATION_PREFIX,
    SETUP_PREFIX,
    VALIDATION_PREFIX,
)
from tranrepl_airflow.job_connections import resolve_connections
from tranrepl_airflow.monitor.access import ReaderDep
from tranrepl_airflow.monitor.overview import NOT_SET_UP
from tranrepl_airflow.monitor.publications import readable_publication
from tranrepl_airflow.monitored import MonitoredPublication

_PATIENCE_SECONDS = 3.0
PREFIXES = {
    VALIDATION_PREFIX: "validations",
    REINITIALIZATION_PREFIX: "snapshots",
    SETUP_PREFIX: "actions",
    ADMINISTRATION_PREFIX: "actions",
}
"""A publication's other DAGs, by the prefix of their ids, and the part of its page that is about what they do."""

Answer = TypeVar("Answer")
Query = Callable[[sa.Connection, MonitoredRecord], Answer]


@dataclass(frozen=True, slots=True)
class LookedAt:
    """A publication, and whether its reader may see values of rows."""

    publication: MonitoredPublication
    may_edit: bool
    user: BaseUser


def looked_at(name: str, reader: ReaderDep, user: GetUserDep) -> LookedAt:
    """Return the publication of this name. Raises HTTPException as `readable_publication` does."""
    return LookedAt(readable_publication(name, reader), name in reader.editable, user)


LookedAtDep = Annotated[LookedAt, Depends(looked_at)]


def publication_of(dag_id: str) -> tuple[str, str | None]:
    """Return the publication that a DAG is one of, and the part of its page that is about the DAG; None: the first."""
    for prefix, part in PREFIXES.items():
        if dag_id.startswith(prefix):
            return dag_id.removeprefix(prefix), part
    return dag_id, None


class PendingPart(Generic[Answer]):
    """A query on its way to the distribution database, which may not answer."""

    def __init__(self, publication: MonitoredPublication, query: Query[Answer]) -> None:
        connection_id = publication.distributor
        question = partial(_ask, connection_id, publication.publication, query)
        self._pending = PendingAnswer(f"connection {connection_id}", question, _PATIENCE_SECONDS)

    def answer(self) -> Answer:
        """Return the answer. Raises HTTPException: 404 where the publication is not set up, 503 where the database
        gives none."""
        answer = self._pending.answer()
        if isinstance(answer, ReplicationError):
            line = error_line("the distribution database", answer)
            raise HTTPException(status.HTTP_503_SERVICE_UNAVAILABLE, f"{line.rstrip('.')}.")
        if isinstance(answer, _NotSetUp):
            raise HTTPException(status.HTTP_404_NOT_FOUND, f"{NOT_SET_UP}.")
        return answer


class _NotSetUp:
    pass


def _ask(connection_id: str, name: str, query: Query[Answer]) -> Answer | _NotSetUp:
    connections = resolve_connections([connection_id])
    with (
        DistributionDatabase(connections.by_id[connection_id]) as database,
        database.transaction() as connection,
    ):
        record = find_publication(connection, name)
        return _NotSetUp() if record is None else query(connection, record)
