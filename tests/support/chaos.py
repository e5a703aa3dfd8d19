"""What is disturbed at random: for how long, by which choices, under which load.

`TRANREPL_CHAOS_SECONDS` says how long; `TRANREPL_CHAOS_SEED` repeats the choices of another run, though not its timing.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random, SystemRandom

import pymysql

from support.embedded_postgres import PostgresServer
from support.site import execute
from tranrepl.connections import Connection
from tranrepl.errors import ReplicationError
from tranrepl.mysql.session import connect

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

_MARIADB_LOAD = (
    "INSERT INTO item VALUES ({}, 1, 'chaos') ON DUPLICATE KEY UPDATE xact = item.xact + 1",
    "UPDATE item SET xact = xact + 1 WHERE id = {}",
    "DELETE FROM item WHERE id = {} AND MOD(xact, 3) = 0",
)
_CLIENTS = 4

_END_SESSIONS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND application_name LIKE 'tranrepl%'"
)
_MARIADB_SESSIONS = "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"


def end_sessions(connection: Connection) -> None:
    """End jobs' sessions, as an administrator would, or a firewall; at MariaDB those of the load, too."""
    if connection.kind == "postgres":
        execute(connection, _END_SESSIONS)
        return
    for (number,) in execute(connection, _MARIADB_SESSIONS):
        with suppress(pymysql.err.Error):
            execute(connection, f"KILL {number}")


def make_mariadb_load(publisher: Connection, seconds: float = SECONDS) -> None:
    """Run clients whose transactions overlap, and go on whatever ends one."""
    until = time.monotonic() + seconds

    def write(client: int) -> None:
        random = Random(SEED + client)
        while time.monotonic() < until:
            time.sleep(_CLIENTS / _RATE)
            with suppress(pymysql.err.Error, ReplicationError), connect(publisher) as session:
                while time.monotonic() < until:
                    session.execute("BEGIN")
                    for statement in _MARIADB_LOAD:
                        session.execute(statement.format(random.randint(1, 300)))
                    session.execute("COMMIT")
                    time.sleep(_CLIENTS / _RATE)

    with ThreadPoolExecutor(_CLIENTS) as clients:
        for client in [clients.submit(write, number) for number in range(_CLIENTS)]:
            client.result()


def make_load(server: PostgresServer, publisher: Connection, folder: Path, seconds: float = SECONDS) -> None:
    """Run clients whose transactions overlap; those that deadlock are retried. Raises CalledProcessError where the
    server ends their sessions."""
    script = folder / "load.sql"
    script.write_text(_LOAD, encoding="utf-8")
    server.run(
        "pgbench",
        *("--no-vacuum", f"--client={_CLIENTS}", "--max-tries=100", f"--rate={_RATE}", f"--time={seconds:.0f}"),
        *(f"--random-seed={SEED}", f"--file={script}"),
        database=publisher.database or "",
    )
