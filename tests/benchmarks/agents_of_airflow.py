"""Agents that Airflow's scheduler keeps up: a publication with `schedule: continuous`, each agent a task of its run."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.process_costs import descendants
from support.airflow_api import Api, connected
from support.airflow_components import components, password_of, require_running, wait_until_healthy
from support.airflow_home import AirflowHome, metadata_on
from support.checkout import CHECKOUT
from support.embedded_postgres import PostgresServer
from support.processes import free_port

_SPARK = b"org.apache.spark.deploy.SparkSubmit"
_AGENTS = ("log_reader", "distribution")
_MOST_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class ScheduledAgents:
    """Airflow's components, and the tasks' processes below the scheduler's."""

    components: Mapping[str, subprocess.Popen[bytes]]
    logs: Path

    def require_running(self) -> None:
        require_running(self.components, self.logs)

    def processes(self) -> Mapping[str, set[int]]:
        """Return each agent's JVM, whose children its Python processes are."""
        found: dict[str, set[int]] = {name: set() for name in _AGENTS}
        for process in descendants(self.components["scheduler"].pid):
            command = _command(process)
            name = next((it for it in _AGENTS if f"{it}.py".encode() in command), None)
            # spark-submit's shell has become the JVM.
            if name is not None and _SPARK in command:
                found[name].add(process)
        return found

    def others(self) -> set[int]:
        return {it.pid for it in self.components.values()}


@contextmanager
def scheduled_agents(file: Path, environment: Mapping[str, str], server: PostgresServer) -> Iterator[ScheduledAgents]:
    """Keep the agents of a publication's file up. Airflow's own tables are in a database of the server."""
    airflow, logs, name = *_airflow(file, environment, server), file.stem
    password_of(airflow)
    with components(airflow, logs, ("api-server", "scheduler", "dag-processor")) as processes:
        wait_until_healthy(airflow, processes, logs)
        agents = ScheduledAgents(processes, logs)
        with connected(airflow) as api:
            _wait(lambda: all(agents.processes().values()), agents)
            try:
                yield agents
            finally:
                _end(api, name, agents)
    server.drop_database("airflow")


def _airflow(file: Path, environment: Mapping[str, str], server: PostgresServer) -> tuple[AirflowHome, Path]:
    folder = file.parent
    dags, logs = folder / "dags", folder / "logs"
    logs.mkdir()
    shutil.copytree(CHECKOUT / "dags", dags, ignore=shutil.ignore_patterns("__pycache__", "publications"))
    (dags / "publications").mkdir()
    text = yaml.safe_dump({**yaml.safe_load(file.read_text(encoding="utf-8")), "schedule": "continuous"})
    (dags / "publications" / file.name).write_text(text, encoding="utf-8")
    server.create_database("airflow")
    settings = {
        **metadata_on(server.connection("airflow")),
        # The files stay as they are.
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
    }
    airflow = AirflowHome(folder / "airflow", dags, CHECKOUT / "plugins", environment, free_port(), settings)
    airflow.home.mkdir()
    airflow.run("db", "migrate", log=logs / "migrate.log")
    return airflow, logs


def _end(api: Api, name: str, agents: ScheduledAgents) -> None:
    """End the run, and let none follow."""
    api.pause(name)
    for run in api.all_runs(name):
        if run["state"] in ("running", "queued"):
            api.fail(name, run["dag_run_id"])
    _wait(lambda: not any(agents.processes().values()), agents)


def _wait(condition: Callable[[], bool], agents: ScheduledAgents) -> None:
    deadline = time.monotonic() + _MOST_SECONDS
    while not condition():
        agents.require_running()
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {_MOST_SECONDS:.0f} s; see {agents.logs}")
        time.sleep(0.5)


def _command(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""
