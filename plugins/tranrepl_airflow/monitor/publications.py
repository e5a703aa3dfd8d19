"""The publications that Airflow has DAGs of, as their serialized DAGs have them: their log reader's task carries the
file's settings, since the API server may have no settings file."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from airflow.models.dag import DagModel, DagTag
from airflow.models.serialized_dag import SerializedDagModel
from airflow.utils.session import create_session
from fastapi import HTTPException
from pydantic import ValidationError
from sqlalchemy import select

from tranrepl.settings.publication import Publication
from tranrepl_airflow.dag_builder import TAG
from tranrepl_airflow.graph import LOG_READER
from tranrepl_airflow.monitor.access import Reader

_KEPT = 1000


def monitored_publications(dag_ids: Collection[str]) -> list[Publication]:
    """Return the publications among these DAGs, by name. One whose settings cannot be used has no log reader: it is
    left out, and its DAG says why."""
    with create_session() as session:
        tagged = session.scalars(
            select(DagModel.dag_id)
            .join(DagTag, DagTag.dag_id == DagModel.dag_id)
            .where(DagTag.name == TAG, DagModel.dag_id.in_(dag_ids), ~DagModel.is_stale)
        )
        rows = SerializedDagModel.get_latest_serialized_dags(dag_ids=sorted(tagged), session=session)
        return sorted(_KNOWN.read(rows), key=lambda it: it.publication)


def readable_publication(name: str, reader: Reader) -> Publication:
    """Return a publication. Raises HTTPException: 403 for one that the reader may not read, 404 for a DAG that is no
    publication's, or whose settings cannot be used."""
    if name not in reader.readable:
        raise HTTPException(403)
    for found in monitored_publications([name]):
        return found
    sentence = f"{name} is not the DAG of a publication, or its settings cannot be used: its DAG says so."
    raise HTTPException(404, sentence)


class _Known:
    """What was read of serialized DAGs, by id and hash: reading one takes some milliseconds."""

    def __init__(self) -> None:
        self._publications: dict[tuple[str, str], Publication | None] = {}

    def read(self, rows: Sequence[SerializedDagModel]) -> list[Publication]:
        known = self._publications
        keys = [((row.dag_id, row.dag_hash), row) for row in rows]
        found = {key: known[key] if key in known else _monitored(row) for key, row in keys}
        self._publications = {**known, **found} if len(known) < _KEPT else found
        return [it for it in found.values() if it is not None]


_KNOWN = _Known()


def _monitored(row: SerializedDagModel) -> Publication | None:
    dag = row.dag
    if not dag.has_task(LOG_READER):
        return None
    try:
        found = Publication.model_validate_json(dag.get_task(LOG_READER).doc_json or "")
    except ValidationError:  # somebody else's DAG with our tag, or parsed by another version
        return None
    # Rights are those on the DAG, so what it shows is its own.
    return found if found.publication == row.dag_id else None
