"""`python -m benchmarks.many_publications`: what a DAG file of hundreds of publications costs Airflow's DAG processor.

Each publication has 20 articles, three subscriptions and five DAGs. A process that has imported the package parses the
file in forked processes, as the DAG processor does, of which the one counts that took the least CPU; then it serializes
what it finds.

With `--scheduler`, Airflow's scheduler and DAG processor have the publications in six DAG files, none of them paused,
and every hour's run has been: nothing is due meanwhile.
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.console import Console

from benchmarks.process_costs import ProcessCosts
from support.airflow_components import components, require_running
from support.airflow_home import AirflowHome, metadata_on
from support.checkout import CHECKOUT
from support.embedded_postgres import PostgresServer, ServerSettings
from support.processes import free_port

_ARTICLES = [f"public.item_{number}" for number in range(20)]
_MEASURED = """
import gc, os, sys, time
from pathlib import Path
from airflow.serialization.serialized_objects import DagSerialization
from tranrepl_airflow.dags import build_dags
gc.freeze()
least = None
for _ in range(5):
    ours, theirs = os.pipe()
    if os.fork() == 0:
        begun = time.process_time(), time.perf_counter()
        build_dags(Path(sys.argv[1]))
        os.write(theirs, f"{time.process_time() - begun[0]} {time.perf_counter() - begun[1]}".encode())
        os._exit(0)
    os.wait()
    took = [float(it) for it in os.read(ours, 100).split()]
    least = min(least or took, took)
dags = build_dags(Path(sys.argv[1]))
built = time.process_time()
for dag in dags:
    DagSerialization.to_dict(dag)
print(len(dags), *least, time.process_time() - built)
"""

_DAG_FILES = 6
_LONGEST_START = 900.0
_WARM_SECONDS = 90.0
_COMPONENTS = ("scheduler", "dag-processor")
_FILE = """
from airflow.sdk import DAG
from tranrepl_airflow.dags import build_dags
build_dags({folder!r}, names="shop_??[{last}]")
"""
_RUNS = """
import sys
from datetime import datetime, timedelta
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from airflow.utils.types import DagRunType
end = datetime.fromisoformat(sys.argv[1])
start = end - timedelta(hours=1)
with create_session() as session:
    dags = session.query(DagModel).all()
    if len(dags) < int(sys.argv[2]):
        sys.exit(7)
    for dag in dags:
        if dag.timetable_summary == sys.argv[3]:
            session.add(DagRun(dag.dag_id, f"scheduled__{end.isoformat()}", logical_date=start, run_after=end,
                start_date=end, state="success", run_type=DagRunType.SCHEDULED, data_interval=(start, end)))
            dag.next_dagrun, dag.next_dagrun_create_after = end, end + timedelta(hours=1)
            dag.next_dagrun_data_interval = (end, end + timedelta(hours=1))
    for dag in dags:
        dag.is_paused = False
"""
"""Makes the last hour's run of each DAG that has the schedule."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_publications", description=__doc__)
    parser.add_argument("--publications", type=int, default=300)
    parser.add_argument("--scheduler", type=float, metavar="SECONDS", help="measure Airflow's components for so long")
    options = parser.parse_args()
    if options.scheduler:
        with tempfile.TemporaryDirectory(prefix="tranrepl-bench-") as folder:
            _measure_components(Path(folder), options.publications, options.scheduler)
        return
    with tempfile.TemporaryDirectory(prefix="tranrepl-bench-") as folder:
        dags, cpu, wall, serialized = _measure(Path(folder), options.publications)
    Console().print(
        f"{options.publications} publications, {dags:.0f} DAGs: parsed in {wall:.1f} s, {1000 * cpu / dags:.1f} ms of "
        f"CPU a DAG, {1000 * cpu / options.publications:.1f} a publication; serialized in {serialized:.1f} s of CPU"
    )


def _measure_components(folder: Path, publications: int, seconds: float) -> None:
    # The next run is due when all has been measured.
    end = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=5)
    schedule = f"{end.minute} * * * *"
    files, dags, logs = (folder / it for it in ("publications", "dags", "logs"))
    for it in (files, dags, logs):
        it.mkdir()
    _write_files(files, publications, schedule)
    for number in range(_DAG_FILES):
        last = "".join(str(it) for it in range(10) if it % _DAG_FILES == number)
        (dags / f"shops_{number}.py").write_text(_FILE.format(folder=str(files), last=last), encoding="utf-8")
    with PostgresServer(ServerSettings(folder / "postgresql")) as server:
        server.create_database("airflow")
        settings = {
            **metadata_on(server.connection("airflow")),
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
        }
        airflow = AirflowHome(folder / "airflow", dags, CHECKOUT / "plugins", {}, free_port(), settings)
        airflow.home.mkdir()
        airflow.run("db", "migrate", log=logs / "migrate.log")
        with components(airflow, logs, _COMPONENTS) as processes:
            given = [sys.executable, "-c", _RUNS, end.isoformat(), str(5 * publications), schedule]
            deadline = time.monotonic() + _LONGEST_START
            while subprocess.run(given, env=airflow.environment, check=False, capture_output=True).returncode != 0:
                require_running(processes, logs)
                if time.monotonic() > deadline:
                    raise TimeoutError(f"not all DAGs are there after {_LONGEST_START:.0f} s")
                time.sleep(5)
            time.sleep(_WARM_SECONDS)
            costs = {name: ProcessCosts([it.pid]) for name, it in processes.items()}
            begun = time.monotonic()
            time.sleep(seconds)
            took = time.monotonic() - begun
            for name, cost in costs.items():
                Console().print(
                    f"{name}: {100 * cost.cpu_seconds() / took:.1f} % of a core, {cost.memory_mb():.0f} MB; "
                    f"load {os.getloadavg()[1]:.1f}"
                )
        with server.connect("airflow") as session:
            runs = session.execute("SELECT state, count(*) FROM dag_run GROUP BY 1").fetchall()
        Console().print(f"runs, of which those that were made meanwhile are no success: {runs}")


def _measure(folder: Path, publications: int) -> tuple[float, ...]:
    _write_files(folder, publications, "*/5 * * * *")
    airflow = AirflowHome(folder / "airflow", folder, CHECKOUT / "plugins", connections={})
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, str(folder)],
        env=airflow.environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=600,
    )
    return tuple(map(float, done.stdout.splitlines()[-1].split()))


def _write_files(folder: Path, publications: int, schedule: str) -> None:
    for number in range(publications):
        name = f"shop_{number:03d}"
        (folder / f"{name}.yaml").write_text(_settings(name, folder, schedule), encoding="utf-8")


def _settings(name: str, folder: Path, schedule: str) -> str:
    articles = "".join(f"  - source: {it}\n" for it in _ARTICLES)
    subscriptions = "".join(f"  - {{name: copy_{it}, connection: subscriber_{it}}}\n" for it in range(3))
    return (
        f"publication: {name}\npublisher: {{connection: publisher}}\nschedule: '{schedule}'\n"
        f"distributor: {{connection: distribution, store: {folder}/store}}\n"
        f"articles:\n{articles}subscriptions:\n{subscriptions}"
    )


if __name__ == "__main__":
    main()
