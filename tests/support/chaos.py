"""What is disturbed at random: for how long, by which choices, under which load.

`TRANREPL_CHAOS_SECONDS` says how long; `TRANREPL_CHAOS_SEED` repeats the choices of another run, though not its timing.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import SystemRandom

from support.embedded_postgres import PostgresServer
from tranrepl.connections import Connection

SECONDS = float(os.environ.get("TRANREPL_CHAOS_SECONDS", "20"))
SEED = int(os.environ.get("TRANREPL_CHAOS_SEED", SystemRandom().randrange(10**6)))
_RATE = 60
"""Transactions a second."""

_LOAD = r"""
\set first random(1, 300)
\set second random(1, 300)
\set third random(1, 300)
BEGIN;
INSERT INTO item VALUES (:first, 1, 'chaos') ON CONFLICT (id) DO UPDATE SET xact = item.xact + 1;
UPDATE item SET xact = xact + 1 WHERE id = :second;
DELETE FROM item WHERE id = :third AND xact % 3 = 0;
END;
"""

END_SESSIONS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND application_name LIKE 'tranrepl%'"
)
"""As an administrator would, or a firewall."""


def make_load(server: PostgresServer, publisher: Connection, folder: Path, seconds: float = SECONDS) -> None:
    """Run clients whose transactions overlap; those that deadlock are retried. Raises CalledProcessError where the
    server ends their sessions."""
    script = folder / "load.sql"
    script.write_text(_LOAD, encoding="utf-8")
    server.run(
        "pgbench",
        *("--no-vacuum", "--client=4", "--max-tries=100", f"--rate={_RATE}", f"--time={seconds:.0f}"),
        *(f"--random-seed={SEED}", f"--file={script}"),
        database=publisher.database or "",
    )
