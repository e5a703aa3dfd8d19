"""What must hold of the deployment's Compose file, checked without Docker."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.checkout import CHECKOUT
from tranrepl.connections import Connection, from_environment
from tranrepl.settings.loading import load_publication

DOCKER = CHECKOUT / "docker"
KEYS = ("AIRFLOW__CORE__FERNET_KEY", "AIRFLOW__API__SECRET_KEY", "AIRFLOW__API_AUTH__JWT_SECRET")


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    document = yaml.safe_load((DOCKER / "docker-compose.yaml").read_text(encoding="utf-8"))
    return {name: service for name, service in document["services"].items() if isinstance(service, dict)}


def _airflow(services: dict[str, Any]) -> dict[str, Any]:
    return {name: it for name, it in services.items() if it["image"].startswith("tranrepl-airflow")}


def _volumes(service: dict[str, Any]) -> dict[str, str]:
    """Return target and source."""
    return {target: source for source, target, *_ in (it.split(":") for it in service.get("volumes", []))}


def test_all_of_airflow_shares_keys_and_settings(services: dict[str, Any]) -> None:
    airflow = _airflow(services)
    assert sorted(airflow) == ["airflow-apiserver", "airflow-dag-processor", "airflow-init", "airflow-scheduler"]
    for service in airflow.values():
        assert service["env_file"] == ["secrets.env", "connections.env"]
        assert service["environment"] == airflow["airflow-init"]["environment"]
        assert not set(KEYS) & set(service["environment"])


def test_logs_lie_on_a_volume_wherever_airflow_looks_for_them(services: dict[str, Any]) -> None:
    for service in _airflow(services).values():
        folder = service["environment"]["AIRFLOW__LOGGING__BASE_LOG_FOLDER"]
        assert _volumes(service)[folder] == "logs"
        assert folder in (DOCKER / "Dockerfile.airflow").read_text(encoding="utf-8")


def test_the_demos_publications_are_not_deployed(services: dict[str, Any]) -> None:
    for service in services.values():
        volumes = _volumes(service)
        if "../dags" in volumes.values():
            assert volumes["/opt/airflow/dags/publications"] == "./publications"
    allowed = (DOCKER.parent / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert allowed[0] == "*"
    assert not any(line.startswith("!dags") for line in allowed)
    assert [it.name for it in (DOCKER / "publications").glob("*.example")] == ["shop.yaml.example"]


def test_every_service_has_limits_and_every_lasting_one_is_watched(services: dict[str, Any]) -> None:
    for name, service in services.items():
        assert sorted(service["deploy"]["resources"]["limits"]) == ["cpus", "memory", "pids"], name
        lasting = service["restart"] != "no"
        assert lasting == (name != "airflow-init")
        assert lasting == ("healthcheck" in service), name


def test_a_worker_keeps_its_files_where_it_may_write() -> None:
    assert re.search(r"^ENV SPARK_WORKER_DIR=/home/spark/", (DOCKER / "Dockerfile.spark").read_text(), re.MULTILINE)


def test_secrets_are_made_once_and_for_their_owner_alone(tmp_path: Path) -> None:
    script = shutil.copy(DOCKER / "make_secrets.sh", tmp_path)
    made = subprocess.run([script], capture_output=True, text=True, check=True)
    files = {name: (tmp_path / name) for name in ("secrets.env", "database.env")}
    assert all(it.stat().st_mode & 0o777 == 0o600 for it in files.values())
    secrets, database = (dict(line.split("=", 1) for line in it.read_text().splitlines()) for it in files.values())
    assert all(len(secrets[key]) >= 32 for key in KEYS)
    assert len(base64.urlsafe_b64decode(secrets["AIRFLOW__CORE__FERNET_KEY"])) == 32
    for driver, name in (("psycopg", "CONN"), ("psycopg_async", "CONN_ASYNC")):
        url = secrets[f"AIRFLOW__DATABASE__SQL_ALCHEMY_{name}"]
        password = database["POSTGRES_PASSWORD"]
        assert url == f"postgresql+{driver}://airflow:{password}@airflow-database/airflow"
    assert not any(value in made.stdout + made.stderr for value in secrets.values())
    again = subprocess.run([script], capture_output=True, text=True, check=False)
    assert (again.returncode, "there already" in again.stderr) == (1, True)


def test_the_example_publication_agrees_with_the_example_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    for line in (DOCKER / "connections.env.example").read_text(encoding="utf-8").splitlines():
        if line.startswith("AIRFLOW_CONN_"):
            name, value = line.split("=", 1)
            monkeypatch.setenv(name, value.strip("'"))
    publication = load_publication(DOCKER / "publications" / "shop.yaml.example")
    connections: dict[str, Connection] = {it: from_environment(it) for it in publication.connection_ids()}
    assert {it.database for it in connections.values()} == {"shop", "distribution", "reporting"}
