"""What tests share: one PostgreSQL cluster and one Spark session a run, fresh databases a test.

Nothing is started before a test needs it.
"""

from __future__ import annotations

import gc
import itertools
import os
import re
import shutil
import sys
import tempfile
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

from support.checkout import CHECKOUT
from support.databases import Databases, empty_template, migrated_template
from support.embedded_postgres import DEBIAN_BINDIR, PostgresServer, ServerSettings
from support.kept_sessions import end_kept_sessions
from support.quiet_spark import quiet_start
from support.server_copies import copy_files
from tranrepl.connections import Connection
from tranrepl.spark.entry_point import SESSION_SETTINGS
from tranrepl.spark.output import silence_py4j, submission_variables
from tranrepl.spark.spark_submit import LOCAL_MASTER_SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AIRFLOW = "airflow"
_BROWSER = "browser"
_SPARK = "spark"

_SPARK_ASKED_FOR = re.compile(r"\bspark: (Any|object)\b|\bmark\.spark\b")

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
_PREFIX = "tranrepl-tests-"
_ENOUGH_BYTES = 8 * 1024**3
"""Three runs side by side need about a third of it, at their most."""

_KEPT_NAMES = 4
"""So many names of a kind are in turn used again: what this process has learnt of a database by its name is of use for
the next one, and what is left behind of a test does not meet the one right after it."""

_SMALL = {"shared_buffers": "16MB", "jit": "off", "full_page_writes": "off", "autovacuum": "off"}
"""Each database that is made or dropped has the server look at all its buffers, and writes a checkpoint, after which
each page goes into the log whole. Compiling a query of the catalogue takes as long as hundreds of them, and nothing
that lives as long as a test needs a vacuum."""


class _Names:
    """Names of databases, unique on any server."""

    def __init__(self) -> None:
        self._free: dict[str, deque[str]] = defaultdict(deque)
        self._numbers = itertools.count(1)

    def take(self, start: str) -> str:
        free = self._free[start]
        return free.popleft() if len(free) >= _KEPT_NAMES else f"{start}_{next(self._numbers)}"

    def give_back(self, name: str) -> None:
        self._free[name.rpartition("_")[0]].append(name)


_NAMES = _Names()


class DatabaseFactory(Protocol):
    """Create a database that lives as long as the test; `connection_id` is also the start of its name. `template`
    returns the database of the server that it is a copy of."""

    def __call__(
        self,
        connection_id: str,
        server: PostgresServer | None = None,
        template: Callable[[PostgresServer], str] | None = None,
    ) -> Connection: ...


class DatabasesFactory(Protocol):
    """Create a Publisher, a Subscriber and a distribution database, on the embedded server unless another is given.

    `migrated`: the distribution database has its schema already, so that `set_up` need not make it for every test.
    """

    def __call__(
        self,
        *,
        publisher: PostgresServer | None = None,
        subscriber: PostgresServer | None = None,
        distribution: PostgresServer | None = None,
        migrated: bool = True,
    ) -> Databases: ...


def pytest_configure() -> None:
    """Give examples no deadline. Let every Spark, also of jobs that tests submit, listen on loopback, run our Python
    and start fast.
    """
    # Several processes share two cores: how long an example takes says nothing.
    hypothesis.settings.register_profile("tranrepl", deadline=None)
    hypothesis.settings.load_profile("tranrepl")
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.update(submission_variables())
    # A server plans each query in memory that it would get from the system, page by page, and give back each time.
    os.environ["MALLOC_TOP_PAD_"] = str(1024**2)
    silence_py4j()


_CASES: Counter[tuple[pytest.Collector | None, str]] = Counter()
"""How many cases of a test were collected."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the cases of a test `slow` that come after as many as `slow_after` says."""
    marker = item.get_closest_marker("slow_after")
    if marker is None or item.get_closest_marker("slow") is not None:
        return
    test = (item.parent, item.name.partition("[")[0])
    _CASES[test] += 1
    if _CASES[test] > marker.args[0]:
        item.add_marker("slow")


_TAKE_LONG = ("slow", "scheduler", "submit")
"""Markers of tests that a run begins with, so that it does not end with waiting for one of them."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Put files with slow tests first, then those with the most tests, in a run of several processes; a file's tests
    stay in the order drawn.
    """
    yield
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    begun = {_group(item.nodeid) for item in items if any(item.get_closest_marker(name) for name in _TAKE_LONG)}
    sizes = Counter(_group(item.nodeid) for item in items)
    items.sort(key=lambda item: (_group(item.nodeid) not in begun, -sizes[_group(item.nodeid)], _group(item.nodeid)))


class _FileScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """`--dist loadgroup` with the groups of `_group`.

    The marker `xdist_group` is of no use: xdist 3.8 hands it over in a test's id, which pytest 9.2 keeps as it was, and
    then every test goes to whichever process is free.
    """

    def _split_scope(self, nodeid: str) -> str:
        return _group(nodeid)


def _group(nodeid: str) -> str:
    """Return what a test stays together with: its file, or what else shares Airflow's metadata database, the
    API server that a browser looks at, or the one Spark session; Airflow's scheduler has its own."""
    file = nodeid.partition("::")[0]
    if file.startswith("tests/airflow/"):
        return file if file.endswith("/test_scheduler.py") else _AIRFLOW
    if file.startswith("tests/browser/"):
        return _BROWSER
    return _SPARK if _asks_for_spark(file) else file


@cache
def _asks_for_spark(file: str) -> bool:
    return _SPARK_ASKED_FOR.search((CHECKOUT / file).read_text(encoding="utf-8")) is not None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _FileScheduling:
    return _FileScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests without garbage collection, which would look at all that is imported again and again: a quarter of
    the time, in each process."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Freeze what is imported by now: garbage collection need not look at it again and again, nor so often for the few
    cycles that tests make."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)


@contextmanager
def _memory_folder() -> Iterator[Path]:
    """Yield a folder in shared memory, or where temporary files go if the machine has too little.

    On ext4 each new file costs a search through those removed in the last minute, and tests make and drop some thousand
    databases of 300 files each: a third of a run's time went there.
    """
    _remove_left_behind()
    parent = _SHARED_MEMORY if _has_room() else None
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _has_room() -> bool:
    if not os.access(_SHARED_MEMORY, os.W_OK):
        return False
    there = os.statvfs(_SHARED_MEMORY)
    return min(there.f_bavail * there.f_frsize, _available_memory()) >= _ENOUGH_BYTES


def _available_memory() -> int:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _remove_left_behind() -> None:
    """Remove what runs that were killed have left: memory that nobody else frees."""
    for folder in _SHARED_MEMORY.glob(f"{_PREFIX}*-*"):
        owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path(f"/proc/{owner}").exists():
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def server_folder() -> Iterator[Path]:
    """Yield the folder in which each of the run's servers has its home."""
    with _memory_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def postgres(server_folder: Path) -> Iterator[PostgresServer]:
    """Yield the run's embedded PostgreSQL 18."""
    with PostgresServer(ServerSettings(server_folder / "postgres", fsync=False, options=_SMALL)) as server:
        server.make_logins_cheap()
        server.keep_session()
        yield server


@pytest.fixture(scope="session")
def debian_postgres(server_folder: Path) -> Iterator[PostgresServer]:
    """Yield the run's PostgreSQL 15, from Debian's package."""
    if not (DEBIAN_BINDIR / "postgres").exists():
        pytest.skip(f"Debian's postgresql-15 is not installed: {DEBIAN_BINDIR} is missing")
    home = server_folder / "debian_postgres"
    with PostgresServer(ServerSettings(home, bindir=DEBIAN_BINDIR, fsync=False, options=_SMALL)) as server:
        server.make_logins_cheap()
        server.keep_session()
        yield server


@pytest.fixture(scope="session")
def new_cluster(server_folder: Path) -> ServerSettings:
    """Return a cluster that never ran but to make its logins cheap, to be copied: `initdb` costs more than a server's
    whole life in most tests."""
    settings = ServerSettings(server_folder / "new_cluster", fsync=False)
    with PostgresServer(settings) as server:
        server.make_logins_cheap()
    return settings


@pytest.fixture
def own_server(new_cluster: ServerSettings, server_folder: Path, tmp_path: Path) -> Iterator[PostgresServer]:
    """Yield a PostgreSQL 18 for this test alone, to be restored, promoted or restarted, with a database `publisher`."""
    settings = replace(new_cluster, home=server_folder / tmp_path.name)
    copy_files(new_cluster.home, settings.home)
    with PostgresServer(settings) as server:
        server.create_database("publisher")
        yield server
    shutil.rmtree(settings.home)


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[DatabaseFactory]:
    """Yield a factory of fresh databases, dropped after the test with their replication slots."""
    created: list[tuple[PostgresServer, str]] = []

    def create(
        connection_id: str,
        server: PostgresServer | None = None,
        template: Callable[[PostgresServer], str] | None = None,
    ) -> Connection:
        home = server or postgres
        name = _NAMES.take(connection_id)
        if template is None and home is postgres:
            template = empty_template
        # A server of one test's own may be restored to when it had none of ours.
        home.create_database(name, "template0" if template is None else template(home))
        created.append((home, name))
        return home.connection(name, connection_id)

    yield create
    end_kept_sessions()
    for home, name in reversed(created):
        home.drop_database(name)
        _NAMES.give_back(name)


@pytest.fixture
def databases(database: DatabaseFactory) -> DatabasesFactory:
    """Return a factory of the three databases of a publication, each on a server of the test's choice."""

    def create(
        *,
        publisher: PostgresServer | None = None,
        subscriber: PostgresServer | None = None,
        distribution: PostgresServer | None = None,
        migrated: bool = True,
    ) -> Databases:
        return Databases(
            database("publisher", publisher),
            database("subscriber", subscriber),
            database("distribution", distribution, migrated_template if migrated else None),
        )

    return create


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield the run's Spark session, with the jobs' own settings, on two cores and loopback."""
    from pyspark.sql import SparkSession

    settings = {
        **SESSION_SETTINGS,
        **LOCAL_MASTER_SETTINGS,
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    builder = SparkSession.builder.master("local[2]").appName("tranrepl tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with quiet_start():
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
