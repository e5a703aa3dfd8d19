"""The hand-over of the Publisher's log: a continuous log reader closes its session where another job asks for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import TypeVar

from tranrepl.distributor.database.connection import DatabaseConnection
from tranrepl.distributor.notifications import HANDOVER, notify
from tranrepl.error_numbers import LOG_IN_USE
from tranrepl.errors import ReplicationError

Of = TypeVar("Of")
PATIENCE_SECONDS = 5.0
ASK_SECONDS = 0.25
"""Between two requests, as long as another job has the log."""


def is_in_use(error: ReplicationError) -> bool:
    """Return whether the log was not to be had because another session reads it."""
    return error.report.code in LOG_IN_USE


def with_log_handover(database: DatabaseConnection, publication_id: int, work: Callable[[], Of]) -> Of:
    """Do what needs the log. Where another session reads it, ask for the hand-over and try again, for seconds."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return work()
        except ReplicationError as error:
            if not is_in_use(error) or time.monotonic() >= deadline:
                raise
        _ask_for_handover(database, publication_id)
        time.sleep(ASK_SECONDS)


@contextmanager
def keeping_log_handed_over(database: DatabaseConnection, publication_id: int) -> Iterator[None]:
    """Ask a continuous log reader for the hand-over again and again, for as long as the context lasts."""
    over = Event()

    def ask() -> None:
        while not over.wait(ASK_SECONDS):
            # It fails where everything else does, which says so.
            with suppress(ReplicationError):
                _ask_for_handover(database, publication_id)

    asking = Thread(target=ask, name="tranrepl-ask", daemon=True)
    asking.start()
    try:
        yield
    finally:
        over.set()
        asking.join()


def _ask_for_handover(database: DatabaseConnection, publication_id: int) -> None:
    with database.transaction() as connection:
        notify(connection, publication_id, HANDOVER)
