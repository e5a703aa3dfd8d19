"""Where a slot's readings begin: its `restart_lsn`, which an advance moves only to about where the one before it ended.

Each reading of the slot, or of a copy of it, decodes the log from there once more before it comes to what is new.
"""

from __future__ import annotations

from psycopg.errors import QueryCanceled

from tranrepl.postgres.session import Session

_WORTH_PASSING_OVER = 32 * 1024 * 1024
"""Bytes of log between `restart_lsn` and what is confirmed, from which on it is moved."""
_SECONDS = 2.0


def advance_restart_lsn(session: Session, slot: str) -> None:
    """Let `restart_lsn` follow to what is confirmed, where it is far behind.

    To pass over the log is cheaper than to decode it again, most of all where it is one large transaction. What a
    transaction that is still open needs stays.
    """
    if not _is_worth_it(session, slot):
        return
    try:
        with session.transaction():
            session.execute("SELECT pg_catalog.set_config('statement_timeout', %s, true)", [str(int(_SECONDS * 1000))])
            session.execute(
                "SELECT pg_catalog.pg_replication_slot_advance(slot_name, confirmed_flush_lsn) "
                "FROM pg_catalog.pg_replication_slots WHERE slot_name = %s",
                [slot],
            )
    except QueryCanceled:
        pass


def _is_worth_it(session: Session, slot: str) -> bool:
    far_behind = session.execute(
        "SELECT FROM pg_catalog.pg_replication_slots WHERE slot_name = %s AND confirmed_flush_lsn - restart_lsn > %s",
        [slot, _WORTH_PASSING_OVER],
    )
    return far_behind.rowcount > 0
