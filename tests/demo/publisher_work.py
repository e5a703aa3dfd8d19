"""What happens at the demo's Publisher: a purchasing department, and pgbench's bank."""

from __future__ import annotations

import time
from random import Random

from demo import purchasing
from support.embedded_postgres import PostgresServer
from support.progress import counted_step, step

_SEED = 20_240_102
_SCALE = "--scale=1"


def create_tables(server: PostgresServer) -> None:
    """Create empty tables with their keys."""
    server.run("pgbench", "--initialize", "--init-steps=dtp", _SCALE, "--quiet", database="publisher")
    with server.connect("publisher") as session:
        session.execute(purchasing.SCHEMA)
        # pgbench gives its history no key, and an article needs one.
        session.execute(
            "ALTER TABLE pgbench_history ADD COLUMN history_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
        )


def insert_first_rows(server: PostgresServer) -> None:
    """Insert vendors and orders by small transactions, and pgbench's 100,000 accounts by one."""
    with server.connect("publisher") as session:
        rows = purchasing.opening_rows(session, Random(_SEED))
        counted_step("Publisher: vendors and their first orders", purchasing.OPENING_TRANSACTIONS, rows)
    with step("Publisher: pgbench's accounts"):
        server.run("pgbench", "--initialize", "--init-steps=g", _SCALE, "--quiet", database="publisher")


def purchase(server: PostgresServer, count: int, seed: int) -> None:
    """Commit transactions of the purchasing department, the same for the same seed and tables."""
    with server.connect("publisher") as session:
        work = purchasing.transactions(session, Random(seed), count)
        counted_step(f"Publisher: {count:,} transactions of inserts, updates, key changes and deletes", count, work)


def run_tpcb(server: PostgresServer, count: int, seed: int) -> None:
    """Run pgbench's TPC-B by four clients; each transaction updates three rows and inserts one."""
    with step(f"Publisher: {count:,} transactions of pgbench's TPC-B"):
        _tpcb(server, count, seed)


def work_on(server: PostgresServer) -> None:
    """Run a few transactions of TPC-B and show nothing: what goes on at the Publisher while somebody looks."""
    _tpcb(server, 40, seed=time.time_ns() % 2**31)


def _tpcb(server: PostgresServer, count: int, seed: int) -> None:
    server.run(
        "pgbench",
        "--no-vacuum",
        "--client=4",
        f"--transactions={count // 4}",
        f"--random-seed={seed}",
        database="publisher",
    )
