"""The publications that Airflow has DAGs of, as their serialized DAGs have them: their log reader's task carries the
file's settings, since the API server may have no settings file."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from airflow.models.dag import DagModel, DagTag
from airflow.models.serialized_dag import SerializedDagModel
from airflow.utils.session import create_session
from fastapi import HTTPException
from pydantic import BaseModel, ValidationError
from sqlalchemy import select

from tranrepl.settings.publication import Publication
from tranrepl_airflow.dag_parts import Tag
from tranrepl_airflow.graph import LOG_READER
from tranrepl_airflow.monitor.access import Reader

_KEPT = 1000


class DagState(BaseModel):
    """Airflow's own part of a publication's state."""

    paused: bool = False
    next_run: datetime | None = None
    """None where no schedule starts one, where one runs, or the DAG is paused."""


class MonitoredPublication(Publication):
    """A publication's settings, the path of the file that its DAG was parsed from, and what Airflow does with it."""

    settings_file: str
    dag: DagState = DagState()


def monitored_publications(dag_ids: Collection[str]) -> list[MonitoredPublication]:
    """Return the publications among these DAGs, by name. One whose settings cannot be used has no log reader: it is
    left out, and its DAG says why."""
    with create_session() as session:
        rows = session.execute(
            select(DagModel.dag_id, DagModel.is_paused, DagModel.next_dagrun_create_after)
            .join(DagTag, DagTag.dag_id == DagModel.dag_id)
            .where(DagTag.name == Tag.REPLICATE.value, DagModel.dag_id.in_(dag_ids), ~DagModel.is_stale)
        )
        states = {name: DagState(paused=paused, next_run=None if paused else at) for name, paused, at in rows}
        dags = SerializedDagModel.get_latest_serialized_dags(dag_ids=sorted(states), session=session)
        found = [it.model_copy(update={"dag": states[it.publication]}) for it in _KNOWN.read(dags)]
        return sorted(found, key=lambda it: it.publication)


def readable_publication(name: str, reader: Reader) -> MonitoredPublication:
    """Return a publication. Raises HTTPException: 403 for one that the reader may not read, 404 for a DAG that is no
    publication's, or whose settings cannot be used."""
    if name not in reader.readable:
        raise HTTPException(403)
    for found in monitored_publications([name]):
        return found
    sentence = (
        f"{name} is not the DAG of a publication, or its settings cannot be used: then its DAG in Airflow says why."
    )
    raise HTTPException(404, sentence)


class _Known:
    """What was read of serialized DAGs, by id and hash: reading one takes some milliseconds."""

    def __init__(self) -> None:
        self._publications: dict[tuple[str, str], MonitoredPublication | None] = {}

    def read(self, rows: Sequence[SerializedDagModel]) -> list[MonitoredPublication]:
        known = self._publications
        keys = [((row.dag_id, row.dag_hash), row) for row in rows]
        found = {key: known[key] if key in known else _monitored(row) for key, row in keys}
        self._publications = {**known, **found} if len(known) < _KEPT else found
        return [it for it in found.values() if it is not None]


_KNOWN = _Known()


def _monitored(row: SerializedDagModel) -> MonitoredPublication | None:
    dag = row.dag
    if not dag.has_task(LOG_READER):
        return None
    try:
        found = MonitoredPublication.model_validate_json(dag.get_task(LOG_READER).doc_json or "")
    except ValidationError:  # somebody else's DAG with our tag, or parsed by another version
        return None
    # Rights are those on the DAG, so what it shows is its own.
    return found if found.publication == row.dag_id else None
