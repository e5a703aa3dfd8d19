"""`python -m benchmarks.many_articles`: what a publication of thousands of tables costs, of which few change.

All three databases are of one server. Start-up of Python and Spark is left out. `empty` is the same publication with
one article.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.table import Table

from benchmarks.bounds import MOST_SECONDS, at_most, end_in_order
from benchmarks.memory import Role, peak_memory
from benchmarks.session import keep_warm, spark_session
from support.airflow_home import AirflowHome
from support.checkout import CHECKOUT
from support.continuous_run import running_continuously
from support.databases import connection_environment, create_databases
from support.embedded_postgres import PostgresServer, ServerSettings
from support.shell import publication_file
from support.site import Site
from tranrepl.admin.check import check
from tranrepl.admin.joining_tables import publish_new_tables
from tranrepl.admin.status.publication import status
from tranrepl.settings.loading import load_publication

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

console = Console()
_OPTIONS = {"shared_buffers": "512MB", "max_locks_per_transaction": "1024"}
_CHANGING = 50
_FOLLOWED_SECONDS = 0.5
_AT_ONCE = 200
"""Tables created by one statement."""

Seconds = dict[str, float]
_Done = TypeVar("_Done")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_articles", description=__doc__)
    parser.add_argument("--articles", type=int, default=10_000)
    parser.add_argument("--pattern", action="store_true", help="one entry with a pattern, and not one for each table")
    options = parser.parse_args()
    end_in_order()
    peaks: dict[Role, float] = {}
    with spark_session() as spark, at_most(MOST_SECONDS, "the publication"):
        empty = _measure(spark, 1, by_pattern=options.pattern)
        with peak_memory(peaks):
            many = _measure(spark, options.articles, by_pattern=options.pattern)
    table = Table("", "empty", f"{options.articles:,} articles", title="seconds")
    for name in many:
        table.add_row(name, f"{empty[name]:.2f}", f"{many[name]:.2f}")
    console.print(table, {str(role): f"{peak:,.0f} MB" for role, peak in peaks.items()})


def _measure(spark: SparkSession, articles: int, *, by_pattern: bool) -> Seconds:
    taken: Seconds = {}

    def timed(name: str, do: Callable[[], _Done]) -> _Done:
        with console.status(f"{articles:,} articles: {name}"):
            begun = time.perf_counter()
            done = do()
            taken[name] = time.perf_counter() - begun
        return done

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tranrepl-bench-")))
        server = stack.enter_context(PostgresServer(ServerSettings(folder / "server", options=_OPTIONS)))
        tables = [f"public.item_{n}" for n in range(articles)]
        sources = ["public.item_*"] if by_pattern else tables
        site = Site(create_databases(server), folder / "store", sources, spark, replicate_ddl=True)
        _create_tables(site, tables)
        file = publication_file(folder, [{"source": it} for it in sources])
        timed("read the file", lambda: load_publication(file))
        timed("check", lambda: check(site.topology))
        timed("setup", site.set_up)
        timed("setup again", site.set_up)
        for name in ("first run", "run"):
            site.at_publisher(*(f"INSERT INTO {it} SELECT count(*) FROM {it}" for it in tables[:_CHANGING]))
            keep_warm(spark)
            timed(f"{name}, log reader", site.read_log).raise_error()
            timed(f"{name}, distribution", site.deliver).raise_error()
        timed("idle log reader", site.read_log).raise_error()
        timed("idle log reader again", site.read_log).raise_error()
        timed("idle distribution", site.deliver).raise_error()
        timed("look for new tables", lambda: publish_new_tables(site.topology, console.print))
        timed("status", lambda: status(site.topology))
        some = tuple(tables[:_CHANGING])
        timed("validate those", lambda: site.validate(articles=some)).raise_error()
        taken |= _agents(site, folder, file) | _pages(site, folder)
    return taken


def _agents(site: Site, folder: Path, file: Path) -> Seconds:
    """Return how long it takes from the start of continuous agents to the first delivery, and until the log is followed
    as it is written: a delivery then takes a fraction of a second."""
    taken: Seconds = {}
    begun = time.perf_counter()
    with (folder / "agents").open("wb") as said, running_continuously(site, file, said) as agents:
        while "agents, log followed" not in taken:
            site.at_publisher("INSERT INTO item_0 SELECT count(*) FROM item_0")
            changed = time.perf_counter()
            while site.at_subscriber("SELECT count(*) FROM item_0") != site.at_publisher("SELECT count(*) FROM item_0"):
                time.sleep(0.05)
            now = time.perf_counter()
            taken.setdefault("agents, first delivery", now - begun)
            if now - changed < _FOLLOWED_SECONDS:
                taken["agents, log followed"] = now - begun
        agents.send_signal(signal.SIGINT)
        agents.wait()
    return taken


def _pages(site: Site, folder: Path) -> Seconds:
    """Return how long Replication Monitor takes for each of its pages, in a process that serves nobody else."""
    publication = site.publication.model_dump(mode="json", exclude_defaults=True)
    file = folder / "publication.json"
    file.write_text(json.dumps(publication), encoding="utf-8")
    home, plugins = folder / "airflow", CHECKOUT / "plugins"
    airflow = AirflowHome(home, folder / "dags", plugins, connection_environment(site.connections.values()))
    airflow.run("db", "migrate", log=folder / "migrate.log")
    paths = os.pathsep.join([airflow.environment["PYTHONPATH"], str(CHECKOUT / "tests")])
    asked = subprocess.run(
        [sys.executable, "-m", "benchmarks.monitor_pages", str(file), str(folder)],
        env={**airflow.environment, "PYTHONPATH": paths},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found: Seconds = json.loads(asked.stdout.splitlines()[-1])
    return found


def _create_tables(site: Site, sources: list[str]) -> None:
    columns = "(id int PRIMARY KEY, name text, price numeric(9, 2), changed timestamptz)"
    made = [f"CREATE TABLE {it} {columns}" for it in sources]
    site.at_publisher(*("; ".join(made[n : n + _AT_ONCE]) for n in range(0, len(made), _AT_ONCE)))


if __name__ == "__main__":
    main()
