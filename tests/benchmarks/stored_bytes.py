"""Bytes stored for each change, by call syntax: an 8-column and a 40-column table, one column changed a row.

Below Spark: the log reader's own stage, and Parquet with the store's compression.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from benchmarks.workloads import VENDOR
from support.databases import create_databases
from support.embedded_postgres import PostgresServer, ServerSettings
from support.in_process import read_commands
from support.site import Site

ROWS = 10_000
_WIDE_COLUMNS = ", ".join(f"c{at} varchar(20)" for at in range(2, 41))
_WIDE_VALUES = ", ".join(f"'value ' || n % {at}" for at in range(2, 41))
_VENDOR_VALUES = (
    "'ACCT' || n, 'Name of vendor ' || n, n % 5 + 1, n % 2 = 0, true, NULL, timestamp '2026-01-01' + n * interval '1 s'"
)
_NUMBERS = f"FROM generate_series(1, {ROWS}) n"
TABLES = {
    "vendor": (
        VENDOR,
        f"INSERT INTO vendor SELECT n, {_VENDOR_VALUES} {_NUMBERS}",
        "UPDATE vendor SET credit_rating = credit_rating % 5 + 1",
    ),
    "wide": (
        f"CREATE TABLE wide (id int PRIMARY KEY, {_WIDE_COLUMNS})",
        f"INSERT INTO wide SELECT n, {_WIDE_VALUES} {_NUMBERS}",
        "UPDATE wide SET c7 = c7 || '.'",
    ),
}
SYNTAXES = (
    ("ins_cmd", "CALL"),
    *(("upd_cmd", it) for it in ("CALL", "SCALL", "MCALL", "XCALL")),
    *(("del_cmd", it) for it in ("CALL", "XCALL")),
)
_VERBS = {"ins_cmd": "INSERT", "upd_cmd": "UPDATE", "del_cmd": "DELETE"}


def main() -> None:
    shown = Table("", *(f"{table}: {what}" for table in TABLES for what in ("stored", "plain")))
    with (
        tempfile.TemporaryDirectory(prefix="tranrepl-bytes-") as folder,
        PostgresServer(ServerSettings(Path(folder) / "server")) as server,
    ):
        site = Site(create_databases(server), Path(folder) / "store", [f"public.{table}" for table in TABLES])
        site.at_publisher(*(create for create, *_ in TABLES.values()))
        for option, syntax in SYNTAXES:
            figures = [it for table in TABLES for it in _measure(site, table, option, syntax)]
            shown.add_row(f"{syntax} of {_VERBS[option]}", *(f"{it:.1f}" for it in figures))
    Console().print(shown)


def _measure(site: Site, table: str, option: str, syntax: str) -> tuple[float, float]:
    """Return the bytes of a command, compressed and not."""
    article = {"source": f"public.{table}", option: syntax}
    at = Site(site.databases, Path(site.publication.distributor.store), [article])
    at.set_up()
    _, insert, update = TABLES[table]
    work = {"ins_cmd": insert, "upd_cmd": update, "del_cmd": f"DELETE FROM {table}"}
    if option != "ins_cmd":
        at.at_publisher(insert)
        read_commands(at)
    at.at_publisher(work[option])
    commands = read_commands(at).commands
    if option != "del_cmd":
        at.at_publisher(f"DELETE FROM {table}")
        read_commands(at)
    if len(commands) != ROWS:
        raise AssertionError(f"{len(commands)} commands, {ROWS} were expected")
    return _stored(commands) / ROWS, _plain(commands) / ROWS


def _stored(commands: pa.Table) -> int:
    file = io.BytesIO()
    pq.write_table(commands, file, compression="zstd", use_dictionary=False)
    return file.tell()


def _plain(commands: pa.Table) -> int:
    """Return the bytes of images and mask."""
    lengths = (pc.sum(pc.binary_length(commands[it])).as_py() or 0 for it in ("before", "after", "changed"))
    return sum(lengths)


if __name__ == "__main__":
    main()
