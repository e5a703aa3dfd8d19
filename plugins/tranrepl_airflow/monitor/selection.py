"""The publication that a request is about, where its reader may see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import Depends

from tranrepl_airflow.dag_builder import (
    ADMINISTRATION_SUFFIX,
    REINITIALIZATION_SUFFIX,
    SETUP_SUFFIX,
    VALIDATION_SUFFIX,
)
from tranrepl_airflow.monitor.access import ReaderDep
from tranrepl_airflow.monitor.publications import MonitoredPublication, readable_publication

SUFFIXES = {
    VALIDATION_SUFFIX: "validations",
    REINITIALIZATION_SUFFIX: "snapshots",
    SETUP_SUFFIX: "actions",
    ADMINISTRATION_SUFFIX: "actions",
}
"""A publication's other DAGs, by the suffix of their ids, and the part of its page that is about what they do."""


@dataclass(frozen=True, slots=True)
class Selection:
    """A publication, and whether its reader may see values of rows."""

    publication: MonitoredPublication
    may_edit: bool
    user: BaseUser

    @property
    def name(self) -> str:
        return self.publication.publication


def select_publication(name: str, reader: ReaderDep, user: GetUserDep) -> Selection:
    """Return the publication of this name. Raises HTTPException as `readable_publication` does."""
    return Selection(readable_publication(name, reader), name in reader.editable, user)


SelectionDep = Annotated[Selection, Depends(select_publication)]


def publication_of(dag_id: str) -> tuple[str, str | None]:
    """Return the publication that a DAG is one of, and the part of its page that is about the DAG; None: the first."""
    for suffix, part in SUFFIXES.items():
        if dag_id.endswith(suffix):
            return dag_id.removesuffix(suffix), part
    return dag_id, None
