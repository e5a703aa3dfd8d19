"""`python -m benchmarks.away`: four subscriptions, one of whose Subscribers is away for long, beside four of built-in
replication.

Continuous agents and built-in replication replicate the same commits of pgbench's TPC-B at once. Then one Subscriber of
each takes no connections. What the Publisher keeps of its log for both, what the store holds, and how long changes take
to the other Subscribers are taken down meanwhile; when they take connections again, how soon they have caught up. At
the end all ends are compared.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import yaml
from rich.console import Console
from rich.table import Table

from benchmarks.benchmark_site import BenchmarkSite, Servers, opened
from benchmarks.latency import last_row, quantiles, times
from benchmarks.pgbench_load import LoadOptions, pgbench
from benchmarks.reference import NAME
from benchmarks.workloads import Scenario, Size, scenarios
from support.databases import connection_environment
from support.embedded_postgres import PostgresServer, ServerSettings, embedded_bindir
from support.shell import COMMAND
from support.site import execute
from tranrepl.connections import Connection
from tranrepl.settings.publication import Apply

_OPTIONS = {"shared_buffers": "256MB", "max_wal_size": "4GB", "track_commit_timestamp": "on"}
_SUBSCRIPTIONS = 4
_CHANGES_OF_TPC_B = 4
_MOST_SECONDS = 900.0
_COMMITTED, _ARRIVED = "pg_xact_commit_timestamp(xmin)", "arrived"
_KEPT = """
SELECT slot_name = %(theirs)s, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint
  FROM pg_replication_slots WHERE slot_name = %(theirs)s OR slot_name NOT LIKE %(built_in)s AND NOT temporary
"""
console = Console(width=100)


@dataclass(frozen=True, slots=True)
class _Side:
    """One way to replicate: its Subscribers, the last of which is away, and what says when a row came."""

    name: str
    subscribers: Sequence[Connection]
    when: str

    @property
    def away(self) -> Connection:
        return self.subscribers[-1]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.away", description=__doc__)
    parser.add_argument("--rate", type=int, default=500, help="transactions a second; default 500")
    parser.add_argument("--seconds", type=int, default=600, help="how long a Subscriber is away; default 600")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tranrepl-bench-") as folder:
        measure(Path(folder), options.rate, options.seconds)


def measure(folder: Path, rate: int, seconds: int) -> None:
    with (
        PostgresServer(ServerSettings(folder / "publisher", options=_OPTIONS)) as publisher,
        PostgresServer(ServerSettings(folder / "others", options=_OPTIONS)) as others,
        opened(Servers(publisher, others), _tpc_b(), (Apply.AUTO,), folder / "store") as ends,
    ):
        for it in ends.references:
            execute(it, "ALTER TABLE pgbench_history ADD arrived timestamptz DEFAULT clock_timestamp()")
        ours = _Side("tranrepl", ends.subscribers(Apply.AUTO), _COMMITTED)
        theirs = _Side("built-in", ends.references, _ARRIVED)
        with ends.built_in.running(), _agents(ends, folder):
            _Away(ends, folder / "store", others, (ours, theirs)).measure(rate, seconds)
        for it in ends.references:
            execute(it, "ALTER TABLE pgbench_history DROP arrived")
        ends.check_equal()


@dataclass(frozen=True, slots=True)
class _Away:
    ends: BenchmarkSite
    store: Path
    server: PostgresServer
    sides: tuple[_Side, _Side]

    def measure(self, rate: int, seconds: int) -> None:
        table = Table("", *(it.name for it in self.sides), title=f"{rate} transactions a second")
        self._load(rate, 20)
        for side in self.sides:
            for end in side.subscribers:
                self._wait(end)
        first = last_row(self.ends.publisher)
        self._load(rate, 60)
        for it in self.sides:
            self._wait(it.away)
        before = self._latencies(first)
        kept, store, begun = [self._kept()], self._bytes(), last_row(self.ends.publisher)
        for it in self.sides:
            self._let_in(it.away, allowed=False)
        load = threading.Thread(target=self._load, args=(rate, seconds))
        load.start()
        while load.is_alive():
            load.join(10)
            kept.append(self._kept())
        grown = self._bytes() - store
        meanwhile, transactions = self._latencies(begun), last_row(self.ends.publisher) - begun
        took = [self._return(it) for it in self.sides]
        table.add_row("p50, p95 of the others before, ms", *before)
        table.add_row("p50, p95 of the others meanwhile, ms", *meanwhile)
        for at, what in enumerate(("at first", "half-way", "at the end")):
            here = kept[at * (len(kept) - 1) // 2]
            table.add_row(f"log kept at the Publisher {what}, MB", *(f"{it / 1e6:,.0f}" for it in here))
        most = [max(it[side] for it in kept) for side in (0, 1)]
        table.add_row("… at most, MB", *(f"{it / 1e6:,.0f}" for it in most))
        table.add_row("store, MB", f"{grown / 1e6:,.0f}: {grown / transactions:,.0f} bytes a transaction", "none")
        rates = [f"{it:.1f}: {_CHANGES_OF_TPC_B * transactions / it:,.0f} changes/s" for it in took]
        table.add_row(f"catching up {transactions:,} transactions, s", *rates)
        console.print(table)

    def _load(self, rate: int, seconds: int) -> None:
        pgbench(self.ends.publisher, rate, seconds, LoadOptions())

    def _kept(self) -> tuple[int, int]:
        """Return how much log is kept for us, and for the built-in subscription that is away."""
        theirs = f"{NAME}_{_SUBSCRIPTIONS}"
        query = _KEPT.replace("%(theirs)s", f"'{theirs}'").replace("%(built_in)s", f"'{NAME}%'")
        kept = {bool(is_theirs): int(size) for is_theirs, size in execute(self.ends.publisher, query)}
        return kept[False], kept[True]

    def _bytes(self) -> int:
        return sum(it.stat().st_size for it in self.store.rglob("*") if it.is_file())

    def _latencies(self, after: int) -> list[str]:
        """Return what the Subscribers that stay had, once they have all."""
        up_to, said = last_row(self.ends.publisher), []
        published = times(self.ends.publisher, _COMMITTED, after, up_to)
        for side in self.sides:
            found = []
            for it in side.subscribers[:-1]:
                self._wait(it)
                found.append(quantiles(published, times(it, side.when, after, up_to))[:2])
            p50, p95 = np.median(np.array(found, dtype=float), axis=0)
            said.append(f"{p50:.0f}, {p95:.0f}")
        return said

    def _return(self, side: _Side) -> float:
        """Let the Subscriber in again; return after how many seconds it has everything."""
        began = time.monotonic()
        self._let_in(side.away, allowed=True)
        self._wait(side.away)
        return time.monotonic() - began

    def _wait(self, end: Connection) -> None:
        deadline, last = time.monotonic() + _MOST_SECONDS, last_row(self.ends.publisher)
        while last_row(end) < last:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{end.database} did not get everything within {_MOST_SECONDS:.0f} s")
            time.sleep(0.1)

    def _let_in(self, end: Connection, *, allowed: bool) -> None:
        with self.server.connect() as session:
            session.execute(f'ALTER DATABASE "{end.database}" ALLOW_CONNECTIONS {allowed}'.encode())
            if not allowed:
                session.execute(
                    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s", [end.database]
                )


def _tpc_b() -> Scenario:
    found = scenarios(Size(1_000, 1_000, 10), embedded_bindir())
    (scenario,) = (it for it in found if it.workloads[0].name == "TPC-B")
    return replace(scenario, subscribers=_SUBSCRIPTIONS)


@contextmanager
def _agents(ends: BenchmarkSite, folder: Path) -> Iterator[None]:
    """Keep the agents up by a shell."""
    file = folder / "purchasing.yaml"
    file.write_text(yaml.safe_dump(ends.site.publication.model_dump(mode="json", exclude_unset=True)), encoding="utf-8")
    with (folder / "agents.log").open("wb") as output:
        process = subprocess.Popen(
            [str(COMMAND), "run", str(file), "--continuous", "--master", f"local[{_SUBSCRIPTIONS + 2}]"],
            env={**os.environ, **connection_environment(ends.site.connections.values())},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_MOST_SECONDS)
            finally:
                process.kill()


if __name__ == "__main__":
    main()
