"""`make airflow`: Airflow's UI on localhost, with the demo's DAGs and something to replicate, until Ctrl-C."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from types import FrameType

from rich.panel import Panel

from demo.demo_site import MONITOR, DemoSite, opened_site
from demo.publisher_work import purchase, run_tpcb, work_on
from support.airflow_components import USER, components, password_of, require_running, url, wait_until_healthy
from support.airflow_home import AirflowHome, CommandError
from support.checkout import CHECKOUT
from support.embedded_postgres import PostgresServer, ServerError
from support.processes import SetprivMissingError
from support.progress import console, step

_PORTS = range(8080, 8100)
_AT_WORK = "pgbench"
"""The publication whose tables change while somebody looks."""
_WORK_SECONDS = 10
_KNOWN_SECONDS = 120
"""So long Airflow may take to know its DAGs."""


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
            with step(f"Airflow: DAG {_AT_WORK} runs by its schedule from now on"):
                _unpause(airflow, site, server)
            console.print(Panel(_welcome(airflow, password, site), title="Airflow", expand=False))
            _wait_for_interrupt(processes, site, server)


def _unpause(airflow: AirflowHome, site: DemoSite, server: PostgresServer) -> None:
    """Unpause the DAG of the load as soon as Airflow knows it: of one that it does not know, the command says nothing.

    Raises ServerError where Airflow does not know it in time.
    """
    deadline = time.monotonic() + _KNOWN_SECONDS
    while not site.is_known_dag(server, _AT_WORK):
        if time.monotonic() > deadline:
            raise ServerError(f"Airflow does not know DAG {_AT_WORK} after {_KNOWN_SECONDS} s; see {site.logs}")
        time.sleep(1)
    airflow.run("dags", "unpause", _AT_WORK, "--yes", log=site.logs / "airflow-dags-unpause.log")


def _own_connections() -> dict[str, str]:
    """Return the connections in this shell's environment: a user's own publications may name them. The demo's take
    precedence.
    """
    named = {name: value for name, value in os.environ.items() if name.startswith("AIRFLOW_CONN_")}
    return {name: value for name, value in named.items() if name != "AIRFLOW_CONN_SPARK_DEFAULT"}


def _welcome(airflow: AirflowHome, password: str, site: DemoSite) -> str:
    dags = [f"  {url(airflow)}/dags/{publication.publication}" for publication in site.publications]
    shell, file = (path.relative_to(CHECKOUT) for path in (site.shell, site.files[0]))
    return "\n".join(
        [
            f"{url(airflow)}",
            f"user      {USER}",
            f"password  {password}",
            "",
            "Trigger a DAG there; each has something to replicate:",
            *dags,
            "",
            "Replication Monitor, whose charts begin to have something after some minutes:",
            f"  {url(airflow)}/{MONITOR}",
            f"The Publisher's bank works on, and DAG {_AT_WORK} delivers what it does every two minutes.",
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


def _wait_for_interrupt(
    processes: Mapping[str, subprocess.Popen[bytes]], site: DemoSite, server: PostgresServer
) -> None:
    next_work = time.monotonic()
    while True:
        require_running(processes, site.logs)
        for name in site.show_new_files():
            console.print(f"dags/publications/{name} is new: Airflow will show it within a minute")
        if time.monotonic() >= next_work:
            work_on(server)
            next_work = time.monotonic() + _WORK_SECONDS
        time.sleep(1)


def _free_port() -> int:
    for port in _PORTS:
        with suppress(OSError), socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise ServerError(f"no free port from {_PORTS.start} to {_PORTS.stop - 1}")


def _interrupt(signal_number: int, frame: FrameType | None) -> None:
    """End as at Ctrl-C when the terminal is closed or SIGTERM arrives."""
    # A second signal must not stop what the first one set off.
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
