"""How much log a Publisher keeps for a slot."""

from __future__ import annotations

from tranrepl.postgres.session import Session, translated_errors
from tranrepl.publisher.postgres.open_transactions import oldest_transaction
from tranrepl.publisher.publisher import RetainedLog


def retained_log(session: Session, slot: str) -> RetainedLog | None:
    """Return what the server keeps for the slot of this name, from its `restart_lsn`; None where there is none.

    Its status is reserved, extended, unreserved or lost.
    """
    with translated_errors(f"Publisher {session.info.dbname}"):
        row = session.execute(
            "SELECT coalesce(wal_status, ''), "
            "pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), restart_lsn)::bigint, safe_wal_size, "
            "pg_catalog.age(catalog_xmin) "
            "FROM pg_catalog.pg_replication_slots WHERE slot_name = %s",
            [slot],
        ).fetchone()
    if row is None:
        return None
    status, size, left, catalog_xmin_age = row
    return RetainedLog(status, size, left, catalog_xmin_age, oldest_transaction(session))
