"""Backlogs to drain: what the Publisher did while nobody read its log."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from support.site import execute
from tranrepl.connections import Connection

TRANSACTION_ROWS = 100
FILTER = "credit_rating > 1"
FILTERED_TABLES = 200
WIDE_COLUMNS = 40
HOT_ROWS = 10
_SCATTERING = 7919
"""A prime: rows that are so far apart are different ones."""
MEMORY_FACTOR = 5
MEMORY = "memory: "
"""What the names of workloads begin with that are there for their peak memory."""

_VENDOR_COLUMNS = """vendor_id int PRIMARY KEY, account_number varchar(15) NOT NULL,
    name varchar(50) NOT NULL, credit_rating smallint NOT NULL, preferred_vendor_status boolean NOT NULL,
    active_flag boolean NOT NULL, purchasing_web_service_url varchar(1024), modified_date timestamp NOT NULL"""
VENDOR = f"CREATE TABLE vendor ({_VENDOR_COLUMNS})"
VENDOR_VALUES = """n, 'ACCT' || n, 'Name of vendor ' || n, n % 5 + 1, n % 2 = 0, true,
    CASE WHEN n % 3 = 0 THEN 'http://example.com/vendor/' || n END, timestamp '2026-01-01' + n * interval '1 s'"""
MARKER = "CREATE TABLE marker (id bigint PRIMARY KEY)"
"""A backlog's last change is a row of it."""
_NO_WAITING = "SET synchronous_commit = off"
"""Nobody measures how fast a backlog is made; a CHECKPOINT comes before it is read."""
_PGBENCH_TABLES = ("pgbench_accounts", "pgbench_branches", "pgbench_tellers", "pgbench_history")
_INSERT = f"INSERT INTO vendor SELECT {VENDOR_VALUES} FROM generate_series(top + first, top + last) n"

Act = Callable[[Connection], object]


@dataclass(frozen=True, slots=True)
class Workload:
    """`build` makes a backlog at the Publisher."""

    name: str
    build: Act


@dataclass(frozen=True, slots=True)
class Scenario:
    """Workloads that follow one another on the same tables. Both ends begin with what `create` makes."""

    create: Act
    tables: tuple[str, ...]
    workloads: tuple[Workload, ...]
    row_filter: str | None = None
    """The filter of every table but the marker."""
    subscribers: int = 1

    @property
    def published(self) -> Mapping[str, str | None]:
        """Every published table and its row filter."""
        return {**dict.fromkeys(self.tables, self.row_filter), "marker": None}


@dataclass(frozen=True, slots=True)
class Size:
    """How much is changed; `scale` is pgbench's."""

    rows: int
    transactions: int
    scale: int


def scenarios(size: Size, bindir: Path) -> list[Scenario]:
    """Return the scenarios in the order of the report."""
    rows = size.rows
    return [
        Scenario(
            partial(_create, VENDOR),
            ("vendor",),
            vendor_workloads(rows),
        ),
        Scenario(
            partial(_create_pgbench, bindir, size.scale),
            _PGBENCH_TABLES,
            (Workload("TPC-B", partial(_tpc_b, bindir, size.transactions)),),
        ),
        Scenario(
            partial(_create_with_rows, _hot_table_rows(rows)),
            ("vendor",),
            (Workload("hot rows", partial(_hot_rows, rows)),),
        ),
        Scenario(partial(_create_wide, rows // 4), ("wide",), (Workload("wide rows", partial(_wide_rows, rows // 4)),)),
        Scenario(
            partial(_create, VENDOR),
            ("vendor",),
            (Workload("one transaction", partial(insert_in_one_transaction, rows)),),
        ),
        Scenario(partial(_create_with_rows, rows), ("vendor",), (Workload("mixed 30/60/10", partial(_mixed, rows)),)),
        Scenario(
            create_filtered,
            tuple(filtered_table(number) for number in range(FILTERED_TABLES)),
            (Workload(f"{FILTERED_TABLES} articles, filters", partial(filtered, rows)),),
            row_filter=FILTER,
        ),
        Scenario(
            partial(_create_vendor_and_pgbench, bindir, size.scale),
            ("vendor", *_PGBENCH_TABLES),
            (
                Workload("four Subscribers: insert", partial(_insert, rows)),
                Workload("four Subscribers: TPC-B", partial(_tpc_b, bindir, size.transactions)),
            ),
            subscribers=4,
        ),
    ]


def vendor_workloads(rows: int) -> tuple[Workload, ...]:
    """Return workloads that insert, update and delete each row."""
    return (
        Workload("insert", partial(_insert, rows)),
        Workload("update", partial(_update, rows)),
        Workload("delete", partial(_delete, rows)),
    )


def memory_scenario(size: Size) -> Scenario:
    """Return the same backlogs, once and `MEMORY_FACTOR` times as long: memory must not grow with them."""
    most = MEMORY_FACTOR * size.rows
    return Scenario(
        partial(_create, VENDOR),
        ("vendor",),
        (
            Workload(f"{MEMORY}insert", partial(_insert, size.rows)),
            Workload(f"{MEMORY}insert x {MEMORY_FACTOR}", partial(_insert, most)),
            Workload(f"{MEMORY}one transaction", partial(insert_in_one_transaction, size.rows)),
            Workload(f"{MEMORY}one transaction x {MEMORY_FACTOR}", partial(insert_in_one_transaction, most)),
        ),
    )


def vendor_scenario(rows: int) -> Scenario:
    """Return a scenario with one backlog of inserted Vendor rows."""
    return Scenario(partial(_create, VENDOR), ("vendor",), (Workload("insert", partial(_insert, rows)),))


def _create(table: str, end: Connection) -> None:
    execute(end, table, MARKER)


def _create_with_rows(rows: int, end: Connection) -> None:
    _create(VENDOR, end)
    execute(end, f"INSERT INTO vendor SELECT {VENDOR_VALUES} FROM generate_series(1, {rows}) n")


def _create_wide(rows: int, end: Connection) -> None:
    columns = ", ".join(f"c{number} varchar(20)" for number in range(2, WIDE_COLUMNS + 1))
    _create(f"CREATE TABLE wide (id int PRIMARY KEY, {columns})", end)
    execute(end, f"INSERT INTO wide SELECT {_wide_values()} FROM generate_series(1, {rows}) n")


def _wide_values() -> str:
    return ", ".join(["n", *(f"'value ' || n % {number}" for number in range(2, WIDE_COLUMNS + 1))])


def filtered_table(number: int) -> str:
    return f"vendor_{number}"


def create_filtered(end: Connection) -> None:
    """Create every table with a hundred rows that pass the filter."""
    _create("CREATE SEQUENCE vendor_ids START 1001", end)
    statements = [
        f"CREATE TABLE {table} ({_VENDOR_COLUMNS}); "
        f"INSERT INTO {table} SELECT {VENDOR_VALUES} FROM generate_series(1, 100) n; "
        f"UPDATE {table} SET credit_rating = vendor_id % 4 + 2"
        for table in map(filtered_table, range(FILTERED_TABLES))
    ]
    execute(end, *statements)


def _create_pgbench(bindir: Path, scale: int, end: Connection) -> None:
    execute(end, MARKER)
    _pgbench(bindir, end, "-i", "-q", "-s", str(scale))
    execute(end, "ALTER TABLE pgbench_history ADD COLUMN hid bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY")


def _create_vendor_and_pgbench(bindir: Path, scale: int, end: Connection) -> None:
    execute(end, VENDOR)
    _create_pgbench(bindir, scale, end)


def _insert(rows: int, publisher: Connection) -> None:
    _in_transactions(publisher, rows, _INSERT)


def _update(rows: int, publisher: Connection) -> None:
    _in_transactions(
        publisher,
        rows,
        "UPDATE vendor SET name = name || '.', credit_rating = credit_rating % 5 + 1 "
        "WHERE vendor_id BETWEEN first AND last",
    )


def _delete(rows: int, publisher: Connection) -> None:
    _in_transactions(publisher, rows, "DELETE FROM vendor WHERE vendor_id BETWEEN first AND last")


def insert_in_one_transaction(rows: int, publisher: Connection) -> None:
    execute(
        publisher,
        f"INSERT INTO vendor SELECT {VENDOR_VALUES} FROM generate_series("
        f"(SELECT coalesce(max(vendor_id), 0) + 1 FROM vendor), "
        f"(SELECT coalesce(max(vendor_id), 0) + {rows} FROM vendor)) n",
    )


def _hot_table_rows(rows: int) -> int:
    return max(1000, rows // 10)


def _hot_rows(rows: int, publisher: Connection) -> None:
    """Make half of a transaction's changes on the same `HOT_ROWS` rows, the others at random."""
    half = TRANSACTION_ROWS // 2
    others = _hot_table_rows(rows) - HOT_ROWS
    _in_transactions(
        publisher,
        rows,
        f"""FOR again IN 1..{half // HOT_ROWS} LOOP
            UPDATE vendor SET name = 'Name ' || block || ' ' || again, credit_rating = credit_rating % 5 + 1
                WHERE vendor_id <= {HOT_ROWS};
        END LOOP;
        UPDATE vendor SET name = 'Name ' || block, credit_rating = credit_rating % 5 + 1 WHERE vendor_id = ANY (
            ARRAY(SELECT {HOT_ROWS + 1} + (start + number * {_SCATTERING}) % {others}
                FROM (SELECT floor(random() * {others})::int AS start) s, generate_series(1, {half}) number))""",
    )


def _wide_rows(rows: int, publisher: Connection) -> None:
    """Insert rows, and update two columns in as many rows that were there."""
    half = TRANSACTION_ROWS // 2
    others = max(1, rows - half)
    _in_transactions(
        publisher,
        rows,
        f"""INSERT INTO wide SELECT {_wide_values()}
            FROM generate_series(top + block * {half} + 1, top + (block + 1) * {half}) n;
        UPDATE wide SET c7 = 'other ' || block, c20 = 'other ' || id % 100
            WHERE id BETWEEN 1 + block * {half} % {others} AND {half} + block * {half} % {others}""",
        table="wide",
        key="id",
    )


def _mixed(rows: int, publisher: Connection) -> None:
    """Insert 30 rows, update 60 others and delete the 10 oldest in each transaction."""
    updated = f"low + block * 10 + 10 + block * 60 % {rows // 2}"
    _in_transactions(
        publisher,
        rows,
        f"""INSERT INTO vendor SELECT {VENDOR_VALUES}
            FROM generate_series(top + block * 30 + 1, top + block * 30 + 30) n;
        DELETE FROM vendor WHERE vendor_id BETWEEN low + block * 10 AND low + block * 10 + 9;
        UPDATE vendor SET name = 'Name ' || block, credit_rating = credit_rating % 5 + 1
            WHERE vendor_id BETWEEN {updated} AND {updated} + 59""",
    )


def filtered(rows: int, publisher: Connection) -> None:
    """Insert rows, of which one in five does not pass, and update rows, of which two in five cross the filter."""
    _in_transactions(
        publisher,
        rows,
        f"""EXECUTE format($q$INSERT INTO vendor_%s SELECT {VENDOR_VALUES.replace("%", "%%")}
            FROM (SELECT nextval('vendor_ids') AS n FROM generate_series(1, 60))$q$, block % {FILTERED_TABLES});
        EXECUTE format($q$UPDATE vendor_%s SET credit_rating = credit_rating %% 5 + 1
            WHERE vendor_id BETWEEN 1 + 40 * (%s %% 2) AND 40 + 40 * (%s %% 2)$q$,
            block % {FILTERED_TABLES}, block / {FILTERED_TABLES}, block / {FILTERED_TABLES})""",
        table=filtered_table(0),
    )


def _tpc_b(bindir: Path, transactions: int, publisher: Connection) -> None:
    _pgbench(bindir, publisher, "-n", "-M", "prepared", "-c", "2", "-j", "1", "-t", str(transactions // 2))


def _in_transactions(
    publisher: Connection, rows: int, body: str, table: str = "vendor", key: str = "vendor_id"
) -> None:
    """Commit `body` for every `TRANSACTION_ROWS` rows. It sees `first` and `last` of `block`, and the table's highest
    and lowest key before it.
    """
    execute(
        publisher,
        _NO_WAITING,
        f"""DO $$
DECLARE first int; last int; top int := coalesce((SELECT max({key}) FROM {table}), 0);
    low int := coalesce((SELECT min({key}) FROM {table}), 0);
BEGIN
  FOR block IN 0..{rows // TRANSACTION_ROWS} - 1 LOOP
    first := block * {TRANSACTION_ROWS} + 1; last := first + {TRANSACTION_ROWS} - 1;
    {body};
    COMMIT;
  END LOOP;
END $$""",
    )


def _pgbench(bindir: Path, connection: Connection, *arguments: str) -> None:
    parameters = connection.libpq_parameters("pgbench")
    environment = {"PGPASSWORD": parameters["password"], "PGOPTIONS": "-c synchronous_commit=off"}
    where = ["-h", parameters["host"], "-p", parameters["port"], "-U", parameters["user"], parameters["dbname"]]
    subprocess.run([str(bindir / "pgbench"), *arguments, *where], env=environment, check=True, capture_output=True)
