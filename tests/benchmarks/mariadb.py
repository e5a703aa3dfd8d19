"""MariaDB as a Subscriber, beside MariaDB's own replication of the same rows, changed by the same transactions.

Ours come from a PostgreSQL Publisher, MariaDB's from a primary's row-based binary log. Both drain a backlog into equal
servers on this machine: ours by both jobs, MariaDB's replica with default settings.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.bounds import end_in_order
from benchmarks.drains import seconds_of, timed
from benchmarks.mariadb_replication import DATABASE, SERVER_OPTIONS, MariaDbReplication, mariadb_replication
from benchmarks.report import show
from benchmarks.results import Measurement, Phase, Results, TimedJob, medians
from benchmarks.session import spark_session
from benchmarks.workloads import VENDOR, vendor_workloads
from support.databases import Databases
from support.embedded_postgres import PostgresServer, ServerSettings
from support.mariadb import MariaDbServer, installed
from support.progress import step
from support.site import Site, execute
from tranrepl.settings.publication import Apply

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WARM_UP_ROWS = 20_000
METHODS: Mapping[str, Mapping[str, str]] = {
    "statements": {"ins_cmd": "SQL", "upd_cmd": "SQL", "del_cmd": "SQL"},
    "procedures": {},
}


def main() -> None:
    end_in_order()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mariadb", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000, help="rows to insert, update and delete")
    parser.add_argument("--rounds", type=int, default=3, help="all so many times; the median counts")
    parser.add_argument("--output", type=Path, default=Path(".bench/mariadb.json"))
    options = parser.parse_args()
    if not installed():
        print("MariaDB is not installed, and not measured; on Debian: apt-get install mariadb-server-core")
        return
    with tempfile.TemporaryDirectory(prefix="tranrepl-bench-") as folder:
        results = Results(medians(_measured(Path(folder), options.rows, options.rounds), None), (), None)
    results.write(options.output)
    show(results, "reference: MariaDB's own replication")


@dataclass(frozen=True, slots=True)
class Servers:
    postgres: PostgresServer
    subscribers: Mapping[Apply, MariaDbServer]
    """One for each mode: an article's destination is the same database in all."""
    replication: MariaDbReplication


@contextmanager
def beside_replication(postgres: PostgresServer, home: Path) -> Iterator[Servers]:
    """Yield MariaDB's servers."""
    with ExitStack() as stack:
        yield Servers(
            postgres,
            {mode: stack.enter_context(MariaDbServer(home / mode, SERVER_OPTIONS)) for mode in tuple(Apply)},
            stack.enter_context(mariadb_replication(home)),
        )


def _measured(home: Path, rows: int, rounds: int) -> list[Measurement]:
    with ExitStack() as stack:
        with step("servers and Spark"):
            postgres = stack.enter_context(PostgresServer(ServerSettings(home / "postgres")))
            servers = stack.enter_context(beside_replication(postgres, home))
            spark = stack.enter_context(spark_session())
        with step("warming up"):
            for method in METHODS:
                race(servers, method, min(rows, _WARM_UP_ROWS), 1, home / f"warm_up_{method}", spark)
        measured: list[Measurement] = []
        for method in METHODS:
            with step(method):
                measured += race(servers, method, rows, rounds, home / method, spark)
    return measured


def race(servers: Servers, method: str, rows: int, rounds: int, store: Path, spark: SparkSession) -> list[Measurement]:
    """Measure each workload so many times, and compare all ends. Raises AssertionError where they differ."""
    measured: list[Measurement] = []
    with _site(servers, METHODS[method], store, spark) as site:
        for turn, workload in product(range(rounds), vendor_workloads(rows)):
            workload.build(site.databases.publisher)
            # What was committed without waiting is on the disk then, and only so is it read.
            execute(site.databases.publisher, "CHECKPOINT")
            servers.replication.build(workload.name, rows)
            probe_seconds = seconds_of(site.probe_log)
            read = timed(site.run_log_reader, probe_seconds)
            reference, delivered = _drain_both(servers, site, replica_first=turn % 2 == 0)
            _check_equal(servers)
            for mode, delivery in delivered.items():
                name = f"MariaDB, {method}: {workload.name}"
                measured += [
                    Measurement(name, mode, Phase.DISTRIBUTION, rows, delivery, reference),
                    Measurement(name, mode, Phase.WHOLE, rows, read.then(delivery), reference),
                ]
    return measured


def _drain_both(servers: Servers, site: Site, *, replica_first: bool) -> tuple[float, dict[Apply, TimedJob]]:
    """Return the seconds of MariaDB's own replication, and our deliveries by mode."""
    reference = servers.replication.drain() if replica_first else None
    delivered = {mode: _delivered(site, mode.value) for mode in servers.subscribers}
    return servers.replication.drain() if reference is None else reference, delivered


def _delivered(site: Site, subscription: str) -> TimedJob:
    probe_seconds = seconds_of(partial(site.probe_batches, subscription))
    return timed(partial(site.run_distribution, subscription), probe_seconds)


@contextmanager
def _site(servers: Servers, method: Mapping[str, str], store: Path, spark: SparkSession) -> Iterator[Site]:
    """Yield a Publisher with a table of Vendor, and the same table at every MariaDB, as setup makes it."""
    subscribers = {mode: server.connection(DATABASE, mode.value) for mode, server in servers.subscribers.items()}
    publisher, distribution = (servers.postgres.connection(name) for name in ("publisher", "distribution"))
    for end in (publisher, distribution):
        servers.postgres.create_database(str(end.database))
    execute(publisher, VENDOR)
    for server in servers.subscribers.values():
        server.execute(f"DROP DATABASE IF EXISTS {DATABASE}", f"CREATE DATABASE {DATABASE}")
    site = Site(
        Databases(publisher, next(iter(subscribers.values())), distribution),
        store,
        [{"source": "public.vendor", "destination": f"{DATABASE}.vendor", **method}],
        spark,
        [{"name": mode.value, "connection": mode.value, "apply": mode.value} for mode in subscribers],
    )
    site.connections |= {mode.value: it for mode, it in subscribers.items()}
    try:
        site.set_up()
        first = next(iter(servers.subscribers.values()))
        servers.replication.begin(str(first.execute("SHOW CREATE TABLE vendor", database=DATABASE)[0][1]))
        yield site
    finally:
        for end in (publisher, distribution):
            servers.postgres.drop_database(str(end.database))


def _check_equal(servers: Servers) -> None:
    ends = [servers.replication.replica, *servers.subscribers.values()]
    checksums = {str(end.execute("CHECKSUM TABLE vendor", database=DATABASE)) for end in ends}
    if len(checksums) != 1:
        raise AssertionError(f"the Subscribers' tables differ from the replica's: {checksums}")


if __name__ == "__main__":
    main()
