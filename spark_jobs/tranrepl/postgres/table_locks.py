"""Locks that keep tables from being rewritten or emptied, taken so that nobody's statement fails for them."""

from __future__ import annotations

import time
from collections.abc import Callable

from psycopg import sql
from psycopg.errors import LockNotAvailable

from tranrepl.model.names import TableName
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.session import Session

_LONGEST_SECONDS = 60.0
_PAUSE_SECONDS = 0.1


def lock(session: Session, table: TableName, *, only: bool) -> None:
    """Lock a table against rewrites, with its partitions or it alone.

    Raises LockNotAvailable at once where another session has locked it, or waits for such a lock.
    """
    statement = "LOCK TABLE {}{} IN ACCESS SHARE MODE NOWAIT"
    session.execute(sql.SQL(statement).format(sql.SQL("ONLY " if only else ""), qualified(table)))


def with_all_locks(session: Session, take: Callable[[], None]) -> None:
    """Take several locks in the session's transaction; where one cannot be had, release those before it and try again.

    A session that holds some and waits for another one can make a deadlock with a transaction that alters the same
    tables in another order, which the server may end. Raises LockNotAvailable after a minute.
    """
    deadline = time.monotonic() + _LONGEST_SECONDS
    while True:
        try:
            with session.transaction():
                return take()
        except LockNotAvailable:
            if time.monotonic() >= deadline:
                raise
        time.sleep(_PAUSE_SECONDS)
