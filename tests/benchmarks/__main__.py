"""`make bench`: the same backlogs, drained by the jobs and by PostgreSQL's own logical replication.

One Publisher, equal Subscribers, in alternating order, VACUUM and CHECKPOINT between, the median of the rounds. The
session of Spark is warm; what starting one costs is measured apart.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.benchmark_site import Servers, opened
from benchmarks.bounds import MOST_SECONDS, at_most, end_in_order
from benchmarks.chart import draw
from benchmarks.drains import measure
from benchmarks.limits import Limit, measure_limits
from benchmarks.report import show
from benchmarks.results import Measurement, Results, medians, slot_decoding
from benchmarks.session import spark_session
from benchmarks.startup import StartUp, measure_startup
from benchmarks.workloads import Scenario, Size, memory_scenario, scenarios, vendor_scenario
from support.checkout import CHECKOUT
from support.embedded_postgres import PostgresServer, ServerSettings, embedded_bindir
from support.progress import step
from support.spark_cluster import spark_cluster
from tranrepl.settings.publication import Apply

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FULL = Size(rows=1_000_000, transactions=200_000, scale=10)
_TENTH = Size(rows=100_000, transactions=20_000, scale=1)
_LIBRARY = str(CHECKOUT / "spark_jobs")
_SERVER_OPTIONS = {"shared_buffers": "512MB", "max_wal_size": "8GB"}


def main() -> None:
    end_in_order()
    options = _options()
    results = _measured(_plan(options), options.servers, on_cluster=options.cluster)
    results.write(options.output)
    show(results)
    if results.rows:
        chart = options.output.with_suffix(".png")
        draw(results.rows, chart)
        print(f"{options.output}, {chart}")


def _options() -> argparse.Namespace:
    names = [it.name for scenario in scenarios(_FULL, embedded_bindir()) for it in scenario.workloads]
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the changes, in one round")
    parser.add_argument("--rows", type=int, help=f"changes of a workload; default {_FULL.rows:,}")
    parser.add_argument("--transactions", type=int, help=f"TPC-B transactions; default {_FULL.transactions:,}")
    parser.add_argument("--scale", type=int, help=f"pgbench scale; default {_FULL.scale}")
    parser.add_argument("--rounds", type=int, help="each workload so many times, the median counts; default 3")
    parser.add_argument(
        "--servers", type=int, choices=(1, 2), default=2, help="1: the Publisher's log has what Subscribers write too"
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=names,
        metavar="WORKLOAD",
        help=f"only this one, and those it builds upon; may be repeated: {', '.join(names)}",
    )
    parser.add_argument("--memory", action="store_true", help="also five times as many changes, for peak memory")
    parser.add_argument("--cluster", action="store_true", help="on a standalone cluster of two workers of one core")
    parser.add_argument("--no-startup", action="store_true", help="leave out spark-submit and the small runs")
    parser.add_argument("--output", type=Path, default=Path(".bench/results.json"), help="the chart goes beside it")
    return parser.parse_args()


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is measured, and how often."""

    size: Size
    scenarios: Sequence[Scenario]
    warm_up: Scenario
    rounds: int
    small_runs: Sequence[int]
    """Their changes; none: start-up is not measured."""


def _plan(options: argparse.Namespace) -> _Plan:
    base = _TENTH if options.quick else _FULL
    size = Size(options.rows or base.rows, options.transactions or base.transactions, options.scale or base.scale)
    bindir = embedded_bindir()
    chosen = [
        scenario
        for scenario in scenarios(size, bindir)
        if not options.only or any(it.name in options.only for it in scenario.workloads)
    ]
    if options.memory:
        chosen.append(memory_scenario(size))
    small_runs = (0, 1000) if options.quick else (0, 10, 1000)
    return _Plan(
        size,
        chosen,
        vendor_scenario(size.rows // 10),
        options.rounds or (1 if options.quick else 3),
        () if options.no_startup else small_runs,
    )


def _measured(plan: _Plan, number_of_servers: int, *, on_cluster: bool) -> Results:
    with tempfile.TemporaryDirectory(prefix="tranrepl-bench-") as folder, ExitStack() as stack:
        home = Path(folder)
        publisher = stack.enter_context(_server(home / "publisher"))
        others = stack.enter_context(_server(home / "others")) if number_of_servers == 2 else publisher
        servers = Servers(publisher, others)
        startup = _startup(servers, plan, home / "small") if plan.small_runs else None
        limits = _limits(others, plan)
        spark = stack.enter_context(_session_on_cluster(home / "cluster") if on_cluster else spark_session())
        # The first jobs of a session load and compile classes; nobody wants that in a rate.
        _drained(servers, plan.warm_up, 1, home / "warm_up", spark)
        measured: list[Measurement] = []
        for number, scenario in enumerate(plan.scenarios):
            measured += _drained(servers, scenario, plan.rounds, home / f"store_{number}", spark)
    rows = medians(measured, startup)
    return Results(rows, [*slot_decoding(rows), *limits], startup)


@contextmanager
def _session_on_cluster(home: Path) -> Iterator[SparkSession]:
    with spark_cluster(home, {"PYTHONPATH": _LIBRARY}) as master, spark_session(master) as session:
        yield session


def _server(home: Path) -> PostgresServer:
    return PostgresServer(ServerSettings(home, options=_SERVER_OPTIONS))


def _startup(servers: Servers, plan: _Plan, store: Path) -> StartUp:
    with (
        step("starting Spark, small runs"),
        at_most(MOST_SECONDS, "small runs"),
        opened(servers, vendor_scenario(1000), tuple(Apply)[:1], store) as ends,
    ):
        return measure_startup(ends, plan.small_runs, plan.rounds)


def _limits(server: PostgresServer, plan: _Plan) -> list[Limit]:
    server.create_database("limits")
    try:
        with step("what the machine can do"):
            return measure_limits(server.connection("limits"), plan.size.rows, plan.rounds)
    finally:
        server.drop_database("limits")


def _drained(servers: Servers, scenario: Scenario, rounds: int, store: Path, spark: SparkSession) -> list[Measurement]:
    # The default mode is enough to see what several Subscribers share.
    modes = tuple(Apply) if scenario.subscribers == 1 else tuple(Apply)[:1]
    measured: list[Measurement] = []
    with ExitStack() as stack:
        with step("databases, publication and subscriptions"):
            ends = stack.enter_context(opened(servers, scenario, modes, store, spark))
        for turn, workload in product(range(rounds), scenario.workloads):
            with step(f"{workload.name}, round {turn + 1}"), at_most(MOST_SECONDS, workload.name):
                measured += measure(ends, servers, workload, turn)
    shutil.rmtree(store)
    return measured


if __name__ == "__main__":
    main()
