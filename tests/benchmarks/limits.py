"""What the machine itself can do: COPY, and set-based statements from a staging table, on Vendor rows."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass

import psycopg

from benchmarks.workloads import VENDOR, VENDOR_VALUES
from tranrepl.connections import Connection

Session = psycopg.Connection[tuple[object, ...]]

_CREATE = (
    VENDOR,
    "CREATE UNLOGGED TABLE staging (LIKE vendor)",
    "CREATE UNLOGGED TABLE source (LIKE vendor)",
)
_COPY = "COPY {} FROM STDIN"
_STATEMENTS = {
    "INSERT … SELECT from staging": "INSERT INTO vendor SELECT * FROM staging",
    "UPDATE … FROM staging": "UPDATE vendor v SET name = s.name || '.', credit_rating = s.credit_rating % 5 + 1 "
    "FROM staging s WHERE s.vendor_id = v.vendor_id",
    "DELETE … USING staging": "DELETE FROM vendor v USING staging s WHERE s.vendor_id = v.vendor_id",
}


@dataclass(frozen=True, slots=True)
class Limit:
    """A figure that no way of applying can pass."""

    name: str
    rows: int
    rows_per_s: float


def measure_limits(database: Connection, rows: int, rounds: int) -> list[Limit]:
    """Return the median of each limit, measured in an empty database."""
    with psycopg.connect(**database.libpq_parameters("benchmark"), autocommit=True) as session:  # type: ignore[arg-type]
        for statement in _CREATE:
            session.execute(statement)
        session.execute(f"INSERT INTO source SELECT {VENDOR_VALUES} FROM generate_series(1, {rows}) n".encode())
        with session.cursor().copy("COPY source TO STDOUT") as copy:
            lines = [bytes(chunk) for chunk in copy]
        measured = [_round(session, _joined(lines)) for _ in range(rounds)]
    return [Limit(name, rows, rows / statistics.median(it[name] for it in measured)) for name in measured[0]]


def _round(session: Session, data: list[bytes]) -> dict[str, float]:
    session.execute("TRUNCATE vendor, staging")
    session.execute("CHECKPOINT")
    seconds = {"COPY into the table": _copy(session, "vendor", data)}
    session.execute("TRUNCATE vendor")
    seconds["COPY into an unlogged staging table"] = _copy(session, "staging", data)
    session.execute("ANALYZE staging")
    for name, statement in _STATEMENTS.items():
        session.execute("CHECKPOINT")
        seconds[name] = _timed(session, statement)
    return seconds


def _joined(chunks: Iterable[bytes], size: int = 256 * 1024) -> list[bytes]:
    """Join chunks into pieces of about that many bytes: COPY gives its rows one by one."""
    whole = b"".join(chunks)
    return [whole[at : at + size] for at in range(0, len(whole), size)]


def _copy(session: Session, table: str, data: list[bytes]) -> float:
    started = time.perf_counter()
    with session.cursor().copy(_COPY.format(table).encode()) as copy:
        for piece in data:
            copy.write(piece)
    return time.perf_counter() - started


def _timed(session: Session, statement: str) -> float:
    started = time.perf_counter()
    session.execute(statement.encode())
    return time.perf_counter() - started
