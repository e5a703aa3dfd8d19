"""pgbench's TPC-B, or another of its scripts, at a rate."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from support.embedded_postgres import embedded_bindir
from tranrepl.connections import Connection

_BUSY = 200
"""Transactions a second from which on one client more is needed for each so many, up to `_MOST_CLIENTS`."""
_LEAST_CLIENTS, _MOST_CLIENTS = 4, 10


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How pgbench works."""

    clients: int | None = None
    """None: as many as the rate needs."""
    threads: int = 1
    asynchronous: bool = False
    """Whether a commit waits for no disk at the Publisher."""
    script: str = "tpcb-like"
    """One of pgbench's own."""


def pgbench(publisher: Connection, rate: int, seconds: int, options: LoadOptions) -> None:
    """Commit so many transactions a second for so long, or as many as the machine can."""
    parameters = publisher.libpq_parameters("pgbench")
    where = ["-h", parameters["host"], "-p", parameters["port"], "-U", parameters["user"], parameters["dbname"]]
    clients = options.clients or min(_MOST_CLIENTS, max(_LEAST_CLIENTS, rate // _BUSY))
    how = ["-n", "-M", "prepared", "-c", str(clients), "-j", str(min(options.threads, clients)), "-b", options.script]
    environment = {"PGPASSWORD": parameters["password"]}
    if options.asynchronous:
        environment["PGOPTIONS"] = "-c synchronous_commit=off"
    command = [str(embedded_bindir() / "pgbench"), *how, "-R", str(rate), "-T", str(seconds), *where]
    subprocess.run(command, env=environment, check=True, capture_output=True)
