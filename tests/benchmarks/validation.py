"""`python -m benchmarks.validation`: comparing a table that is equal at both ends, beside `count(*)` at both ends.

Both ends are databases of one server. Start-up of Spark is left out: the session is warm. The median of the rounds
counts; `compare` is what the validation's own statements take, `whole` all of it, with the snapshot, the log and the
delivery before.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.session import spark_session
from support.databases import Databases, create_databases
from support.embedded_postgres import PostgresServer, ServerSettings
from support.site import Site, execute

console = Console()
_SERVER_OPTIONS = {"shared_buffers": "512MB", "max_wal_size": "8GB"}
_TABLE = """
CREATE TABLE vendor (
    vendor_id integer PRIMARY KEY, account_number text NOT NULL, name text NOT NULL, credit_rating integer,
    active boolean, rate numeric(9, 2), changed timestamp, note text
)
"""
_ROWS = """
INSERT INTO vendor SELECT n, 'ACC' || n, 'Vendor number ' || n, n % 5, n % 2 = 0, n / 7.0,
    timestamp '2024-01-01' + n * interval '1 s', CASE WHEN n % 3 > 0 THEN 'a note of some length' END
FROM generate_series(1, {}) n
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.validation", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tranrepl-bench-") as folder:
        _measure(Path(folder), options.rows, options.rounds)


def _measure(folder: Path, rows: int, rounds: int) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(PostgresServer(ServerSettings(folder / "server", options=_SERVER_OPTIONS)))
        spark = stack.enter_context(spark_session())
        databases = create_databases(server)
        for end in (databases.publisher, databases.subscriber):
            with console.status(f"{rows:,} rows into {end.database}"):
                execute(end, _TABLE, _ROWS.format(rows), "VACUUM ANALYZE vendor", "CHECKPOINT")
        site = Site(databases, folder / "store", ["public.vendor"], spark)
        site.set_up()
        site.validate().raise_error()
        measured = [_round(site, databases) for _ in range(rounds)]
    _show(rows, [statistics.median(column) for column in zip(*measured, strict=True)])


def _round(site: Site, databases: Databases) -> tuple[float, float, float, float]:
    """Return the seconds of both counts one after the other, of the comparison, of the whole validation and of a count
    of rows.
    """
    started = time.perf_counter()
    for end in (databases.publisher, databases.subscriber):
        execute(end, "SELECT count(*) FROM vendor")
    counted = time.perf_counter() - started
    result, only_counted = site.validate(), site.validate(rowcount_only=True)
    result.raise_error()
    only_counted.raise_error()
    return counted, result.phases["compare"], result.seconds, only_counted.phases["compare"]


def _show(rows: int, medians: list[float]) -> None:
    counted = medians[0]
    table = Table(f"{rows:,} rows")
    for heading in ("seconds", "times count(*)"):
        table.add_column(heading, justify="right")
    names = ("count(*) at both ends", "validate: compare", "validate: whole", "validate --rowcount-only: compare")
    for name, seconds in zip(names, medians, strict=True):
        table.add_row(name, f"{seconds:.2f}", f"{seconds / counted:.1f}")
    console.print(table)


if __name__ == "__main__":
    main()
