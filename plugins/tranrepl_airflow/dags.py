"""The DAGs of a folder of publications, for a DAG file:

from tranrepl_airflow.dags import build_dags

build_dags("/opt/airflow/dags/publications")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum, auto
from pathlib import Path

from airflow.sdk import DAG, get_parsing_context
from airflow.sdk.configuration import conf

from tranrepl import garbage_collection
from tranrepl.errors import ConfigurationError
from tranrepl.settings.loading import load_publication
from tranrepl.settings.publication import Publication
from tranrepl_airflow.administration import administration_dag
from tranrepl_airflow.dag_builder import (
    ADMINISTRATION_SUFFIX,
    CLEANUP_DAG_ID,
    REINITIALIZATION_SUFFIX,
    SETUP_SUFFIX,
    VALIDATION_SUFFIX,
    build_cleanup_dag,
    build_dag,
    dag_id_of,
)
from tranrepl_airflow.provider import PUBLICATIONS, SECTION
from tranrepl_airflow.publication_setup import setup_dag
from tranrepl_airflow.reinitialization import reinitialization_dag
from tranrepl_airflow.validation import validation_dag


class DagKind(StrEnum):
    """What a DAG is for."""

    REPLICATION = auto()
    """One for each publication: reads the log and delivers."""
    VALIDATION = auto()
    """One for each publication: compares both ends."""
    REINITIALIZATION = auto()
    """One for each publication: reinitializes subscriptions."""
    SETUP = auto()
    """One for each publication: checks it and sets it up."""
    ADMINISTRATION = auto()
    """One for each publication: what an administrator does by hand."""
    CLEANUP = auto()
    """One for all publications: removes what is needed no more."""


_ALL = "*"
_BESIDE: Mapping[DagKind, tuple[str, Callable[[Publication, str], DAG | None]]] = {
    DagKind.VALIDATION: (VALIDATION_SUFFIX, validation_dag),
    DagKind.REINITIALIZATION: (REINITIALIZATION_SUFFIX, reinitialization_dag),
    DagKind.SETUP: (SETUP_SUFFIX, setup_dag),
    DagKind.ADMINISTRATION: (ADMINISTRATION_SUFFIX, administration_dag),
}
"""A publication's DAGs beside the one that replicates: the suffix of their ids, and how each is built."""


def build_dags(folder: str | Path | None = None, *kinds: DagKind, names: str = _ALL) -> list[DAG]:
    """Build the DAGs of every publication in a folder (`*.yaml`), of these kinds or of all.

    `names` divides many publications among DAG files: a pattern of names, as in `[a-m]*`. As the clean-up is one DAG
    for all, a file of some names has it only where it names that kind.

    Without a folder, Airflow's option `publications` of section `[tranrepl]` names it. A worker that parses the DAG
    file for one task says for which DAG: only that one is built. Raises ConfigurationError where there is no such
    folder, which Airflow shows as an import error of the DAG file; a file that cannot be used has a DAG that says
    so.
    """
    files = sorted(_existing(folder).glob(f"{names}.yaml"))
    wanted_kinds = kinds or [it for it in DagKind if it is not DagKind.CLEANUP or names == _ALL]
    wanted = get_parsing_context().dag_id
    dags: list[DAG | None] = []
    with garbage_collection.paused():
        for kind in wanted_kinds:
            if kind is DagKind.CLEANUP:
                dags += [build_cleanup_dag(files)] if wanted in (None, CLEANUP_DAG_ID) else []
            elif kind is DagKind.REPLICATION:
                dags += [build_dag(it) for it in files if wanted in (None, dag_id_of(it))]
            else:
                suffix, build = _BESIDE[kind]
                dags += [_usable(it, build) for it in files if wanted in (None, f"{dag_id_of(it)}{suffix}")]
    return [it for it in dags if it is not None]


def _usable(path: Path, build: Callable[[Publication, str], DAG | None]) -> DAG | None:
    """Build a DAG of a settings file; return None where the file cannot be used: the publication's own DAG says so."""
    try:
        publication = load_publication(path)
        return build(publication, str(path)) if publication.publication == path.stem else None
    except ConfigurationError:
        return None


def _existing(folder: str | Path | None) -> Path:
    """Return the folder of publications."""
    named = folder or conf.get(SECTION, PUBLICATIONS, fallback="")
    if not named:
        raise ConfigurationError(
            f"build_dags: no folder of publications: neither an argument nor [{SECTION}] {PUBLICATIONS} names one",
            remedy='build_dags(Path(__file__).with_name("publications")), for a folder beside the DAG file',
        )
    path = Path(named)
    if not path.is_absolute():
        raise ConfigurationError(
            f"build_dags: the folder of publications {named!s} is relative, and Airflow's processes run anywhere",
            remedy=f'an absolute path; for one beside the DAG file: Path(__file__).with_name("{path.name}")',
        )
    if not path.is_dir():
        raise ConfigurationError(
            f"build_dags: there is no folder of publications {path}", remedy=f"mkdir {path}, or name another one"
        )
    return path
