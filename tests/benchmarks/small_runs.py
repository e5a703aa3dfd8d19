"""What a small run costs: 0, 10 and 1,000 changes, log reader and distribution, beside two empty spark-submit jobs.

Each run goes the real way. A task that Airflow's scheduler runs takes what Airflow says, from its start to its end. An
`airflow tasks test` or a `tranrepl` command is a process of its own that starts spark-submit, and takes what it takes,
Airflow's or Python's own start among it. The commit is somewhat earlier in each. With nothing to do no Spark job is
started. Seconds of CPU are those of all its processes together, but for the databases'.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table

from support.airflow_api import FINISHED, Api, connected
from support.airflow_components import components, password_of, wait_until_healthy
from support.airflow_home import BIN, AirflowHome
from support.checkout import CHECKOUT
from support.databases import create_databases, sqlalchemy_url
from support.embedded_postgres import PostgresServer, ServerSettings
from support.processes import free_port
from support.site import Site

console = Console()
EMPTY_JOB = Path(__file__).with_name("empty_job.py")
CHANGES = (0, 10, 1_000)
_TABLE = "CREATE TABLE part (part_id int PRIMARY KEY, name text NOT NULL, price numeric(9, 2), changed_at timestamptz)"
_DAG = "parts"
_TASKS = ("log_reader", "reporting.distribute")
_POLL_SECONDS = 0.5
_MOST_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Cost:
    """What a process and its children cost, in seconds; NaN: what they computed is not known."""

    wall: float
    cpu: float = math.nan

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.wall + other.wall, self.cpu + other.cpu)


@dataclass(frozen=True, slots=True)
class Row:
    """A run of both jobs beside two empty Spark jobs, in seconds."""

    workload: str
    phase: str
    changes: int
    ours_s: float
    ours_cpu_s: float
    reference_s: float
    reference_cpu_s: float

    @property
    def ratio(self) -> float:
        return self.ours_s / self.reference_s

    def figures(self) -> dict[str, object]:
        """Return the row for JSON, which has no NaN."""
        figures = asdict(self)
        known = {n: None if isinstance(v, float) and math.isnan(v) else v for n, v in figures.items()}
        return {**known, "ratio": self.ratio}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.small_runs", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="each run so many times; the median counts")
    parser.add_argument("--output", type=Path, default=Path(".bench/small_runs.json"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tranrepl-bench-") as folder, _site(Path(folder)) as runs:
        rows = measure(runs, options.rounds)
    options.output.parent.mkdir(exist_ok=True)
    options.output.write_text(json.dumps({"rows": [row.figures() for row in rows]}, indent=2, allow_nan=False))
    _show(rows)


class Runs:
    """The ways to run both jobs of one publication."""

    def __init__(self, site: Site, airflow: AirflowHome, file: Path, logs: Path) -> None:
        self._site = site
        self._airflow = airflow
        self._logs = logs
        self._environment = {**airflow.environment, "PYSPARK_PYTHON": sys.executable}
        self._file = file
        self._log = logs / "commands.log"
        self._changes = 0

    def change(self, changes: int) -> None:
        """Change rows at the Publisher, in transactions of 10."""
        for _ in range(changes // 10):
            self._site.at_publisher(
                f"INSERT INTO part SELECT n, 'part ' || n, n % 1000, now() "
                f"FROM generate_series({self._changes + 1}, {self._changes + 10}) AS n"
            )
            self._changes += 10

    def by_airflow(self) -> Cost:
        return sum((self._timed("airflow", "tasks", "test", _DAG, it) for it in _TASKS), Cost(0, 0))

    @contextmanager
    def scheduled(self) -> Iterator[Callable[[], Cost]]:
        """Yield a function that lets Airflow's scheduler make a run; its components run until the end."""
        password_of(self._airflow)
        with components(self._airflow, self._logs) as processes:
            wait_until_healthy(self._airflow, processes, self._logs)
            with connected(self._airflow) as api:
                yield partial(_by_scheduler, api)

    def by_shell(self) -> Cost:
        return sum((self._timed("tranrepl", it, str(self._file)) for it in ("log-reader", "distribute")), Cost(0, 0))

    def empty(self) -> Cost:
        """Run two jobs that do nothing, with Spark's defaults."""
        command = ("spark-submit", "--master", "local[2]", str(EMPTY_JOB))
        return self._timed(*command) + self._timed(*command)

    def check(self) -> None:
        if different := self._site.differences():
            raise AssertionError(f"Publisher and Subscriber differ in {', '.join(different)}")

    def _timed(self, program: str, *arguments: str) -> Cost:
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        with self._log.open("wb") as output:
            process = subprocess.run(
                [str(BIN / program), *arguments],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
        wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        if process.returncode != 0:
            raise RuntimeError(f"{program} {' '.join(arguments)} failed:\n{self._log.read_text(encoding='utf-8')}")
        return Cost(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def _by_scheduler(api: Api) -> Cost:
    run_id = api.trigger(_DAG)
    deadline = time.monotonic() + _MOST_SECONDS
    while (state := api.get(f"/dags/{_DAG}/dagRuns/{run_id}")["state"]) not in FINISHED:
        if time.monotonic() > deadline:
            raise TimeoutError(f"a run did not end within {_MOST_SECONDS:.0f} s")
        time.sleep(_POLL_SECONDS)
    if state != "success":
        raise RuntimeError(f"a run ended as {state}")
    seconds = api.seconds(_DAG, run_id)
    return Cost(sum(seconds[task] for task in _TASKS))


@contextmanager
def _site(folder: Path) -> Iterator[Runs]:
    dags, logs = folder / "dags", folder / "logs"
    logs.mkdir()
    shutil.copytree(CHECKOUT / "dags", dags, ignore=shutil.ignore_patterns("__pycache__", "publications"))
    (dags / "publications").mkdir()
    with PostgresServer(ServerSettings(folder / "postgresql")) as server:
        databases = create_databases(server)
        site = Site(databases, folder / "store", ["public.part"], publication=_DAG)
        site.at_publisher(_TABLE)
        site.set_up()
        file = dags / "publications" / f"{_DAG}.yaml"
        file.write_text(yaml.safe_dump(site.publication.model_dump(mode="json", exclude_unset=True)))
        server.create_database("airflow")
        metadata = sqlalchemy_url(server.connection("airflow")).render_as_string(hide_password=False)
        settings = {
            # Not SQLite, which lets one write at a time.
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": metadata,
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": metadata,
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
        }
        airflow = AirflowHome(
            folder / "airflow", dags, CHECKOUT / "plugins", databases.environment, free_port(), settings
        )
        airflow.home.mkdir()
        with console.status("Airflow's own database"):
            airflow.run("db", "migrate", log=logs / "airflow.log")
        yield Runs(site, airflow, file, logs)


def measure(runs: Runs, rounds: int) -> list[Row]:
    """Measure every way at every size in turn, each beside the empty jobs of its own round."""
    measured: dict[tuple[str, int], list[tuple[Cost, Cost]]] = {}
    for turn in range(rounds):
        with console.status(f"round {turn + 1}: two empty jobs"):
            empty = runs.empty()
        for changes, (phase, run) in product(CHANGES, (("airflow", runs.by_airflow), ("shell", runs.by_shell))):
            with console.status(f"round {turn + 1}: {changes} changes, {phase}"):
                runs.change(changes)
                measured.setdefault((phase, changes), []).append((run(), empty))
        runs.check()
    # Last: components that wait for something to do are not there for nothing.
    with runs.scheduled() as run:
        for turn in range(rounds):
            with console.status(f"round {turn + 1}: Airflow's scheduler"):
                empty = runs.empty()
                for changes in CHANGES:
                    runs.change(changes)
                    measured.setdefault(("task", changes), []).append((run(), empty))
        runs.check()
    return [_median(phase, changes, costs) for (phase, changes), costs in measured.items()]


def _median(phase: str, changes: int, costs: Sequence[tuple[Cost, Cost]]) -> Row:
    ours, reference = zip(*costs, strict=True)
    return Row(
        f"small_{changes}",
        phase,
        changes,
        statistics.median(it.wall for it in ours),
        statistics.median(it.cpu for it in ours),
        statistics.median(it.wall for it in reference),
        statistics.median(it.cpu for it in reference),
    )


def _show(rows: Sequence[Row]) -> None:
    table = Table("changes", "run by", title="Both jobs, from start to end")
    for heading in ("seconds", "of CPU", "two empty jobs", "of CPU", "ratio"):
        table.add_column(heading, justify="right")
    for row in sorted(rows, key=lambda it: (it.phase, it.changes)):
        figures = (row.ours_s, row.ours_cpu_s, row.reference_s, row.reference_cpu_s)
        shown = ("" if math.isnan(it) else f"{it:.1f}" for it in figures)
        table.add_row(f"{row.changes:,}", row.phase, *shown, f"{row.ratio:.2f}")
    console.print(table)


if __name__ == "__main__":
    main()
