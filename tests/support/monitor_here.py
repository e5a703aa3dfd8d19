"""Replication Monitor's app in this process, in an Airflow that has a publication's DAGs, and its JSON API's schema."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema  # type: ignore[import-untyped]
import yaml

from support.checkout import CHECKOUT

if TYPE_CHECKING:
    from fastapi import FastAPI

_BUNDLE = "dags-folder"


@contextmanager
def monitor_here(document: Mapping[str, object], folder: Path) -> Iterator[FastAPI]:
    """Let Airflow have the DAGs of a publication's settings, and make the app. `folder`: where the DAG files go."""
    # Each of a run's processes imports this module as it collects, and one of them runs such tests: Airflow's API takes
    # longer than all else that is collected. What it imports warns of the future of a dependency's dependency.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from airflow.api.common.delete_dag import delete_dag
        from airflow.api_fastapi.app import create_auth_manager
        from airflow.dag_processing.bundles.manager import DagBundlesManager
        from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
        from airflow.utils.session import create_session

        from tranrepl_airflow.monitor.app import monitor_app

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


_API = "/api"
_START = f"{_API}/publication/{{name}}"


def api_schema(app: Any) -> dict[str, Any]:
    """Return the schema of each answer by its address below a publication's, of the overview, and of each body that is
    posted."""
    described = app.openapi()
    paths = {
        path.removeprefix(_START).removeprefix(_API).strip("/") or "state": methods
        for path, methods in described["paths"].items()
        if path.startswith(_API)
    }
    posted = {name: methods["post"] for name, methods in paths.items() if "post" in methods}
    found = {
        "answers": {name: _answer(methods["get"]) for name, methods in paths.items() if "get" in methods},
        "posted": {name: _content(it["requestBody"]) for name, it in posted.items() if "requestBody" in it},
        "answers_to_posted": {name: _answer(it) for name, it in posted.items()},
        "components": {"schemas": described["components"]["schemas"]},
    }
    without_titles: dict[str, Any] = json.loads(json.dumps(found), object_hook=_without_title)
    return without_titles


def _answer(operation: Mapping[str, Any]) -> Any:
    return _content(operation["responses"]["200"])


def _content(described: Mapping[str, Any]) -> Any:
    return described["content"]["application/json"]["schema"]


def _without_title(value: dict[str, Any]) -> dict[str, Any]:
    return {name: it for name, it in value.items() if not (name == "title" and isinstance(it, str))}


def assert_fits(schema: Mapping[str, Any], kind: str, name: str, value: object) -> None:
    """Fail where what was sent or answered is not as the schema says."""
    escaped = name.replace("/", "~1").replace("{", "%7B").replace("}", "%7D")
    jsonschema.validate(value, {**schema, "$ref": f"#/{kind}/{escaped}"})
