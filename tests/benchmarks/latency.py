"""From commit to commit: pgbench's TPC-B at several rates, by continuous agents, beside built-in replication.

Both replicate the same transactions at the same time, to databases of one server, so that each has the other's load
beside it. Agents are kept up by a shell, or by Airflow's scheduler. Latency is the difference of the commits'
timestamps of each row of `pgbench_history`; both servers have one clock. Built-in replication gives its commits the
Publisher's timestamps: there a column's default tells when a row was inserted, by a transaction's last statement. CPU
is of our processes without the databases', and of built-in replication's two backends.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.continuous_site import BUILT_IN, ContinuousSite, Way, continuous_site
from benchmarks.pgbench_load import LoadOptions, pgbench
from benchmarks.process_costs import ProcessCosts
from support.progress import step
from support.site import execute
from tranrepl.connections import Connection

console = Console()
RATES = (0, 10, 100, 500, 2_000)
"""Transactions a second; 0: what it costs to wait."""
WORKLOAD = "latency"
_USUAL = LoadOptions()
_COMMITTED, _ARRIVED = "pg_xact_commit_timestamp(xmin)", "arrived"


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """One way at one rate. Milliseconds from commit to commit; None where nothing was committed."""

    workload: str
    mode: str
    """A `Way`, or built-in replication's."""
    beside: str
    """Which agents were at work."""
    rate: int
    reached_per_s: float
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    cpu_percent: float
    """What share of one core all processes took, those of log reader and one delivery together."""
    memory_mb: float
    """What all processes have together, what they share counted once (PSS)."""
    largest_agent_mb: float | None = None
    """Where each agent has processes of its own, the most that one of them has."""
    airflow_cpu_percent: float | None = None
    """What Airflow's components and its two tasks took beside the agents."""
    airflow_memory_mb: float | None = None


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument("--seconds", type=int, default=120, help="how long each rate lasts; default 120")
    parser.add_argument("--quick", action="store_true", help="eight seconds each, by a shell only")
    parser.add_argument("--rates", type=int, nargs="+", default=list(RATES), metavar="N")
    parser.add_argument(
        "--by", type=Way, nargs="+", choices=list(Way), help="who keeps the agents up; default: each in turn"
    )
    parser.add_argument("--clients", type=int, help="pgbench's; default: 4 to 10, by the rate")
    parser.add_argument("--threads", type=int, default=1, help="pgbench's; default 1")
    parser.add_argument("--asynchronous", action="store_true", help="commits at the Publisher wait for no disk")
    parser.add_argument("--output", type=Path, default=Path(".bench/results.json"), help="where rows are added")
    options = parser.parse_args()
    load = LoadOptions(options.clients, options.threads, options.asynchronous)
    for way in options.by or ([Way.SHELL] if options.quick else list(Way)):
        with tempfile.TemporaryDirectory(prefix="tranrepl-bench-") as folder:
            rows = measured(Path(folder), options.rates, 8 if options.quick else options.seconds, way, load)
        # As soon as they are known.
        add_rows(options.output, rows)
        show(rows)


def measured(
    folder: Path, rates: Sequence[int], seconds: int, way: Way = Way.SHELL, load: LoadOptions = _USUAL
) -> list[LatencyRow]:
    """Measure each rate by both at once."""
    rows = []
    with continuous_site(folder, way, asynchronous=load.asynchronous) as site:
        for rate in rates:
            with step(f"{rate} transactions a second"):
                rows += _at_rate(site, way, rate, seconds, load)
        site.check_equal()
    return rows


def _at_rate(site: ContinuousSite, way: Way, rate: int, seconds: int, load: LoadOptions) -> list[LatencyRow]:
    first = last_row(site.publisher)
    agents = [ProcessCosts(some) for some in site.agents.processes().values()]
    built_in, others = ProcessCosts(site.ends.built_in.processes()), ProcessCosts(site.agents.others())
    began = time.monotonic()
    if rate:
        pgbench(site.publisher, rate, seconds, load)
    else:
        time.sleep(seconds)
    took = time.monotonic() - began
    share = 100 / took
    spent, built_in_spent, others_spent = sum(it.cpu_seconds() for it in agents), built_in.cpu_seconds(), 0.0
    memory, others_memory = [it.memory_mb() for it in agents], 0.0
    built_in_memory = built_in.memory_mb()
    if way is Way.SCHEDULER:
        # The agents' processes are below the scheduler's.
        others_spent, others_memory = others.cpu_seconds() - spent, others.memory_mb() - sum(memory)
    last = last_row(site.publisher)
    for end in (site.subscriber, site.reference):
        site.wait(lambda end=end: last_row(end) >= last)  # type: ignore[misc]
    published = times(site.publisher, _COMMITTED, first)
    ours = quantiles(published, times(site.subscriber, _COMMITTED, first))
    theirs = quantiles(published, times(site.reference, _ARRIVED, first))
    reached = len(published) / took
    own = LatencyRow(WORKLOAD, way, way, rate, reached, ours[0], ours[1], ours[2], spent * share, sum(memory))
    if way is Way.SCHEDULER:
        own = replace(
            own,
            largest_agent_mb=max(memory),
            airflow_cpu_percent=others_spent * share,
            airflow_memory_mb=others_memory,
        )
    cpu = built_in_spent * share
    other = LatencyRow(WORKLOAD, BUILT_IN, way, rate, reached, theirs[0], theirs[1], theirs[2], cpu, built_in_memory)
    return [own, other]


def last_row(end: Connection) -> int:
    """Return the number of the last row of `pgbench_history`."""
    ((last,),) = execute(end, "SELECT coalesce(max(hid), 0) FROM pgbench_history")
    return int(last)


def times(end: Connection, when: str, after: int, up_to: int = 1 << 62) -> NDArray[np.int64]:
    """Return the number of each row of `pgbench_history` and when it came, in microseconds."""
    rows = execute(
        end,
        f"SELECT hid, (extract(epoch FROM {when}) * 1000000)::bigint FROM pgbench_history "
        f"WHERE hid > {after} AND hid <= {up_to} ORDER BY hid",
    )
    return np.array(rows, dtype=np.int64).reshape(-1, 2)


def quantiles(
    published: NDArray[np.int64], received: NDArray[np.int64]
) -> tuple[float, float, float] | tuple[None, None, None]:
    """Return the 50th, 95th and 99th percentile of milliseconds. Raises AssertionError where rows are missing."""
    if not np.array_equal(published[:, 0], received[:, 0]):
        raise AssertionError(f"{len(published)} rows were published, {len(received)} others arrived")
    if not len(published):
        return None, None, None
    p50, p95, p99 = np.percentile((received[:, 1] - published[:, 1]) / 1000, [50, 95, 99])
    return float(p50), float(p95), float(p99)


def add_rows(path: Path, rows: Sequence[LatencyRow]) -> None:
    """Put the rows into the file of results, in the place of earlier ones beside the same agents."""
    document: dict[str, Any] = {"rows": [], "limits": [], "startup": None}
    if path.exists():
        document = json.loads(path.read_text(encoding="utf-8"))
    replaced = {it.beside for it in rows}
    others = [it for it in document["rows"] or [] if it["workload"] != WORKLOAD or it.get("beside") not in replaced]
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
        table.add_row(f"{row.rate:,}", row.mode, *shown, f"{row.cpu_percent:.2f}", f"{row.memory_mb:,.0f}")
    console.print(table)
    for row in rows:
        if row.largest_agent_mb is not None:
            console.print(
                f"{row.rate:,}/s: the larger agent {row.largest_agent_mb:,.0f} MB; Airflow beside the agents "
                f"{row.airflow_cpu_percent:.1f} % of a core, {row.airflow_memory_mb:,.0f} MB"
            )


if __name__ == "__main__":
    main()
