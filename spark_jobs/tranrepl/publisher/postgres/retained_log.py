"""How much log a Publisher keeps for a slot."""

from __future__ import annotations

from dataclasses import dataclass

from tranrepl.postgres.session import Session, translated_errors


@dataclass(frozen=True, slots=True)
class RetainedLog:
    wal_status: str
    """The server's own word: reserved, extended, unreserved or lost."""
    size: int | None
    """Bytes from the slot's `restart_lsn` to the log's end; None where the slot holds none any more."""
    left: int | None
    """Bytes that may be written before the slot is in danger of being lost; None where nothing bounds them."""


def retained_log(session: Session, slot: str) -> RetainedLog | None:
    """Return what the server keeps for the slot of this name; None where there is none."""
    with translated_errors(f"Publisher {session.info.dbname}"):
        row = session.execute(
            "SELECT coalesce(wal_status, ''), "
            "pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), restart_lsn)::bigint, safe_wal_size "
            "FROM pg_catalog.pg_replication_slots WHERE slot_name = %s",
            [slot],
        ).fetchone()
    return None if row is None else RetainedLog(*row)
