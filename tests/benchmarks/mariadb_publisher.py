"""MariaDB or MySQL as a Publisher: the log reader, beside the server's own program that reads the same log from the
same server into nothing."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.bounds import end_in_order
from benchmarks.drains import seconds_of, timed
from benchmarks.report import show
from benchmarks.results import Measurement, Phase, Results, medians
from benchmarks.session import keep_warm, spark_session
from benchmarks.workloads import TRANSACTION_ROWS
from support.databases import create_databases
from support.embedded_postgres import PostgresServer, ServerSettings
from support.mariadb import MariaDbServer
from support.progress import step
from support.publishers import SERVERS, publishing_mariadb
from support.site import Site
from support.unpacked_servers import UnpackedMySqlServer
from tranrepl.settings.publication import Apply

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DATABASE = "purchasing"
_OPTIONS = ("--innodb-buffer-pool-size=512M", "--sync-binlog=0", "--innodb-flush-log-at-trx-commit=0")
TABLE = """CREATE TABLE vendor (vendor_id int PRIMARY KEY, account_number varchar(15) NOT NULL,
    name varchar(50) NOT NULL, credit_rating smallint NOT NULL, preferred_vendor_status tinyint NOT NULL,
    active_flag tinyint NOT NULL, purchasing_web_service_url varchar(1024), modified_date datetime NOT NULL)"""
NUMBERS = "CREATE TABLE number (n int PRIMARY KEY) AS WITH RECURSIVE s(n) AS ({}) SELECT n FROM s".format(
    f"SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < {TRANSACTION_ROWS - 1}"
)
_INSERT = """INSERT INTO vendor SELECT n, concat('ACCT', n), concat('Name of vendor ', n), n % 5 + 1, n % 2, 1,
    CASE WHEN n % 3 = 0 THEN concat('http://example.com/vendor/', n) END, timestamp('2026-01-01') + INTERVAL n SECOND
    FROM (SELECT at + n AS n FROM number WHERE n < size) AS numbers"""
_UPDATE = """UPDATE vendor SET name = concat(name, '.'), credit_rating = credit_rating % 5 + 1
    WHERE vendor_id BETWEEN at AND at + size - 1"""
FILL = f"""CREATE PROCEDURE fill(last int, size int, updates int) BEGIN
    DECLARE at int DEFAULT 1;
    WHILE at <= last DO
        IF updates THEN {_UPDATE}; ELSE {_INSERT}; END IF;
        SET at = at + size;
    END WHILE;
END"""
_ONE_ROW_SHARE = 5
"""One row of so many is changed in a transaction of its own."""


def main() -> None:
    end_in_order()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mariadb_publisher", description=__doc__)
    parser.add_argument("--server", choices=list(SERVERS), nargs="+", default=["mariadb", "mysql-9.7"])
    parser.add_argument("--rows", type=int, default=500_000, help="rows to insert by 100; a fifth of it one by one")
    parser.add_argument("--rounds", type=int, default=3, help="all so many times; the median counts")
    parser.add_argument("--output", type=Path, default=Path(".bench/mariadb_publisher.json"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tranrepl-bench-") as folder:
        measured = _measured(Path(folder), options.server, options.rows, options.rounds)
        results = Results(medians(measured, None), (), None)
    results.write(options.output)
    show(results, "reference: mariadb-binlog or mysqlbinlog --read-from-remote-server into nothing")


def _measured(home: Path, names: list[str], rows: int, rounds: int) -> list[Measurement]:
    measured: list[Measurement] = []
    with ExitStack() as stack:
        with step("servers and Spark"):
            postgres = stack.enter_context(PostgresServer(ServerSettings(home / "postgres")))
            spark = stack.enter_context(spark_session())
        for name in names:
            with _site(home / name, name, postgres, spark) as (site, server):
                _race(site, server, name, min(rows, 20_000))
                for _ in range(rounds):
                    measured += _race(site, server, name, rows)
    return measured


@contextmanager
def _site(home: Path, name: str, postgres: PostgresServer, spark: SparkSession) -> Iterator[tuple[Site, MariaDbServer]]:
    with publishing_mariadb(home / "server", name, _OPTIONS) as server:
        server.execute(f"CREATE DATABASE {_DATABASE} CHARACTER SET utf8mb4")
        server.execute(TABLE, NUMBERS, FILL, database=_DATABASE)
        ends = replace(create_databases(postgres), publisher=server.connection(_DATABASE, "publisher"))
        article = {"source": f"{_DATABASE}.vendor", "destination": "public.vendor"}
        site = Site(ends, home / "store", [article], spark)
        site.set_up()
        try:
            yield site, server
        finally:
            for end in (ends.subscriber, ends.distribution, replace(ends.subscriber, database="publisher")):
                postgres.drop_database(str(end.database))


def _race(site: Site, server: MariaDbServer, name: str, rows: int) -> list[Measurement]:
    measured = []
    server.execute("DELETE FROM vendor", database=_DATABASE)
    site.read_log().raise_error()
    few = rows // _ONE_ROW_SHARE
    for workload, last, size, updates in (
        (f"insert, {TRANSACTION_ROWS} rows a transaction", rows, TRANSACTION_ROWS, 0),
        (f"update, {TRANSACTION_ROWS} rows a transaction", rows, TRANSACTION_ROWS, 1),
        ("update, one row a transaction", few, 1, 1),
        ("insert, one row a transaction", few, 1, 0),
    ):
        with step(f"{name}: {workload}"):
            if size == 1 and not updates:
                server.execute("DELETE FROM vendor", database=_DATABASE)
                site.read_log().raise_error()
            ((file, offset, *_),) = site.at_publisher(server.end_of_log)
            server.execute(f"CALL fill({last}, {size}, {updates})", database=_DATABASE)
            reference = _program_seconds(server, str(file), int(offset))
            probe_seconds = seconds_of(site.probe_log)
            keep_warm(site.spark)
            read = timed(site.run_log_reader, probe_seconds)
        if reference:
            measured.append(Measurement(f"{name}: {workload}", Apply.AUTO, Phase.LOG_READER, last, read, reference))
    return measured


def _program_seconds(server: MariaDbServer, file: str, offset: int) -> float:
    """Return the seconds that the server's own program takes to read the log from a place on."""
    connection = server.connection(_DATABASE)
    command = [*_program(server), "--read-from-remote-server", "--to-last-log", f"--start-position={offset}"]
    command += [f"--host={connection.host}", f"--port={connection.port}", f"--user={connection.login}", file]
    environment: dict[str, Any] = {**os.environ, "MYSQL_PWD": connection.password}
    started = time.perf_counter()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def _program(server: MariaDbServer) -> list[str]:
    if isinstance(server, UnpackedMySqlServer):
        return [*server.program("bin/mysqlbinlog"), "--ssl-mode=DISABLED"]
    found = shutil.which("mariadb-binlog")
    if found is None:
        raise SystemExit("mariadb-binlog is not installed; on Debian: apt-get install mariadb-client")
    return [found, "--no-defaults", "--skip-ssl"]


if __name__ == "__main__":
    main()
