"""Continuous agents for long: a sawtooth of transactions a second, or a transaction that stays open beside them.

Every ten seconds it takes down what memory the agents have, process by process, what CPU the log reader took for each
1,000 transactions, what the store holds, and how long the changes took. Clean-up runs now and then, as it does where
Airflow schedules it. At the end both ends are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import psycopg
from rich.console import Console
from rich.table import Table

from benchmarks.continuous_site import ContinuousSite, Way, continuous_site
from benchmarks.latency import last_row, quantiles, times
from benchmarks.pgbench_load import LoadOptions, pgbench
from benchmarks.process_costs import cpu_of, pss_mb_of
from benchmarks.process_roles import LOG_READER, OTHER_WORKERS, SENDER, processes_by_role
from support.shell import COMMAND
from support.site import execute

console = Console(width=120)
_STEP_SECONDS = 10
_TEETH_STEPS = 11
"""From nothing to the top, in as many steps."""
_CLEANED_EVERY = 12
_COMMITTED = "pg_xact_commit_timestamp(xmin)"


@dataclass(frozen=True, slots=True)
class Sample:
    """Ten seconds."""

    seconds: float
    """Since the beginning, at their end."""
    rate: int
    reached_per_s: float
    memory_mb: dict[str, float]
    """By what a process is (PSS)."""
    log_reader_cpu_ms: float | None
    """What the log reader's worker took for each 1,000 transactions that were committed meanwhile."""
    sender_cpu_ms: float | None
    """The same, of the Publisher's process that decodes the log for it."""
    delivery_cpu_ms: float | None
    """The same, of the other workers of Python."""
    batches: int
    store_files: int
    store_mb: float
    behind: int
    """Transactions that the Subscriber did not have at the end."""
    p50_ms: float | None = None
    p95_ms: float | None = None


@dataclass(slots=True)
class _Soak:
    site: ContinuousSite
    load: LoadOptions
    began: float = field(default_factory=time.monotonic)
    samples: list[Sample] = field(default_factory=list)
    rows: list[tuple[int, int]] = field(default_factory=list)
    """After which row of `pgbench_history`, and up to which, for each sample."""

    def take(self, rate: int, seconds: int) -> None:
        """Commit for some seconds, and take a sample."""
        roles, first, began = processes_by_role(self.site), last_row(self.site.publisher), time.monotonic()
        before = self._cpu_of(roles)
        if rate:
            pgbench(self.site.publisher, rate, seconds, self.load)
        else:
            time.sleep(seconds)
        took, last = time.monotonic() - began, last_row(self.site.publisher)
        behind = last - last_row(self.site.subscriber)
        transactions = last - first
        spent = {it: seconds - before.get(it, seconds) for it, seconds in self._cpu_of(roles).items()}
        cost = {it: seconds * 1e6 / transactions for it, seconds in spent.items()} if transactions else {}
        files, size = stored(self.site.store)
        ((batches,),) = execute(self.site.distribution, "SELECT count(*) FROM msrepl_batches")
        self.rows.append((first, last))
        self.samples.append(
            Sample(
                time.monotonic() - self.began,
                rate,
                (last - first) / took,
                {role: sum(map(pss_mb_of, some)) for role, some in roles.items() if role != SENDER},
                cost.get(LOG_READER),
                cost.get(SENDER),
                cost.get(OTHER_WORKERS),
                int(batches),
                files,
                size,
                behind,
            )
        )

    def _cpu_of(self, roles: dict[str, set[int]]) -> dict[str, float]:
        return {role: sum(map(cpu_of, some)) for role, some in roles.items()}

    def clean_up(self) -> None:
        """Remove what every Subscriber has, and put small batches together."""
        command = [str(COMMAND), "cleanup", str(self.site.file)]
        environment = {**os.environ, **self.site.environment}
        subprocess.run(command, env=environment, check=True, capture_output=True)

    def end(self) -> list[Sample]:
        """Wait until all has arrived, and return the samples with their latencies."""
        last = last_row(self.site.publisher)
        self.site.wait(lambda: last_row(self.site.subscriber) >= last)
        self.site.wait(lambda: last_row(self.site.reference) >= last)
        return [self._with_latency(sample, *rows) for sample, rows in zip(self.samples, self.rows, strict=True)]

    def _with_latency(self, sample: Sample, first: int, last: int) -> Sample:
        published, received = (times(it, _COMMITTED, first, last) for it in (self.site.publisher, self.site.subscriber))
        p50, p95, _ = quantiles(published, received)
        return Sample(**{**asdict(sample), "p50_ms": p50, "p95_ms": p95})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--seconds", type=int, default=1800, help="default 1800")
    parser.add_argument("--top", type=int, default=5000, help="transactions a second of the sawtooth; default 5000")
    parser.add_argument("--open-transaction", action="store_true", help="one stays open; no sawtooth, but --rate")
    parser.add_argument("--rate", type=int, default=500, help="commits a second beside it; default 500")
    parser.add_argument("--by", type=Way, choices=list(Way), default=Way.SHELL)
    parser.add_argument("--output", type=Path, default=Path(".bench/soak.json"))
    options = parser.parse_args()
    steps = max(1, options.seconds // _STEP_SECONDS)
    rates = [options.rate] * steps if options.open_transaction else list(sawtooth(options.top, steps))
    with tempfile.TemporaryDirectory(prefix="tranrepl-soak-") as folder:
        samples = soaked(Path(folder), rates, options.by, open_transaction=options.open_transaction)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    rows = [asdict(it) for it in samples]
    options.output.write_text(json.dumps(rows, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    show(samples)


def sawtooth(top: int, steps: int) -> Iterator[int]:
    """Yield rates that rise evenly from 0 to the top, again and again, and at last 0."""
    for number in range(steps - 1):
        yield top * (number % _TEETH_STEPS) // (_TEETH_STEPS - 1)
    yield 0


def soaked(
    folder: Path, rates: list[int], way: Way, *, open_transaction: bool = False, step_seconds: int = _STEP_SECONDS
) -> list[Sample]:
    """Commit at each rate for ten seconds. Raises AssertionError where both ends differ then.

    Beside an open transaction, no row is updated by all: what it may still see cannot be removed, and TPC-B's ten rows
    of branches would keep the Publisher itself from committing as many.
    """
    with continuous_site(folder, way) as site:
        soak = _Soak(site, LoadOptions(script="simple-update") if open_transaction else LoadOptions())
        with _kept_open(site, asked=open_transaction):
            for number, rate in enumerate(rates, start=1):
                soak.take(rate, step_seconds)
                if number % _CLEANED_EVERY == 0:
                    soak.clean_up()
        samples = soak.end()
        site.check_equal()
    return samples


@contextmanager
def _kept_open(site: ContinuousSite, *, asked: bool) -> Iterator[None]:
    """Keep a transaction open that has changed a published table; it is rolled back, as both ends are compared."""
    if not asked:
        yield
        return
    with psycopg.connect(**site.publisher.libpq_parameters("open transaction")) as session:  # type: ignore[arg-type]
        session.execute("INSERT INTO marker SELECT -1")
        yield
        session.rollback()


def stored(store: Path) -> tuple[int, float]:
    """Return how many files are in the store, and their MB."""
    files = [it for it in store.rglob("*") if it.is_file()]
    sizes = 0
    for it in files:
        # Clean-up may be faster.
        sizes += it.stat().st_size if it.exists() else 0
    return len(files), sizes / 1024**2


def show(samples: list[Sample]) -> None:
    table = Table("seconds", title="Every ten seconds; CPU in ms for 1,000 transactions")
    for heading in (
        "rate",
        "reached",
        "MB",
        "reader",
        "sender",
        "delivery",
        "batches",
        "files",
        "behind",
        "p50",
        "p95",
    ):
        table.add_column(heading, justify="right")
    for it in samples:
        costs = [it.log_reader_cpu_ms, it.sender_cpu_ms, it.delivery_cpu_ms]
        known = ["" if cost is None else f"{cost:,.0f}" for cost in (*costs, it.batches, it.store_files, it.behind)]
        known += ["" if found is None else f"{found:,.0f}" for found in (it.p50_ms, it.p95_ms)]
        memory = sum(it.memory_mb.values())
        table.add_row(f"{it.seconds:,.0f}", f"{it.rate:,}", f"{it.reached_per_s:,.0f}", f"{memory:,.0f}", *known)
    console.print(table)
    for role in sorted(samples[-1].memory_mb):
        measured = [it.memory_mb[role] for it in samples if role in it.memory_mb]
        first, last = np.median(measured[: len(measured) // 3 or 1]), np.median(measured[-(len(measured) // 3 or 1) :])
        console.print(
            f"{role}: {first:,.0f} MB in the first third, {last:,.0f} in the last, {max(measured):,.0f} at most"
        )


if __name__ == "__main__":
    main()
