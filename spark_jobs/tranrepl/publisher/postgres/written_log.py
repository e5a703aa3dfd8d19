"""How far a PostgreSQL log is written, and how far it may be read."""

from __future__ import annotations

from collections.abc import Callable

from tranrepl.postgres.session import Session, translated_errors
from tranrepl.publisher.postgres.lsn import lsn_number
from tranrepl.publisher.postgres.standby_slots import standby_behind, waiting_for

_STANDBY_PATIENCE_SECONDS = 2.0


def flushed_to(session: Session) -> int:
    """Return the LSN up to which the log is flushed now."""
    with translated_errors(f"Publisher {session.info.dbname}"):
        row = session.execute("SELECT pg_catalog.pg_current_wal_flush_lsn()::text").fetchone()
    return lsn_number(str(row[0] if row else None))


def readable_to(session: Session, say: Callable[[str], None]) -> int:
    """Return the LSN up to which the log may be read now: what the standbys of `synchronized_standby_slots` have of it.

    They have a moment to follow; `say` reports which one is not waited for any longer.
    """
    end = flushed_to(session)
    behind = standby_behind(session, end, _STANDBY_PATIENCE_SECONDS)
    if behind is None:
        return end
    say(waiting_for(session, behind))
    return min(end, behind.confirmed_lsn)
