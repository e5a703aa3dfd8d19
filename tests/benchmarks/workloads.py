"""Backlogs to drain: what the Publisher did while nobody read its log."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sandbox.site import execute
from tranrepl.connections import Connection

VENDOR = """CREATE TABLE vendor (vendor_id int PRIMARY KEY, account_number varchar(15) NOT NULL,
    name varchar(50) NOT NULL, credit_rating smallint NOT NULL, preferred_vendor_status boolean NOT NULL,
    active_flag boolean NOT NULL, purchasing_web_service_url varchar(1024), modified_date timestamp NOT NULL)"""
MARKER = "CREATE TABLE marker (id bigint PRIMARY KEY)"
TRANSACTION_ROWS = 100
PGBENCH_TABLES = ("pgbench_accounts", "pgbench_branches", "pgbench_tellers", "pgbench_history")

# Each procedure commits after every TRANSACTION_ROWS rows.
_PROCEDURES = {
    "insert_vendors": """INSERT INTO vendor SELECT n, 'ACCT' || n, 'Name of vendor ' || n, n % 5 + 1, n % 2 = 0, true,
        CASE WHEN n % 3 = 0 THEN 'http://example.com/vendor/' || n END, timestamp '2026-01-01' + n * interval '1 s'
        FROM generate_series(first, last) n""",
    "update_vendors": """UPDATE vendor SET name = name || '.', credit_rating = credit_rating % 5 + 1
        WHERE vendor_id BETWEEN first AND last""",
    "delete_vendors": "DELETE FROM vendor WHERE vendor_id BETWEEN first AND last",
}


@dataclass(frozen=True, slots=True)
class Workload:
    """`build` makes a backlog of about `changes` changes at the Publisher."""

    name: str
    changes: int
    build: Callable[[], object]


def create_tables(publisher: Connection, bindir: Path, scale: int) -> None:
    """Vendor, the marker, pgbench's tables with their rows, and the procedures that make backlogs."""
    execute(publisher, VENDOR, MARKER, *(_procedure(name, body) for name, body in _PROCEDURES.items()))
    _pgbench(publisher, bindir, "-i", "-q", "-s", str(scale))
    execute(
        publisher,
        "ALTER TABLE pgbench_history ADD COLUMN hid bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        "TRUNCATE pgbench_history",
    )


def workloads(publisher: Connection, bindir: Path, rows: int, transactions: int) -> list[Workload]:
    """In this order: rows are inserted, updated and deleted again."""

    def call(procedure: str) -> Callable[[], object]:
        return lambda: execute(publisher, f"CALL {procedure}({rows})")

    def tpc_b() -> None:
        _pgbench(publisher, bindir, "-n", "-c", "2", "-j", "1", "-t", str(transactions // 2))

    return [
        Workload("insert", rows, call("insert_vendors")),
        Workload("update", rows, call("update_vendors")),
        Workload("delete", rows, call("delete_vendors")),
        Workload("TPC-B", 4 * transactions, tpc_b),
    ]


def _procedure(name: str, body: str) -> str:
    return f"""CREATE PROCEDURE {name}(n_rows int) LANGUAGE plpgsql AS $$
DECLARE first int; last int;
BEGIN
  FOR block IN 0..n_rows / {TRANSACTION_ROWS} - 1 LOOP
    first := block * {TRANSACTION_ROWS} + 1; last := first + {TRANSACTION_ROWS} - 1;
    {body};
    COMMIT;
  END LOOP;
END $$"""


def _pgbench(connection: Connection, bindir: Path, *arguments: str) -> None:
    parameters = connection.libpq_parameters("pgbench")
    environment = {"PGPASSWORD": parameters["password"]}
    where = ["-h", parameters["host"], "-p", parameters["port"], "-U", parameters["user"], parameters["dbname"]]
    subprocess.run([str(bindir / "pgbench"), *arguments, *where], env=environment, check=True, capture_output=True)
