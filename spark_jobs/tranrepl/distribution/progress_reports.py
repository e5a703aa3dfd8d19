"""Reports of how far a delivery is, by the process that applies, while the job that started it waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Protocol

import psycopg

from tranrepl.connections import Connection
from tranrepl.distributor.run_progress import add_to_run
from tranrepl.distributor.schema import find_schema
from tranrepl.errors import ReplicationError
from tranrepl.postgres.session import connect

_REPORT_INTERVAL_SECONDS = 1.0
_WAITED_SECONDS = 1.0
"""The wait for the last report, in whose place the job reports the whole."""


class Committed(Protocol):
    """What a delivery has committed by now."""

    transactions: int
    commands: int
    in_bulk: int
    by_article: dict[str, int]


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """A history row. It travels pickled with the delivery, password and all."""

    distribution: Connection
    run_id: int


@contextmanager
def reporting_progress(run: ReportedRun | None, committed: Committed) -> Iterator[None]:
    """Add to the run's history row, once a second, what was committed meanwhile.

    A thread with a connection of its own does it, so that the Subscriber's transactions do not wait for it, and a
    delivery that is over within a second has none. What fails there is not reported, and harms nothing.
    """
    if run is None:
        yield
        return
    over = Event()
    reporter = Thread(target=_report, args=[run, committed, over], name="tranrepl-progress", daemon=True)
    reporter.start()
    try:
        yield
    finally:
        over.set()
        reporter.join(_WAITED_SECONDS)


def _report(run: ReportedRun, committed: Committed, over: Event) -> None:
    if over.wait(_REPORT_INTERVAL_SECONDS):
        return
    with (
        suppress(ReplicationError, psycopg.Error),
        connect(run.distribution, "tranrepl progress", autocommit=True) as session,
    ):
        schema, reported = find_schema(session), _Reported()
        while True:
            now = _Reported(committed.transactions, committed.commands, committed.in_bulk, dict(committed.by_article))
            if now != reported:
                add_to_run(session, schema, run.run_id, *now.since(reported))
                reported = now
            if over.wait(_REPORT_INTERVAL_SECONDS):
                return


@dataclass(frozen=True, slots=True)
class _Reported:
    transactions: int = 0
    commands: int = 0
    in_bulk: int = 0
    by_article: Mapping[str, int] = field(default_factory=dict)

    def since(self, earlier: _Reported) -> tuple[int, int, int, dict[str, int]]:
        by_article = {name: count - earlier.by_article.get(name, 0) for name, count in self.by_article.items()}
        return (
            self.transactions - earlier.transactions,
            self.commands - earlier.commands,
            self.in_bulk - earlier.in_bulk,
            by_article,
        )
