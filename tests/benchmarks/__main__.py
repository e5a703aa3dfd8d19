"""`make bench`: the log reader beside the slot's own decoding, the distribution beside built-in replication.

Both sides drain the same backlog of the same Publisher, one after the other, in alternating order. Start-up of Spark
is left out: the session is warm. Each workload is measured several times, and the median counts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.reference import BuiltInReplication
from benchmarks.session import spark_session
from benchmarks.workloads import PGBENCH_TABLES, Workload, create_tables, workloads
from sandbox.databases import Databases
from sandbox.embedded_postgres import PostgresServer, ServerSettings
from sandbox.site import Site, execute
from tranrepl.connections import Connection

console = Console()
TABLES = ("vendor", "marker", *PGBENCH_TABLES)
_WARM_UP_ROWS = 100_000
_SERVER_OPTIONS = {"shared_buffers": "512MB", "max_wal_size": "8GB"}


@dataclass(frozen=True, slots=True)
class Row:
    """One figure beside its reference, both in changes a second."""

    workload: str
    phase: str
    changes: int
    ours_per_s: float
    reference_per_s: float

    @property
    def ratio(self) -> float:
        return self.ours_per_s / self.reference_per_s


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows to insert, update and delete")
    parser.add_argument("--transactions", type=int, default=100_000, help="TPC-B transactions")
    parser.add_argument("--scale", type=int, default=10, help="pgbench scale")
    parser.add_argument("--servers", type=int, choices=(1, 2), default=1, help="2: the Publisher on one of its own")
    parser.add_argument("--rounds", type=int, default=3, help="each workload so many times; the median counts")
    parser.add_argument("--output", type=Path, default=Path(".bench/results.json"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tranrepl-bench-") as folder:
        measured = _measure(Path(folder), options)
    rows = _medians(measured)
    options.output.parent.mkdir(exist_ok=True)
    results = [{**asdict(row), "mode": "commands", "ratio": row.ratio} for row in rows]
    options.output.write_text(json.dumps({"rows": results}, indent=2) + "\n")
    _show(rows)


def _medians(measured: Sequence[Row]) -> list[Row]:
    """One row for each workload and phase: the medians of either side's rates over all rounds."""
    kinds = dict.fromkeys((row.workload, row.phase) for row in measured)
    return [_median([row for row in measured if (row.workload, row.phase) == kind]) for kind in kinds]


def _median(rows: Sequence[Row]) -> Row:
    return replace(
        rows[0],
        ours_per_s=statistics.median(row.ours_per_s for row in rows),
        reference_per_s=statistics.median(row.reference_per_s for row in rows),
    )


def _measure(folder: Path, options: argparse.Namespace) -> list[Row]:
    measured: list[Row] = []
    with ExitStack() as stack:
        first = stack.enter_context(PostgresServer(ServerSettings(folder / "publisher", options=_SERVER_OPTIONS)))
        second = first
        if options.servers == 2:
            second = stack.enter_context(PostgresServer(ServerSettings(folder / "subscriber", options=_SERVER_OPTIONS)))
        spark = stack.enter_context(spark_session())
        publisher = _database(first, "publisher")
        subscriber, distribution, reference = (
            _database(second, name) for name in ("subscriber", "distribution", "reference")
        )
        bindir = first.settings.bindir
        with console.status("creating tables"):
            create_tables(publisher, bindir, options.scale)
            for end in (subscriber, reference):
                create_tables(end, bindir, options.scale)
        site = Site(
            Databases(publisher, subscriber, distribution),
            folder / "store",
            [f"public.{table}" for table in TABLES],
            spark,
        )
        site.set_up()
        built_in = BuiltInReplication(publisher, reference, _publication(publisher))
        built_in.set_up()
        bench = _Bench(site, built_in, publisher, reference)
        bench.warm_up()
        every = workloads(publisher, bindir, options.rows, options.transactions)
        for number, (turn, workload) in enumerate(product(range(options.rounds), every), start=1):
            with console.status(f"{workload.name}, round {turn + 1}"):
                measured += bench.measure(number, workload)
        built_in.drop()
        bench.check_equal()
    return measured


def _database(server: PostgresServer, name: str) -> Connection:
    server.create_database(name)
    return server.connection(name)


def _publication(publisher: Connection) -> str:
    return str(execute(publisher, "SELECT pubname FROM pg_publication")[0][0])


class _Bench:
    def __init__(self, site: Site, built_in: BuiltInReplication, publisher: Connection, reference: Connection) -> None:
        self._site = site
        self._built_in = built_in
        self._publisher = publisher
        self._reference = reference

    def warm_up(self) -> None:
        """The first jobs of a session load and compile classes; nobody wants that in a rate."""
        for procedure in ("insert_vendors", "update_vendors", "delete_vendors"):
            execute(self._publisher, f"CALL {procedure}({_WARM_UP_ROWS})")
        execute(self._publisher, "INSERT INTO marker VALUES (0)")
        self._site.run()
        self._built_in.drain(0)

    def measure(self, number: int, workload: Workload) -> list[Row]:
        workload.build()
        execute(self._publisher, f"INSERT INTO marker VALUES ({number})", "VACUUM", "CHECKPOINT")
        for end in (self._site.databases.subscriber, self._reference):
            execute(end, "VACUUM")
        changes, slot_seconds = self._decode_slot()
        log_reader = self._timed_log_reader()
        # Whoever comes second finds the Publisher's log and the disk's cache warm.
        if number % 2:
            distribution, reference = self._timed_distribution(), self._built_in.drain(number)
        else:
            reference = self._built_in.drain(number)
            distribution = self._timed_distribution()
        return [
            Row(workload.name, "log_reader", changes, changes / log_reader, changes / slot_seconds),
            Row(workload.name, "distribution", changes, changes / distribution, changes / reference),
        ]

    def _decode_slot(self) -> tuple[int, float]:
        """Changes in the backlog, and seconds that the slot's own decoding takes (the better of two)."""
        name = execute(self._publisher, "SELECT slot_name FROM pg_replication_slots WHERE slot_name <> 'reference'")[0][
            0
        ]
        peek = (
            f"pg_logical_slot_peek_binary_changes('{name}', NULL, NULL, 'proto_version', '1', "
            f"'publication_names', '{name}')"
        )
        seconds = []
        for _ in range(2):
            started = time.perf_counter()
            execute(self._publisher, f"SELECT count(*) FROM {peek}")
            seconds.append(time.perf_counter() - started)
        counted = execute(
            self._publisher,
            f"SELECT count(*) FROM {peek} WHERE substr(data, 1, 1) IN ('I'::bytea, 'U'::bytea, 'D'::bytea)",
        )
        return int(counted[0][0]), min(seconds)

    def _timed_log_reader(self) -> float:
        started = time.perf_counter()
        self._site.read_log().raise_error()
        return time.perf_counter() - started

    def _timed_distribution(self) -> float:
        started = time.perf_counter()
        self._site.deliver().raise_error()
        return time.perf_counter() - started

    def check_equal(self) -> None:
        different = self._site.differences()
        if different:
            raise AssertionError(f"Publisher and Subscriber differ in {', '.join(different)}")


def _show(rows: list[Row]) -> None:
    table = Table("workload", "phase", title="changes a second")
    for heading in ("changes", "ours", "reference", "ratio"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            row.workload,
            row.phase.replace("_", " "),
            f"{row.changes:,}",
            f"{row.ours_per_s:,.0f}",
            f"{row.reference_per_s:,.0f}",
            f"{row.ratio:.2f}",
        )
    console.print(table)
    console.print("reference: count(*) over the same slot (log reader), built-in logical replication (distribution)")


if __name__ == "__main__":
    main()
