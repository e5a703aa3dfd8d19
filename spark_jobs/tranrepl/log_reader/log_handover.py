"""The Publisher's log from one reader to another: a continuous log reader lets go of it where another job asks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import TypeVar

from tranrepl.distributor.database.connection import DatabaseConnection
from tranrepl.distributor.notifications import YIELD, notify
from tranrepl.error_numbers import LOG_IN_USE
from tranrepl.errors import ReplicationError

Of = TypeVar("Of")
PATIENCE_SECONDS = 5.0
ASK_SECONDS = 0.25
"""How often the log is asked for, as long as another job has it."""


def is_in_use(error: ReplicationError) -> bool:
    """Return whether the log was not to be had because another session reads it."""
    return error.report.code in LOG_IN_USE


def asking_for_the_log(database: DatabaseConnection, publication_id: int, work: Callable[[], Of]) -> Of:
    """Do what takes the log for a moment. Where another session reads it, ask for it, and do it again, for some
    seconds."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return work()
        except ReplicationError as error:
            if not is_in_use(error) or time.monotonic() >= deadline:
                raise
        _ask(database, publication_id)
        time.sleep(ASK_SECONDS)


@contextmanager
def holding_off_log_reader(database: DatabaseConnection, publication_id: int) -> Iterator[None]:
    """Keep a continuous log reader away from the log for as long as the context lasts."""
    over = Event()

    def ask() -> None:
        while not over.wait(ASK_SECONDS):
            # It fails where everything else does, which says so.
            with suppress(ReplicationError):
                _ask(database, publication_id)

    asking = Thread(target=ask, name="tranrepl-ask", daemon=True)
    asking.start()
    try:
        yield
    finally:
        over.set()
        asking.join()


def _ask(database: DatabaseConnection, publication_id: int) -> None:
    with database.transaction() as connection:
        notify(connection, publication_id, YIELD)
