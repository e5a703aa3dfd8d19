"""Airflow in a folder of its own, a spark-submit that starts no JVM, and idle checks that need no database."""

from __future__ import annotations

import atexit
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol
from unittest.mock import patch

import pytest
import yaml
from sqlalchemy import select

from support.checkout import CHECKOUT
from tranrepl.jobs.requests import DistributionRequest, LogReaderRequest, SnapshotRequest
from tranrepl.jobs.results import JobResult
from tranrepl.settings.publication import Publication
from tranrepl.topology import Topology

FAKE_SPARK_SUBMIT = Path(__file__).with_name("fake_spark_submit.py")
PASSWORD = "p@ss /word!"  # noqa: S105
"""Spelled otherwise in a URL."""

_HOME = Path(tempfile.mkdtemp(prefix="tranrepl-airflow-"))
atexit.register(shutil.rmtree, _HOME, ignore_errors=True)
AIRFLOW_ENVIRONMENT = {
    "AIRFLOW_HOME": str(_HOME),
    "AIRFLOW__CORE__DAGS_FOLDER": str(_HOME / "dags"),
    "AIRFLOW__CORE__PLUGINS_FOLDER": str(CHECKOUT / "plugins"),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{_HOME / 'airflow.db'}",
}

# Airflow reads its home, its folders and its database when it is first imported, and makes ~/airflow where nothing
# tells it otherwise. A setting that a test run inherits must not win either.
with patch.dict(os.environ, AIRFLOW_ENVIRONMENT), warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import airflow.settings
    from airflow.api.common.delete_dag import delete_dag
    from airflow.models.connection import Connection
    from airflow.models.dag import DagModel
    from airflow.sdk import BaseHook, Connection as TaskConnection
    from airflow.sdk.exceptions import AirflowNotFoundException
    from airflow.utils.session import create_session

JobRequest = LogReaderRequest | DistributionRequest | SnapshotRequest

PUBLICATION: dict[str, Any] = {
    "publication": "purchasing",
    "publisher": {"connection": "publisher"},
    "distributor": {"connection": "distribution", "store": "store"},
    "schedule": "*/5 * * * *",
    "articles": [
        {"source": "purchasing.vendor", "upd_cmd": "SQL"},
        {"source": 'sales."Order Details"', "destination": "sales.order_details", "columns": ["id", "quantity"]},
    ],
    "subscriptions": [
        {"name": "reporting", "connection": "subscriber"},
        {"name": "audit", "connection": "archive"},
    ],
}

SPARK_CONNECTION = {"conn_type": "spark", "host": "local[1]"}
DATABASE_CONNECTION = {"conn_type": "postgres", "host": "db", "login": "repl", "password": PASSWORD, "schema": "shop"}
CONNECTIONS: dict[str, dict[str, Any]] = {
    "spark_default": SPARK_CONNECTION,
    "publisher": DATABASE_CONNECTION,
    "distribution": DATABASE_CONNECTION,
    "subscriber": DATABASE_CONNECTION,
    "archive": DATABASE_CONNECTION,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore the warnings of Airflow and its dependencies about what is to change; our own still fail."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            for category in ("DeprecationWarning", "PendingDeprecationWarning", "ResourceWarning"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{category}"), append=False)


@pytest.fixture(scope="session")
def airflow_home() -> Iterator[Path]:
    """Yield Airflow's home with a migrated database that holds the connections, once a session."""
    dags = _HOME / "dags"
    dags.mkdir()
    shutil.copy(CHECKOUT / "dags" / "replication.py", dags)
    subprocess.run(
        [sys.executable, "-m", "airflow", "db", "migrate"],
        env={**os.environ, **AIRFLOW_ENVIRONMENT},
        check=True,
        capture_output=True,
    )
    # What dag.test() imports first of all warns of the future of a dependency's dependency.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("airflow.api_fastapi.execution_api.app")
    with create_session() as session:
        for connection_id, fields in CONNECTIONS.items():
            session.add(Connection(conn_id=connection_id, **fields))
    yield _HOME
    airflow.settings.dispose_orm()


@pytest.fixture(autouse=True)
def _airflow_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set Airflow's variables for these tests alone: other tests' processes must not see them."""
    for name, value in AIRFLOW_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def publication() -> Publication:
    """Return a publication of two articles and two subscriptions that runs every five minutes."""
    return Publication.model_validate(PUBLICATION)


@pytest.fixture
def stored_connections() -> dict[str, dict[str, Any]]:
    """Return the fields of each connection that the publication needs, by id."""
    return dict(CONNECTIONS)


@pytest.fixture
def publications(airflow_home: Path) -> Iterator[Path]:
    """Yield the folder of settings files beside the DAG file, with one publication in it."""
    folder = airflow_home / "dags" / "publications"
    folder.mkdir()
    _write(folder)
    yield folder
    shutil.rmtree(folder)
    _forget_dags()


def _forget_dags() -> None:
    # The next test's DAG of the same name would be a second version, of which Airflow warns when it deletes a run. When
    # it is written is a matter of time: not within 30 seconds of the first.
    with create_session() as session:
        for dag_id in session.scalars(select(DagModel.dag_id)).all():
            delete_dag(dag_id, session=session)


class PublicationWriter(Protocol):
    """Write the publication's settings file with some keys changed."""

    def __call__(self, **changes: Any) -> Path: ...


@pytest.fixture
def write_publication(publications: Path) -> PublicationWriter:
    return partial(_write, publications)


def _write(folder: Path, **changes: Any) -> Path:
    document = {**PUBLICATION, **changes}
    path = folder / f"{document['publication']}.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


@dataclass
class FakeSpark:
    """The answers of the fake spark-submit, and how it was called."""

    folder: Path

    def answer(self, job: str, result: JobResult | None, exit_code: int = 0, output: str = "") -> None:
        """Set what `log_reader`, `streams` or `single_connection` answers. Without a result, it leaves no file."""
        text = None if result is None else result.model_dump_json()
        answer = {"result": text, "exit_code": exit_code, "output": output}
        (self.folder / f"{job}.answer").write_text(json.dumps(answer), encoding="utf-8")

    @property
    def calls(self) -> list[dict[str, Any]]:
        paths = sorted(self.folder.glob("*.call"), key=lambda path: path.stat().st_mtime_ns)
        return [json.loads(path.read_text(encoding="utf-8")) for path in paths]

    @property
    def jobs(self) -> list[str]:
        return [call["job"] for call in self.calls]


@pytest.fixture
def fake_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed_pipes: None) -> FakeSpark:
    """Put a fake spark-submit first on PATH. Every job succeeds with nothing delivered until a test says otherwise."""
    binary = tmp_path / "bin" / "spark-submit"
    binary.parent.mkdir()
    binary.write_text(f"#!{sys.executable} -IS\n{FAKE_SPARK_SUBMIT.read_text(encoding='utf-8')}", encoding="utf-8")
    binary.chmod(0o755)
    folder = tmp_path / "spark"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{binary.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SPARK_FOLDER", str(folder))
    fake = FakeSpark(folder)
    for job in ("log_reader", "streams", "single_connection", "snapshot"):
        fake.answer(job, JobResult())
    return fake


@pytest.fixture
def closed_pipes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close spark-submit's outputs at the end of the test."""
    # The provider leaves the output of spark-submit open, which pytest would blame on whatever test runs next.
    pipes: list[IO[Any]] = []

    class Process(subprocess.Popen[Any]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            pipes.extend(pipe for pipe in (self.stdout, self.stderr) if pipe is not None)

    monkeypatch.setattr(subprocess, "Popen", Process)
    yield
    for pipe in pipes:
        pipe.close()


@dataclass
class IdleChecks:
    """Results of the jobs' idle checks: None means that there is work to do. No snapshot is waited for by default."""

    results: dict[str, JobResult | None] = field(default_factory=dict)
    asked: list[tuple[JobRequest, dict[str, Any]]] = field(default_factory=list)

    def find(self, request: JobRequest, topology: Topology) -> JobResult | None:
        self.asked.append((request, dict(topology.connections)))
        return self.results.get(request.job, JobResult() if request.job == "snapshot" else None)


@pytest.fixture
def idle_checks(monkeypatch: pytest.MonkeyPatch) -> IdleChecks:
    checks = IdleChecks()
    for package in ("log_reader", "distribution", "snapshot"):
        name = f"tranrepl.{package}.without_spark"
        agent = types.ModuleType(name)
        agent.__dict__["run_without_spark"] = checks.find
        monkeypatch.setitem(sys.modules, name, agent)
    return checks


@dataclass
class FakeTaskInstance:
    """The part of a task instance that an operator uses."""

    first_attempt_state: str = "failed"
    error: dict[str, Any] | None = None
    dag_id: str = "purchasing"
    run_id: str = "run"
    pushed: dict[str, Any] = field(default_factory=dict)

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = json.loads(json.dumps(value))

    def xcom_pull(self, **wanted: str) -> Any:
        assert wanted["key"] == "error"
        return {"distribute": self.error, "log_reader": None}[wanted["task_ids"]]

    def get_task_states(self, **wanted: Any) -> dict[str, dict[str, str]]:
        assert wanted == {"dag_id": self.dag_id, "task_ids": ["distribute"], "run_ids": [self.run_id]}
        return {self.run_id: {"distribute": self.first_attempt_state}}


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch, stored_connections: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the connections of a secrets backend; a test may change them."""

    def get_connection(_: type[BaseHook], connection_id: str) -> TaskConnection:
        if connection_id not in stored_connections:
            raise AirflowNotFoundException(f"The conn_id `{connection_id}` isn't defined")
        fields = stored_connections[connection_id]
        extra = json.dumps(fields["extra"]) if "extra" in fields else None
        return TaskConnection(conn_id=connection_id, **{**fields, "extra": extra})

    monkeypatch.setattr(BaseHook, "get_connection", classmethod(get_connection))
    return stored_connections


@pytest.fixture
def ti() -> FakeTaskInstance:
    return FakeTaskInstance()


@pytest.fixture
def run(
    connections: dict[str, Any], fake_spark: FakeSpark, idle_checks: IdleChecks, ti: FakeTaskInstance
) -> Callable[[Any], Any]:
    """Execute an operator where there is work to do."""
    return lambda operator: operator.execute({"ti": ti})
