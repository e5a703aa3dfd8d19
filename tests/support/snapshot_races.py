"""Statements of somebody else at one point of a snapshot, or of the delivery after it, and how long they wait."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg
import pytest

from support.site import Site, execute
from tranrepl.connections import Connection
from tranrepl.distribution import delivery
from tranrepl.errors import FencedError, TransientError
from tranrepl.failpoint import Failpoint
from tranrepl.snapshot import initialization
from tranrepl.subscriber.base import snapshot as loading

_MOST_TURNS = 8


@dataclass(frozen=True, slots=True)
class Race:
    point: Failpoint
    read_log: bool
    """The log reader registers what they did before the job goes on."""


@contextmanager
def racing_statements(
    site: Site, race: Race, statements: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Execute them at the Publisher when a job in this context comes to the point first; wait until they are done, or
    wait for the job. See that they were executed, and did not wait for long.
    """
    reached: list[Failpoint] = []
    with statement_beside(site.databases.publisher) as beside, monkeypatch.context() as patch:

        def reach(point: Failpoint, _stream: int = 0) -> None:
            if point is race.point and not reached:
                reached.append(point)
                beside.start(*statements)
                if race.read_log:
                    site.read_log().raise_error()

        for module in (initialization, loading, delivery):
            patch.setattr(module, "reach", reach)
        yield
        assert reached, race
        assert max(beside.seconds()) < BOUND_SECONDS, race


def run_until_settled(site: Site) -> None:
    """Read the log, take snapshots and deliver, again and again as a schedule does, until a turn has nothing to do."""
    for _ in range(_MOST_TURNS):
        try:
            read = site.read_log()
            read.raise_error()
            taken = site.take_snapshot()
            delivered = site.deliver()
            delivered.raise_error()
        except (TransientError, FencedError):
            continue
        if not (read.commands or taken.snapshot or delivered.commands):
            return
    raise AssertionError(f"not settled after {_MOST_TURNS} turns")


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
