"""From commit to commit: pgbench's TPC-B at several rates, by agents that stay up, beside built-in replication.

Both replicate the same transactions at the same time, to databases of one server, so that each has the other's load
beside it. Latency is the difference of the commits' timestamps of each row of `pgbench_history`; both servers have one
clock. Built-in replication gives its commits the Publisher's timestamps: there a column's default tells when a row was
inserted, by a transaction's last statement. CPU is of our processes without the databases', and of built-in
replication's two backends.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.benchmark_site import BenchmarkSite, Servers, opened
from benchmarks.process_costs import ProcessCosts, descendants
from benchmarks.workloads import Size, scenarios
from support.databases import connection_environment
from support.embedded_postgres import PostgresServer, ServerSettings, embedded_bindir
from support.progress import step
from support.shell import COMMAND
from support.site import Site, execute
from tranrepl.connections import Connection
from tranrepl.settings.publication import Apply

console = Console()
RATES = (0, 10, 100, 500, 2_000)
"""Transactions a second; 0: what it costs to wait."""
WORKLOAD = "latency"
OURS, BUILT_IN = "continuous", "built-in"
_SERVER_OPTIONS = {"shared_buffers": "256MB", "max_wal_size": "4GB", "track_commit_timestamp": "on"}
_MOST_SECONDS = 300.0
_SETTLING_SECONDS = 5.0
_COMMITTED, _ARRIVED = "pg_xact_commit_timestamp(xmin)", "arrived"
_WHEN = {OURS: _COMMITTED, BUILT_IN: _ARRIVED}


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """One way at one rate. Milliseconds from commit to commit; None where nothing was committed."""

    workload: str
    mode: str
    rate: int
    reached_per_s: float
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    cpu_percent: float
    """What share of one core all processes took."""
    memory_mb: float
    """What all processes have together, what they share counted once (PSS)."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument("--seconds", type=int, default=120, help="how long each rate lasts; default 120")
    parser.add_argument("--quick", action="store_true", help="eight seconds each")
    parser.add_argument("--rates", type=int, nargs="+", default=list(RATES), metavar="N")
    parser.add_argument("--output", type=Path, default=Path(".bench/results.json"), help="where rows are added")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tranrepl-bench-") as folder:
        rows = measured(Path(folder), options.rates, 8 if options.quick else options.seconds)
    add_rows(options.output, rows)
    show(rows)


def measured(folder: Path, rates: Sequence[int], seconds: int) -> list[LatencyRow]:
    """Measure each rate by both ways at once."""
    (scenario,) = (it for it in scenarios(Size(1_000, 1_000, 10), embedded_bindir()) if it.workloads[0].name == "TPC-B")
    with ExitStack() as stack:
        publisher, others = (
            stack.enter_context(PostgresServer(ServerSettings(folder / name, options=_SERVER_OPTIONS)))
            for name in ("publisher", "others")
        )
        with step("databases, publication and subscriptions"):
            ends = stack.enter_context(opened(Servers(publisher, others), scenario, (Apply.AUTO,), folder / "store"))
        execute(ends.references[0], "ALTER TABLE pgbench_history ADD arrived timestamptz DEFAULT clock_timestamp()")
        stack.enter_context(ends.built_in.running())
        with step("starting the agents"):
            agents = stack.enter_context(_agents(ends.site, folder))
            _wait_for_marker(ends, agents)
            time.sleep(_SETTLING_SECONDS)
        rows = []
        for rate in rates:
            with step(f"{rate} transactions a second"):
                rows += _at_rate(ends, agents, rate, seconds)
        execute(ends.references[0], "ALTER TABLE pgbench_history DROP arrived")
        ends.check_equal()
    return rows


@contextmanager
def _agents(site: Site, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Keep `tranrepl run FILE --continuous` running."""
    file = folder / f"{site.publication.publication}.yaml"
    file.write_text(yaml.safe_dump(site.publication.model_dump(mode="json", exclude_unset=True)), encoding="utf-8")
    with (folder / "agents.log").open("wb") as output:
        process = subprocess.Popen(
            [str(COMMAND), "run", str(file), "--continuous", "--master", "local[2]"],
            env={**os.environ, **connection_environment(site.connections.values())},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_MOST_SECONDS)
            finally:
                process.kill()
    if process.returncode != 0:
        said = (folder / "agents.log").read_text(encoding="utf-8", errors="replace")
        raise RuntimeError(f"the agents ended with status {process.returncode}:\n{said[-2000:]}")


def _wait_for_marker(ends: BenchmarkSite, agents: subprocess.Popen[bytes]) -> None:
    marker = ends.end_backlog()
    for end in _subscribers(ends).values():
        _wait(lambda end=end: execute(end, f"SELECT 1 FROM marker WHERE id = {marker}") != [], agents)  # type: ignore[misc]


def _wait(condition: Callable[[], bool], agents: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _MOST_SECONDS
    while not condition():
        if agents.poll() is not None:
            raise RuntimeError(f"the agents ended with status {agents.returncode}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"changes did not arrive within {_MOST_SECONDS:.0f} s")
        time.sleep(0.2)


def _subscribers(ends: BenchmarkSite) -> dict[str, Connection]:
    return {OURS: ends.subscribers(Apply.AUTO)[0], BUILT_IN: ends.references[0]}


def _at_rate(ends: BenchmarkSite, agents: subprocess.Popen[bytes], rate: int, seconds: int) -> list[LatencyRow]:
    first = _last_row(ends.publisher)
    processes = {
        OURS: descendants(agents.pid) | {agents.pid},
        BUILT_IN: ends.built_in.processes(),
    }
    costs = {mode: ProcessCosts(some) for mode, some in processes.items()}
    began = time.monotonic()
    if rate:
        _pgbench(ends.publisher, rate, seconds)
    else:
        time.sleep(seconds)
    took = time.monotonic() - began
    spent = {mode: it.cpu_seconds() / took * 100 for mode, it in costs.items()}
    memory = {mode: it.memory_mb() for mode, it in costs.items()}
    last = _last_row(ends.publisher)
    for end in _subscribers(ends).values():
        _wait(lambda end=end: _last_row(end) >= last, agents)  # type: ignore[misc]
    published = _times(ends.publisher, _COMMITTED, first)
    rows = []
    for mode, end in _subscribers(ends).items():
        p50, p95, p99 = _quantiles(published, _times(end, _WHEN[mode], first))
        reached = len(published) / took
        rows.append(LatencyRow(WORKLOAD, mode, rate, reached, p50, p95, p99, spent[mode], memory[mode]))
    return rows


def _last_row(end: Connection) -> int:
    ((last,),) = execute(end, "SELECT coalesce(max(hid), 0) FROM pgbench_history")
    return int(last)


def _times(end: Connection, when: str, after: int) -> NDArray[np.int64]:
    """Return each row's number and when it came, in microseconds."""
    rows = execute(
        end,
        f"SELECT hid, (extract(epoch FROM {when}) * 1000000)::bigint FROM pgbench_history WHERE hid > {after} "
        "ORDER BY hid",
    )
    return np.array(rows, dtype=np.int64).reshape(-1, 2)


def _quantiles(
    published: NDArray[np.int64], received: NDArray[np.int64]
) -> tuple[float, float, float] | tuple[None, None, None]:
    """Return the 50th, 95th and 99th percentile of milliseconds. Raises AssertionError where rows are missing."""
    if not np.array_equal(published[:, 0], received[:, 0]):
        raise AssertionError(f"{len(published)} rows were published, {len(received)} others arrived")
    if not len(published):
        return None, None, None
    p50, p95, p99 = np.percentile((received[:, 1] - published[:, 1]) / 1000, [50, 95, 99])
    return float(p50), float(p95), float(p99)


def _pgbench(publisher: Connection, rate: int, seconds: int) -> None:
    parameters = publisher.libpq_parameters("pgbench")
    where = ["-h", parameters["host"], "-p", parameters["port"], "-U", parameters["user"], parameters["dbname"]]
    how = ["-n", "-M", "prepared", "-c", "4", "-j", "1", "-R", str(rate), "-T", str(seconds)]
    environment = {"PGPASSWORD": parameters["password"]}
    subprocess.run([str(embedded_bindir() / "pgbench"), *how, *where], env=environment, check=True, capture_output=True)


def add_rows(path: Path, rows: Sequence[LatencyRow]) -> None:
    """Put the rows into the file of results, in the place of earlier ones."""
    document: dict[str, Any] = {"rows": [], "limits": [], "startup": None}
    if path.exists():
        document = json.loads(path.read_text(encoding="utf-8"))
    others = [it for it in document["rows"] or [] if it["workload"] != WORKLOAD]
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**document, "rows": [*others, *map(asdict, rows)]}, indent=2, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def show(rows: Sequence[LatencyRow]) -> None:
    table = Table("rate", "by", title="From commit to commit, in milliseconds")
    for heading in ("reached", "p50", "p95", "p99", "% of a core", "MB"):
        table.add_column(heading, justify="right")
    for row in rows:
        figures = [row.reached_per_s, row.p50_ms, row.p95_ms, row.p99_ms]
        shown = ["" if it is None or math.isnan(it) else f"{it:,.0f}" for it in figures]
        table.add_row(f"{row.rate:,}", row.mode, *shown, f"{row.cpu_percent:.1f}", f"{row.memory_mb:,.0f}")
    console.print(table)


if __name__ == "__main__":
    main()
