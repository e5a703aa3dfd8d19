"""`make airflow`: Airflow's UI on localhost, with the demo's DAGs and something to replicate, until Ctrl-C.

The components of `airflow standalone`, without its log servers, which listen on every interface.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import httpx
from rich.panel import Panel

from sandbox.airflow_home import BIN, AirflowHome, CommandError
from sandbox.demo_site import CHECKOUT, DemoSite, opened_site
from sandbox.embedded_postgres import ServerError
from sandbox.owned_process import SetprivMissingError, dying_with_owner
from sandbox.progress import console, step
from sandbox.publisher_work import purchase, run_tpcb

USER = "admin"
_PORTS = range(8080, 8100)
_READY_SECONDS = 180
_STOP_SECONDS = 30
# The first is needed by the others, also as they end.
_COMPONENTS: Mapping[str, tuple[str, ...]] = {
    "api-server": ("--workers", "1"),
    "scheduler": ("--skip-serve-logs",),
    "dag-processor": (),
    "triggerer": ("--skip-serve-logs",),
}


def main() -> int:
    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_number, _interrupt)
    try:
        _serve(DemoSite())
    except KeyboardInterrupt:
        return 0
    except (ServerError, CommandError, SetprivMissingError, subprocess.CalledProcessError) as error:
        console.print(f"✗ {error}", style="red", markup=False, soft_wrap=True)
        return 1
    return 0


def _serve(site: DemoSite) -> None:
    with opened_site(site) as (server, _):
        purchase(server, 100, seed=time.time_ns())
        run_tpcb(server, 400, seed=time.time_ns() % 2**31)
        site.show_new_files()
        airflow = site.airflow(server, _free_port(), _own_connections())
        password = password_of(airflow)
        with components(airflow, site.logs) as processes:
            with step("Airflow: scheduler, DAG processor, API server and triggerer"):
                wait_until_healthy(airflow, processes, site.logs)
            console.print(Panel(_welcome(airflow, password, site), title="Airflow", expand=False))
            _wait_for_interrupt(processes, site)


def _own_connections() -> dict[str, str]:
    """What the shell has that started us: publications of one's own may name them. The demo's win."""
    named = {name: value for name, value in os.environ.items() if name.startswith("AIRFLOW_CONN_")}
    return {name: value for name, value in named.items() if name != "AIRFLOW_CONN_SPARK_DEFAULT"}


def _welcome(airflow: AirflowHome, password: str, site: DemoSite) -> str:
    dags = [f"  {_url(airflow)}/dags/{publication.publication}" for publication in site.publications]
    shell, file = (path.relative_to(CHECKOUT) for path in (site.shell, site.files[0]))
    return "\n".join(
        [
            f"{_url(airflow)}",
            f"user      {USER}",
            f"password  {password}",
            "",
            "Trigger a DAG there; each has something to replicate:",
            *dags,
            "",
            "A new file in dags/publications is a DAG here within a minute.",
            "",
            "Or look from another shell:",
            f"  . {shell}",
            f"  tranrepl status {file}",
            f"  airflow dags list-runs {site.publications[0].publication}",
            "",
            f"Logs are in {site.logs.relative_to(CHECKOUT)}. Ctrl-C stops everything.",
        ]
    )


def password_of(airflow: AirflowHome) -> str:
    """The password of SimpleAuthManager's file, where it would write one of its own."""
    file = airflow.home / "simple_auth_manager_passwords.json.generated"
    if not file.exists():
        file.touch(mode=0o600)
        file.write_text(json.dumps({USER: secrets.token_urlsafe(12)}), encoding="utf-8")
    return str(json.loads(file.read_text(encoding="utf-8"))[USER])


@contextmanager
def components(airflow: AirflowHome, logs: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Airflow's processes, as long as the context."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for name, arguments in _COMPONENTS.items():
            processes.append(_start(airflow, name, arguments, logs))
        yield processes
    finally:
        with step("Airflow: stopping, after the task that runs"):
            _stop(*processes[1:])
            _stop(*processes[:1])


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


def wait_until_healthy(airflow: AirflowHome, processes: list[subprocess.Popen[bytes]], logs: Path) -> None:
    """Raises ServerError where a process ended, or not all are healthy in time."""
    deadline = time.monotonic() + _READY_SECONDS
    while not _is_healthy(airflow):
        _require_running(processes, logs)
        if time.monotonic() > deadline:
            raise ServerError(f"Airflow is not ready after {_READY_SECONDS} s; see {logs}")
        time.sleep(1)


def _is_healthy(airflow: AirflowHome) -> bool:
    with suppress(httpx.HTTPError):
        health = httpx.get(f"{_url(airflow)}/api/v2/monitor/health", timeout=5).raise_for_status().json()
        return all(health[name]["status"] == "healthy" for name in ("scheduler", "dag_processor", "triggerer"))
    return False


def _wait_for_interrupt(processes: list[subprocess.Popen[bytes]], site: DemoSite) -> None:
    while True:
        _require_running(processes, site.logs)
        for name in site.show_new_files():
            console.print(f"dags/publications/{name} is new: Airflow will show it within a minute")
        time.sleep(1)


def _require_running(processes: list[subprocess.Popen[bytes]], logs: Path) -> None:
    for name, process in zip(_COMPONENTS, processes, strict=True):
        if process.poll() is not None:
            raise ServerError(f"Airflow's {name} ended with status {process.returncode}; see {logs}/airflow-{name}.log")


def _free_port() -> int:
    for port in _PORTS:
        with suppress(OSError), socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise ServerError(f"no free port from {_PORTS.start} to {_PORTS.stop - 1}")


def _url(airflow: AirflowHome) -> str:
    return f"http://127.0.0.1:{airflow.port}"


def _interrupt(signal_number: int, frame: FrameType | None) -> None:
    """Ctrl-C, a closed terminal and SIGTERM all end us in the same way."""
    # A second signal must not stop what the first one set off.
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
