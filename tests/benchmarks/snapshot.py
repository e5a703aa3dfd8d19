"""The initial snapshot beside PostgreSQL's own initial copy and beside `pg_dump | psql`: one large table, and many.

All three end with the same rows under a primary key. Start-up of Spark is left out: all of it is warm.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from psycopg import conninfo, sql
from rich.console import Console
from rich.table import Table

from benchmarks.session import keep_warm, spark_session
from benchmarks.workloads import VENDOR
from support.databases import Databases
from support.embedded_postgres import PostgresServer, ServerSettings
from support.site import Site, execute
from tranrepl.connections import Connection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

console = Console()
_SERVER_OPTIONS = {"shared_buffers": "512MB", "max_wal_size": "8GB", "max_worker_processes": "16"}
_REFERENCE = "reference"
_POLL_SECONDS = 0.05
_ROWS = """INSERT INTO {} SELECT n, 'ACCT' || n, 'Name of vendor ' || n, n % 5 + 1, n % 2 = 0, true,
    CASE WHEN n % 3 = 0 THEN 'http://example.com/vendor/' || n END, timestamp '2026-01-01' + n * interval '1 s'
    FROM generate_series(1, {}) n"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.snapshot", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, help="of the large table, and of the many together")
    parser.add_argument("--tables", type=int, default=50, help="how many the many are")
    options = parser.parse_args()
    shown = Table("", "tables", "rows", "ours, s", "initial copy, s", "pg_dump | psql, s", "worker's memory, MB")
    with tempfile.TemporaryDirectory(prefix="tranrepl-bench-") as folder, spark_session() as spark:
        for name, tables in (("one table", 1), ("many tables", options.tables)):
            home = Path(folder) / name.replace(" ", "_")
            with PostgresServer(ServerSettings(home / "server", options=_SERVER_OPTIONS)) as server:
                figures = _measure(spark, server, home, tables, options.rows // tables)
            shown.add_row(name, str(tables), f"{options.rows:,}", *(f"{it:.1f}" for it in figures))
    console.print(shown)


def _measure(spark: SparkSession, server: PostgresServer, home: Path, tables: int, rows: int) -> Sequence[float]:
    names = [f"vendor_{number}" for number in range(tables)]
    with console.status(f"{tables} tables of {rows:,} rows"):
        ends = [_database(server, it) for it in ("publisher", "subscriber", "distribution", _REFERENCE, "restored")]
        publisher, subscriber, distribution, reference, restored = ends
        creates = [VENDOR.replace("TABLE vendor", f"TABLE {name}") for name in names]
        execute(publisher, *creates, *(_ROWS.format(name, rows) for name in names), "VACUUM ANALYZE", "CHECKPOINT")
        execute(reference, *creates)
        site = Site(
            Databases(publisher, subscriber, distribution),
            home / "store",
            [f"public.{name}" for name in names],
            spark,
            [{"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}],
        )
        site.set_up()
        keep_warm(spark)
        ours = _timed(site.take_snapshot)
        built_in = _timed(lambda: _initial_copy(publisher, reference))
        dumped = _timed(lambda: _dump_and_restore(server, publisher, restored, names))
        for end in (subscriber, reference, restored):
            _require_rows(end, names, rows)
    return ours, built_in, dumped, _worker_megabytes()


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _database(server: PostgresServer, name: str) -> Connection:
    server.create_database(name)
    return server.connection(name)


def _initial_copy(publisher: Connection, reference: Connection) -> None:
    """Run the initial copy. Publisher and Subscriber are one cluster, so the subscription's slot is created by hand."""
    ((publication,),) = execute(publisher, "SELECT pubname FROM pg_publication")
    execute(publisher, f"SELECT pg_create_logical_replication_slot('{_REFERENCE}', 'pgoutput')")
    statement = sql.SQL(
        "CREATE SUBSCRIPTION {name} CONNECTION {source} PUBLICATION {publication} "
        "WITH (create_slot = false, slot_name = {slot}, copy_data = true)"
    ).format(
        name=sql.Identifier(_REFERENCE),
        source=sql.Literal(conninfo.make_conninfo("", **publisher.libpq_parameters(_REFERENCE))),
        publication=sql.Identifier(publication),
        slot=sql.Literal(_REFERENCE),
    )
    execute(reference, statement.as_string(None))
    while execute(reference, "SELECT count(*) FROM pg_subscription_rel WHERE srsubstate NOT IN ('r', 's')") != [(0,)]:
        time.sleep(_POLL_SECONDS)
    execute(reference, f"ALTER SUBSCRIPTION {_REFERENCE} DISABLE", f"DROP SUBSCRIPTION {_REFERENCE}")


def _dump_and_restore(
    server: PostgresServer, publisher: Connection, restored: Connection, names: Sequence[str]
) -> None:
    bindir = server.settings.bindir
    chosen = [part for name in names for part in ("--table", f"public.{name}")]
    dump = [str(bindir / "pg_dump"), "--no-publications", *chosen, *_where(publisher)]
    restore = [str(bindir / "psql"), "--quiet", "--no-psqlrc", "--set", "ON_ERROR_STOP=1", *_where(restored)]
    environment = {**os.environ, "PGPASSWORD": publisher.password or ""}
    with subprocess.Popen(dump, stdout=subprocess.PIPE, env=environment) as dumping:
        subprocess.run(restore, stdin=dumping.stdout, stdout=subprocess.DEVNULL, env=environment, check=True)
    if dumping.returncode:
        raise subprocess.CalledProcessError(dumping.returncode, dump)


def _where(connection: Connection) -> list[str]:
    it = connection.libpq_parameters("bench")
    return ["--host", it["host"], "--port", it["port"], "--username", it["user"], "--dbname", it["dbname"]]


def _require_rows(end: Connection, names: Sequence[str], rows: int) -> None:
    for name in names:
        if execute(end, f"SELECT count(*) FROM {name}") != [(rows,)]:
            raise AssertionError(f"{end.database}: {name} has not {rows} rows")


def _worker_megabytes() -> float:
    """Return the most that one of Spark's Python workers has held, in MB."""
    peaks = [0.0]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"pyspark.daemon" in (process / "cmdline").read_bytes():
                lines = (process / "status").read_text(encoding="utf-8").splitlines()
                peaks += [int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")]
        except OSError:
            continue
    return max(peaks)


if __name__ == "__main__":
    main()
