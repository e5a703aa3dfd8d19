"""How far a delivery is, told by whoever applies, while the job that started it waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Protocol

import psycopg

from tranrepl.connections import Connection
from tranrepl.distributor.run_progress import add_to_run
from tranrepl.errors import ReplicationError
from tranrepl.postgres.session import connect

_TOLD_EVERY_SECONDS = 1.0
_WAITED_SECONDS = 1.0
"""For the last telling: the job tells the whole in its place."""


class Committed(Protocol):
    """What a delivery has committed by now."""

    transactions: int
    commands: int
    in_bulk: int
    by_article: dict[str, int]


@dataclass(frozen=True, slots=True)
class RunToTell:
    """A history row. It travels pickled with the delivery, password and all."""

    distribution: Connection
    run_id: int


@contextmanager
def telling(run: RunToTell | None, committed: Committed) -> Iterator[None]:
    """Add to the run's history row, once a second, what was committed meanwhile.

    A thread with a connection of its own does it, so that the Subscriber's transactions do not wait for it, and a
    delivery that is over within a second has none. What fails there is not told, and harms nothing.
    """
    if run is None:
        yield
        return
    over = Event()
    teller = Thread(target=_tell, args=[run, committed, over], name="tranrepl-telling", daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join(_WAITED_SECONDS)


def _tell(run: RunToTell, committed: Committed, over: Event) -> None:
    if over.wait(_TOLD_EVERY_SECONDS):
        return
    with (
        suppress(ReplicationError, psycopg.Error),
        connect(run.distribution, "tranrepl progress", autocommit=True) as session,
    ):
        told = _Told()
        while True:
            now = _Told(committed.transactions, committed.commands, committed.in_bulk, dict(committed.by_article))
            if now != told:
                add_to_run(session, run.run_id, *now.since(told))
                told = now
            if over.wait(_TOLD_EVERY_SECONDS):
                return


@dataclass(frozen=True, slots=True)
class _Told:
    transactions: int = 0
    commands: int = 0
    in_bulk: int = 0
    by_article: Mapping[str, int] = field(default_factory=dict)

    def since(self, earlier: _Told) -> tuple[int, int, int, dict[str, int]]:
        by_article = {name: count - earlier.by_article.get(name, 0) for name, count in self.by_article.items()}
        return (
            self.transactions - earlier.transactions,
            self.commands - earlier.commands,
            self.in_bulk - earlier.in_bulk,
            by_article,
        )
