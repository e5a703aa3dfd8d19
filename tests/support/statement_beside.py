"""A statement of somebody else, beside a job that holds locks: how long does it wait?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg

from support.site import execute
from tranrepl.connections import Connection

_APPLICATION = "migration"
_WAITS = "SELECT FROM pg_stat_activity a JOIN pg_locks l USING (pid) WHERE NOT granted AND application_name = %s"
BOUND_SECONDS = 3.0
"""A statement that gets no lock is seen after half a second; the rest is for a machine that has other work."""


@dataclass(slots=True)
class StatementBeside:
    """Statements in autocommit, executed in another thread. A wait ends after 20 seconds, as an error."""

    connection: Connection
    executor: ThreadPoolExecutor
    executing: list[Future[float]] = field(default_factory=list)

    def start(self, *statements: str) -> None:
        """Begin to execute them; return as soon as one waits for a lock, or all are executed."""
        self.executing.append(self.executor.submit(self._execute, statements))
        while not self.executing[-1].done() and not self._waits():
            time.sleep(0.01)

    def _execute(self, statements: tuple[str, ...]) -> float:
        parameters = self.connection.libpq_parameters(_APPLICATION)
        with psycopg.connect(**parameters, autocommit=True) as session:  # type: ignore[arg-type]
            session.execute("SET lock_timeout = '20s'")
            started = time.monotonic()
            for it in statements:
                session.execute(it.encode())
            return time.monotonic() - started

    def _waits(self) -> bool:
        return bool(execute(self.connection, _WAITS.replace("%s", f"'{_APPLICATION}'")))

    def seconds(self) -> list[float]:
        """Return how long each took. Raises what went wrong."""
        return [it.result(60) for it in self.executing]


@contextmanager
def statement_beside(connection: Connection) -> Iterator[StatementBeside]:
    with ThreadPoolExecutor(1) as executor:
        yield StatementBeside(connection, executor)
