"""`python -m benchmarks.large_day`: so many changes in one sitting that what grows with them would show.

Rounds of inserts, updates and deletes of the same rows by transactions of 100, each read, delivered and cleaned up;
then one large transaction. Of each: how fast, the peak memory of each process, files and bytes of the store, the size
of the distribution database, what the Publisher keeps of its log. At the end both tables are compared.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.memory import Role, peak_memory
from benchmarks.session import spark_session
from benchmarks.soak import stored
from benchmarks.workloads import MARKER, VENDOR, insert_in_one_transaction, vendor_workloads
from support.databases import create_databases
from support.embedded_postgres import PostgresServer, ServerSettings
from support.site import Site, execute
from tranrepl.admin.cleanup import clean_up
from tranrepl.jobs.results import JobResult

_OPTIONS = {"shared_buffers": "256MB", "max_wal_size": "2GB"}
_ROLES = (Role.PYTHON_WORKER, Role.DRIVER_JVM, Role.DRIVER_PYTHON)
_KEPT = (
    "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint FROM pg_replication_slots WHERE NOT temporary"
)
_ALL_KEPT = "SELECT sum(size)::bigint FROM pg_ls_waldir()"
_SUM = "SELECT count(*), coalesce(sum(hashtextextended(t::text, 0)::numeric), 0) FROM vendor t"
console = Console(width=120)


@dataclass(frozen=True, slots=True)
class _Round:
    """Seconds and sizes of a number of changes; sizes in MB, those of the store before it is cleaned up and after."""

    changes: int
    read: float
    delivered: float
    memory: dict[Role, float]
    files: int
    full: float
    cleaned: float
    database: float
    kept: float
    log: float


@dataclass(slots=True)
class _Day:
    site: Site
    store: Path
    rounds: list[_Round] = field(default_factory=list)

    def take(self, build: Callable[[], object], changes: int) -> None:
        """Let the Publisher make so many changes, and deliver them."""
        build()
        # It waits until it is on disk, and so is what was committed before it without waiting.
        self.site.at_publisher(f"INSERT INTO marker VALUES ({len(self.rounds)})")
        memory: dict[Role, float] = {}
        with peak_memory(memory):
            read = self._drain(self.site.run_log_reader, changes)
            self.site.probe_log()
            kept = self._megabytes(_KEPT)
            delivered = self._drain(lambda: self.site.run_distribution("reporting"), changes)
        files, full = stored(self.store)
        clean_up(self.site.topology)
        for end in (self.site.databases.publisher, self.site.databases.subscriber):
            execute(end, "VACUUM vendor", "CHECKPOINT")
        ((database,),) = execute(self.site.databases.distribution, "SELECT pg_database_size(current_database())")
        self.rounds.append(
            _Round(
                changes, read, delivered, memory, files, full, stored(self.store)[1],
                int(database) / 1024**2, kept, self._megabytes(_ALL_KEPT),
            )
        )  # fmt: skip

    def _drain(self, job: Callable[[], JobResult], changes: int) -> float:
        began = time.monotonic()
        result = job()
        result.raise_error()
        if result.commands != changes:
            raise AssertionError(f"{result.commands:,} commands in place of {changes:,}")
        return time.monotonic() - began

    def _megabytes(self, query: str) -> float:
        ((size,),) = self.site.at_publisher(query)
        return int(size) / 1024**2

    def check_equal(self) -> None:
        """Check that both ends hold the same rows."""
        if self.site.at_publisher(_SUM) != self.site.at_subscriber(_SUM):
            raise AssertionError("the ends differ")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large_day", description=__doc__)
    parser.add_argument("--changes", type=int, default=100_000_000, help="default 100,000,000")
    parser.add_argument(
        "--rows", type=int, default=1_000_000, help="of the table, a third of a round; default 1,000,000"
    )
    parser.add_argument("--transaction", type=int, default=20_000_000, help="the large one's rows; default 20,000,000")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="tranrepl-bench-") as folder,
        PostgresServer(ServerSettings(Path(folder) / "publisher", options=_OPTIONS)) as publisher,
        PostgresServer(ServerSettings(Path(folder) / "others", options=_OPTIONS)) as others,
        spark_session() as spark,
    ):
        publisher.create_database("publisher")
        databases = replace(create_databases(others), publisher=publisher.connection("publisher"))
        site = Site(databases, Path(folder) / "store", ["public.vendor"], spark)
        for end in (databases.publisher, databases.subscriber):
            execute(end, VENDOR, MARKER)
        site.set_up()
        day = _Day(site, Path(folder) / "store")
        for number in range(-(-options.changes // (3 * options.rows))):
            day.take(lambda: [it.build(databases.publisher) for it in vendor_workloads(options.rows)], 3 * options.rows)
            console.print(f"round {number + 1}:", *_line(day.rounds[-1:]))
        many = len(day.rounds)
        if options.transaction:
            day.take(lambda: insert_in_one_transaction(options.transaction, databases.publisher), options.transaction)
        day.check_equal()
        _show(day.rounds[:many], day.rounds[many:])


def _show(rounds: list[_Round], large: list[_Round]) -> None:
    """Print a line for each tenth of the rounds, and one for the large transaction."""
    table = Table(title="Changes a second; the most in MB")
    headings = ("changes", "log reader", "delivery", *_ROLES, "files", "store", "after", "database", "slot", "log")
    for heading in headings:
        table.add_column(heading, justify="right")
    step = max(1, len(rounds) // 10)
    for some in [*(rounds[at : at + step] for at in range(0, len(rounds), step)), *([it] for it in large)]:
        table.add_row(*_line(some))
    console.print(table)


def _line(rounds: list[_Round]) -> list[str]:
    changes = sum(it.changes for it in rounds)
    sizes = ("files", "full", "cleaned", "database", "kept", "log")
    return [
        f"{changes:,}",
        *(f"{changes / sum(getattr(it, what) for it in rounds):,.0f}" for what in ("read", "delivered")),
        *(f"{max(it.memory.get(role, 0) for it in rounds):,.0f}" for role in _ROLES),
        *(f"{max(getattr(it, what) for it in rounds):,.0f}" for what in sizes),
    ]


if __name__ == "__main__":
    main()
