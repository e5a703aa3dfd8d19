"""Replication Monitor's app in this process, in an Airflow that has a publication's DAGs."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from support.checkout import CHECKOUT

# What these import warns of the future of a dependency's dependency.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from airflow.api.common.delete_dag import delete_dag
    from airflow.api_fastapi.app import create_auth_manager
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    from airflow.utils.session import create_session

    from tranrepl_airflow.monitor.app import monitor_app

if TYPE_CHECKING:
    from fastapi import FastAPI

_BUNDLE = "dags-folder"


@contextmanager
def monitor_here(document: Mapping[str, object], folder: Path) -> Iterator[FastAPI]:
    """Let Airflow have the DAGs of a publication's settings, and make the app. `folder`: where the DAG files go."""
    (folder / "publications").mkdir()
    path = folder / "publications" / f"{document['publication']}.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    for file in (CHECKOUT / "dags").glob("*.py"):
        shutil.copy(file, folder)
    bag = DagBag(folder, bundle_name=_BUNDLE)
    assert bag.import_errors == {}
    DagBundlesManager().sync_bundles_to_db()  # type: ignore[no-untyped-call]
    sync_bag_to_db(bag, _BUNDLE, None)
    create_auth_manager()
    yield monitor_app()
    with create_session() as session:
        for dag_id in bag.dags:
            delete_dag(dag_id, session=session)
