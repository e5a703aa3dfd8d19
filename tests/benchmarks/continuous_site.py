"""Continuous agents beside built-in replication: both replicate the same commits at once, to one server.

Agents are kept up as users do it: by a shell, or by Airflow's scheduler.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import yaml

from benchmarks.agents_of_airflow import scheduled_agents
from benchmarks.benchmark_site import BenchmarkSite, Servers, opened
from benchmarks.process_costs import descendants
from benchmarks.workloads import Scenario, Size, scenarios
from support.databases import connection_environment
from support.embedded_postgres import PostgresServer, ServerSettings, embedded_bindir
from support.progress import step
from support.shell import COMMAND
from support.site import Site, execute
from tranrepl.connections import Connection
from tranrepl.settings.publication import Apply

BUILT_IN = "built-in"
_SERVER_OPTIONS = {"shared_buffers": "256MB", "max_wal_size": "4GB", "track_commit_timestamp": "on"}
_FOR_ASYNCHRONOUS_COMMITS = {"wal_writer_delay": "10ms"}
"""They are sent when the log's writer has written them, which is in the way of commits that wait for the disk."""
_MOST_SECONDS = 300.0
_SETTLING_SECONDS = 5.0


class Way(StrEnum):
    """Who keeps the agents up."""

    SHELL = "shell"
    """`tranrepl run FILE --continuous`."""
    SCHEDULER = "scheduler"
    """Airflow's, with `schedule: continuous`."""


class Agents(Protocol):
    """What keeps agents up."""

    def require_running(self) -> None:
        """Raise RuntimeError where it has ended."""
        ...

    def processes(self) -> Mapping[str, set[int]]:
        """Return the agents' first processes by name."""
        ...

    def others(self) -> set[int]:
        """Return the first processes of what keeps them up, and is no agent."""
        ...


@dataclass(frozen=True, slots=True)
class ContinuousSite:
    """Both of them at work."""

    ends: BenchmarkSite
    agents: Agents
    store: Path
    file: Path
    """The publication's."""
    environment: Mapping[str, str]
    """Its connections."""

    @property
    def publisher(self) -> Connection:
        return self.ends.publisher

    @property
    def subscriber(self) -> Connection:
        return self.ends.subscribers(Apply.AUTO)[0]

    @property
    def reference(self) -> Connection:
        return self.ends.references[0]

    @property
    def distribution(self) -> Connection:
        return self.ends.site.databases.distribution

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait. Raises RuntimeError where the agents have ended, TimeoutError."""
        deadline = time.monotonic() + _MOST_SECONDS
        while not condition():
            self.agents.require_running()
            if time.monotonic() > deadline:
                raise TimeoutError(f"changes did not arrive within {_MOST_SECONDS:.0f} s")
            time.sleep(0.2)

    def check_equal(self) -> None:
        """Check that both have the Publisher's rows, and let built-in replication have its column no more."""
        execute(self.reference, "ALTER TABLE pgbench_history DROP arrived")
        self.ends.check_equal()


@contextmanager
def continuous_site(folder: Path, way: Way, *, asynchronous: bool = False) -> Iterator[ContinuousSite]:
    """Start everything. `arrived` of built-in replication's `pgbench_history` is when a row was inserted there."""
    folder.mkdir(exist_ok=True)
    with ExitStack() as stack:
        publishers = {**_SERVER_OPTIONS, **(_FOR_ASYNCHRONOUS_COMMITS if asynchronous else {})}
        publisher, others = (
            stack.enter_context(PostgresServer(ServerSettings(folder / name, options=options)))
            for name, options in (("publisher", publishers), ("others", _SERVER_OPTIONS))
        )
        with step("databases, publication and subscriptions"):
            servers, store = Servers(publisher, others), folder / "store"
            ends = stack.enter_context(opened(servers, _tpc_b(), (Apply.AUTO,), store))
        execute(ends.references[0], "ALTER TABLE pgbench_history ADD arrived timestamptz DEFAULT clock_timestamp()")
        stack.enter_context(ends.built_in.running())
        with step(f"starting the agents, {way}"):
            file, environment = _written(ends.site, folder), connection_environment(ends.site.connections.values())
            agents = stack.enter_context(_agents(way, file, environment, others))
            site = ContinuousSite(ends, agents, store, file, environment)
            marker = ends.end_backlog()
            for end in (site.subscriber, site.reference):
                site.wait(lambda end=end: execute(end, f"SELECT 1 FROM marker WHERE id = {marker}") != [])  # type: ignore[misc]
            time.sleep(_SETTLING_SECONDS)
        yield site


def _tpc_b() -> Scenario:
    found = scenarios(Size(1_000, 1_000, 10), embedded_bindir())
    (scenario,) = (it for it in found if it.workloads[0].name == "TPC-B")
    return scenario


def _written(site: Site, folder: Path) -> Path:
    """Write the publication's file, which says nothing of a schedule."""
    file = folder / f"{site.publication.publication}.yaml"
    document = site.publication.model_dump(mode="json", exclude_unset=True)
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return file


def _agents(
    way: Way, file: Path, environment: Mapping[str, str], others: PostgresServer
) -> AbstractContextManager[Agents]:
    if way is Way.SCHEDULER:
        return scheduled_agents(file, environment, others)
    return _agents_of_shell(file, environment)


@dataclass(frozen=True, slots=True)
class _Shell:
    process: subprocess.Popen[bytes]

    def require_running(self) -> None:
        if self.process.poll() is not None:
            raise RuntimeError(f"the agents ended with status {self.process.returncode}")

    def processes(self) -> Mapping[str, set[int]]:
        return {"log reader and delivery": {self.process.pid} | descendants(self.process.pid)}

    def others(self) -> set[int]:
        return set()


@contextmanager
def _agents_of_shell(file: Path, environment: Mapping[str, str]) -> Iterator[_Shell]:
    log = file.with_name("agents.log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(COMMAND), "run", str(file), "--continuous", "--master", "local[2]"],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            yield _Shell(process)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_MOST_SECONDS)
            finally:
                process.kill()
    if process.returncode != 0:
        said = log.read_text(encoding="utf-8", errors="replace")
        raise RuntimeError(f"the agents ended with status {process.returncode}:\n{said[-2000:]}")
