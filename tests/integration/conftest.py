"""What every integration test has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.azure_server import AzureServer
from support.databases import Databases
from support.embedded_postgres import PostgresServer
from support.google_server import GoogleServer
from support.kept_sessions import NEW_SESSIONS, kept_sessions
from support.mariadb import MariaDbServer
from support.object_server import Bucket, ObjectServer
from support.processes import NO_AIRFLOW
from support.publishers import publishing_mariadb
from support.spark_here import SparkHere
from support.thread_streams import streams_as_threads


@pytest.fixture(autouse=True, scope="module")
def no_airflow() -> Iterator[None]:
    """Keep setup from the pools of whatever Airflow this user has, the demo's included."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_HOME", NO_AIRFLOW)
        yield


@pytest.fixture(scope="session")
def object_server(server_folder: Path) -> Iterator[ObjectServer]:
    """Yield the run's S3 server."""
    with ObjectServer(server_folder / "objects") as server:
        yield server


@pytest.fixture(scope="session")
def azure_server(server_folder: Path) -> Iterator[AzureServer]:
    """Yield the run's server of Azure's."""
    AzureServer.require()
    with AzureServer(server_folder / "blobs") as server:
        yield server


@pytest.fixture(scope="session")
def google_server(server_folder: Path) -> Iterator[GoogleServer]:
    """Yield the run's server of Google's protocol."""
    with GoogleServer(server_folder / "google") as server:
        yield server


@pytest.fixture
def bucket(object_server: ObjectServer) -> Bucket:
    return object_server.new_bucket()


@pytest.fixture(params=["mounted path", pytest.param("bucket", marks=pytest.mark.slow)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path | Bucket:
    """Return a new store of each kind."""
    made: Path | Bucket = tmp_path / "store" if request.param == "mounted path" else request.getfixturevalue("bucket")
    return made


@pytest.fixture
def from_15_to_18(databases: DatabasesFactory, debian_postgres: PostgresServer, postgres: PostgresServer) -> Databases:
    return databases(publisher=debian_postgres, subscriber=postgres)


@pytest.fixture
def from_18_to_15(databases: DatabasesFactory, debian_postgres: PostgresServer, postgres: PostgresServer) -> Databases:
    return databases(publisher=postgres, subscriber=debian_postgres, distribution=debian_postgres)


@pytest.fixture
def here() -> Iterator[SparkHere]:
    """Yield what runs a job's tasks in this process, and streams as its threads: nothing of such a test is Spark's."""
    with streams_as_threads():
        yield SparkHere()


@pytest.fixture(autouse=True)
def sessions(request: pytest.FixtureRequest) -> Iterator[None]:
    """Use a test's sessions again in it, unless it is about sessions."""
    if NEW_SESSIONS or request.node.get_closest_marker("new_sessions") is not None:
        yield
        return
    with kept_sessions():
        yield


@pytest.fixture(scope="session")
def publishing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], MariaDbServer]]:
    """Return servers that can publish, by name, each started when it is first asked for."""
    with ExitStack() as stack:
        yield cache(lambda name: stack.enter_context(publishing_mariadb(tmp_path_factory.mktemp("publishing"), name)))
