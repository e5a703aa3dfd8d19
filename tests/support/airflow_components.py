"""Airflow's components as processes: those of `airflow standalone`, without its log servers, which listen on every
interface."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from support.airflow_home import BIN, AirflowHome
from support.embedded_postgres import ServerError
from support.processes import dying_with_owner
from support.progress import step

USER = "admin"
_READY_SECONDS = 600
_STOP_SECONDS = 30
# The first is needed by the others, also as they end.
_COMPONENTS: Mapping[str, tuple[str, ...]] = {
    "api-server": ("--workers", "1"),
    "scheduler": ("--skip-serve-logs",),
    "dag-processor": (),
    "triggerer": ("--skip-serve-logs",),
}


def password_of(airflow: AirflowHome) -> str:
    """Write SimpleAuthManager's file where it would write one itself, and return the password in it."""
    file = airflow.home / "simple_auth_manager_passwords.json.generated"
    if not file.exists():
        file.touch(mode=0o600)
        file.write_text(json.dumps({USER: secrets.token_urlsafe(12)}), encoding="utf-8")
    return str(json.loads(file.read_text(encoding="utf-8"))[USER])


@contextmanager
def components(
    airflow: AirflowHome, logs: Path, names: Collection[str] = tuple(_COMPONENTS)
) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Yield Airflow's processes by name, as long as the context."""
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name in names:
            processes[name] = _start(airflow, name, _COMPONENTS[name], logs)
        yield processes
    finally:
        with step("Airflow: stopping, after the task that runs"):
            first, *others = processes.values()
            _stop(*others)
            _stop(first)


def _start(airflow: AirflowHome, name: str, arguments: tuple[str, ...], logs: Path) -> subprocess.Popen[bytes]:
    with (logs / f"airflow-{name}.log").open("wb") as log:
        return subprocess.Popen(
            dying_with_owner([str(BIN / "airflow"), name, *arguments], signal.SIGTERM),
            env=airflow.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _stop(*processes: subprocess.Popen[bytes]) -> None:
    """End components, at last by force, and what is left of the process groups that we made for them."""
    for process in processes:
        process.terminate()
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_until_healthy(airflow: AirflowHome, processes: Mapping[str, subprocess.Popen[bytes]], logs: Path) -> None:
    """Wait; raise ServerError where a process ended, or not all are healthy in time."""
    deadline = time.monotonic() + _READY_SECONDS
    while not _is_healthy(airflow, processes):
        require_running(processes, logs)
        if time.monotonic() > deadline:
            raise ServerError(f"Airflow is not ready after {_READY_SECONDS} s; see {logs}")
        time.sleep(1)


def _is_healthy(airflow: AirflowHome, started: Collection[str]) -> bool:
    with suppress(httpx.HTTPError):
        health = httpx.get(f"{url(airflow)}/api/v2/monitor/health", timeout=5).raise_for_status().json()
        names = [name.replace("-", "_") for name in started if name != "api-server"]
        return all(health[name]["status"] == "healthy" for name in names)
    return False


def require_running(processes: Mapping[str, subprocess.Popen[bytes]], logs: Path) -> None:
    """Raise ServerError where a component has ended."""
    for name, process in processes.items():
        if process.poll() is not None:
            raise ServerError(f"Airflow's {name} ended with status {process.returncode}; see {logs}/airflow-{name}.log")


def url(airflow: AirflowHome) -> str:
    return f"http://127.0.0.1:{airflow.port}"
