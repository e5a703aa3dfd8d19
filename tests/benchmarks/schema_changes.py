"""What schema changes cost the jobs: the backlog of 200 articles, with one every thousand transactions and without.

Built-in replication stops at the first of them, so our own rates are compared. Both backlogs are built and drained in
turn; every round ends with a comparison of both ends, by rows and by columns.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from benchmarks.benchmark_site import Servers
from benchmarks.bounds import MOST_SECONDS, at_most, end_in_order
from benchmarks.drains import seconds_of, timed
from benchmarks.results import TimedJob
from benchmarks.session import keep_warm, spark_session
from benchmarks.workloads import FILTERED_TABLES, TRANSACTION_ROWS, create_filtered, filtered, filtered_table
from support.databases import create_databases
from support.embedded_postgres import PostgresServer, ServerSettings
from support.equality import differing_rows
from support.progress import step
from support.site import Site, execute
from tranrepl.connections import Connection
from tranrepl.jobs.results import JobResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EACH_TRANSACTIONS = 1_000
"""So many transactions lie between two schema changes."""
_COLUMNS = """
SELECT table_name, column_name, data_type FROM information_schema.columns
 WHERE table_name LIKE 'vendor%' ORDER BY 1, 2
"""


@dataclass(frozen=True, slots=True)
class Drained:
    """One backlog, drained by both jobs."""

    changes: int
    schema_changes: int
    log_reader: TimedJob
    distribution: TimedJob

    @property
    def rates(self) -> tuple[float, float, float]:
        """Changes a second of the log reader, of the distribution and of both."""
        read, delivered = self.log_reader.seconds, self.distribution.seconds
        return self.changes / read, self.changes / delivered, self.changes / (read + delivered)


def main() -> None:
    end_in_order()
    parser = argparse.ArgumentParser(prog="benchmarks.schema_changes", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="changes of a backlog; default 1,000,000")
    parser.add_argument("--rounds", type=int, default=3, help="the median counts; default 3")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tranrepl-schema-changes-") as folder, spark_session() as spark:
        without, with_changes = measured(Path(folder), options.rows, options.rounds, spark)
    show(without, with_changes)


def measured(folder: Path, rows: int, rounds: int, spark: SparkSession) -> tuple[list[Drained], list[Drained]]:
    """Return what both backlogs took, round by round: without schema changes, and with them."""
    without: list[Drained] = []
    with_changes: list[Drained] = []
    options = {"shared_buffers": "512MB", "max_wal_size": "8GB"}
    with PostgresServer(ServerSettings(folder / "server", options=options)) as server:
        site = _site(server, folder, spark)
        # The first jobs of a session load and compile classes.
        _drain(site, server, rows // 10, changes=False)
        for turn in range(rounds):
            for changes in (False, True) if turn % 2 == 0 else (True, False):
                with step(f"round {turn + 1}, {'with' if changes else 'without'} schema changes"):
                    (with_changes if changes else without).append(_drain(site, server, rows, changes=changes))
    return without, with_changes


def _site(server: PostgresServer, folder: Path, spark: SparkSession) -> Site:
    databases = create_databases(server)
    tables = [f"public.{filtered_table(number)}" for number in range(FILTERED_TABLES)]
    site = Site(databases, folder / "store", [*tables, "public.marker"], spark, replicate_ddl=True)
    for end in (databases.publisher, databases.subscriber):
        create_filtered(end)
    site.set_up()
    return site


def _drain(site: Site, server: PostgresServer, rows: int, *, changes: bool) -> Drained:
    with at_most(MOST_SECONDS, "schema changes"):
        made = _build(site.databases.publisher, rows, changes=changes)
        Servers(server, server).checkpoint()
        read = _timed(site, site.probe_log, site.run_log_reader)
        delivered = _timed(site, partial(site.probe_batches, "reporting"), partial(site.run_distribution, "reporting"))
    _require_equal(site)
    return Drained(rows, made, read, delivered)


def _timed(site: Site, look: Callable[[], JobResult | None], job: Callable[[], JobResult]) -> TimedJob:
    probe_seconds = seconds_of(look)
    keep_warm(site.spark)
    return timed(job, probe_seconds)


def _build(publisher: Connection, rows: int, *, changes: bool) -> int:
    """Build a backlog; return how many schema changes are in it."""
    each = EACH_TRANSACTIONS * TRANSACTION_ROWS
    parts = [min(each, rows - start) for start in range(0, rows, each)]
    for number, part in enumerate(parts):
        filtered(part, publisher)
        if changes:
            execute(publisher, _schema_change(publisher, filtered_table(number % FILTERED_TABLES)))
    return len(parts) if changes else 0


def _schema_change(publisher: Connection, table: str) -> str:
    """Add a column to the table; or rename it, or drop it where that was done."""
    columns = execute(publisher, f"SELECT attname::text FROM pg_attribute WHERE attrelid = '{table}'::regclass")
    if ("added",) in columns:
        return f"ALTER TABLE {table} RENAME added TO renamed"
    if ("renamed",) in columns:
        return f"ALTER TABLE {table} DROP COLUMN renamed"
    return f"ALTER TABLE {table} ADD COLUMN added int DEFAULT 7"


def _require_equal(site: Site) -> None:
    if different := differing_rows(site):
        raise AssertionError(f"both ends differ in {', '.join(different)}")
    publisher, subscriber = (execute(it, _COLUMNS) for it in (site.databases.publisher, site.databases.subscriber))
    if publisher != subscriber:
        raise AssertionError(f"columns differ: {sorted(set(publisher) ^ set(subscriber))}")


def show(without: Sequence[Drained], with_changes: Sequence[Drained]) -> None:
    """Print rates, their ratios, and the seconds of each phase."""
    shown = Table("changes a second, median", "log reader", "distribution", "both")
    rates = [_medians(without), _medians(with_changes)]
    shown.add_row("without schema changes", *(f"{it:,.0f}" for it in rates[0]))
    shown.add_row(f"with {with_changes[0].schema_changes}", *(f"{it:,.0f}" for it in rates[1]))
    shown.add_row("ratio", *(f"{with_it / without_it:.2f}" for without_it, with_it in zip(*rates, strict=True)))
    console = Console(width=150)
    console.print(shown)
    for name, drained in (("without", without[-1]), ("with", with_changes[-1])):
        for job in (drained.log_reader, drained.distribution):
            console.print(f"{name}: {job.seconds:.2f} s, look {job.probe_seconds:.2f} s, {dict(job.phases)}")


def _medians(drained: Sequence[Drained]) -> list[float]:
    return [statistics.median(it) for it in zip(*(one.rates for one in drained), strict=True)]


if __name__ == "__main__":
    main()
