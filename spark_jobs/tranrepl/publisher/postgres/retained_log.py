"""How much log a Publisher keeps for a slot."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from tranrepl.postgres.session import Session, translated_errors
from tranrepl.publisher.postgres.open_transactions import oldest_transaction
from tranrepl.publisher.postgres.slot import NO_IDLE_LIMIT
from tranrepl.publisher.publisher import RetainedLog


def retained_log(session: Session, slot: str) -> RetainedLog | None:
    """Return what the server keeps for the slot of this name, from its `restart_lsn`; None where there is none.

    Its status is reserved, extended, unreserved or lost.
    """
    with translated_errors(f"Publisher {session.info.dbname}"):
        row = session.execute(
            "SELECT coalesce(wal_status, ''), "
            "pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), restart_lsn)::bigint, safe_wal_size, "
            "pg_catalog.age(catalog_xmin), "
            # Servers before 17 do not have it.
            "pg_catalog.clock_timestamp() - (pg_catalog.to_jsonb(slot) ->> 'inactive_since')::timestamptz "
            "FROM pg_catalog.pg_replication_slots slot WHERE slot_name = %s",
            [slot],
        ).fetchone()
    if row is None:
        return None
    status, size, left, catalog_xmin_age, idle = row
    return RetainedLog(status, size, left, catalog_xmin_age, oldest_transaction(session), idle, _idle_limit(session))


def idle_warnings(session: Session, longest_pause: timedelta | None) -> Iterator[str]:
    """Yield a warning where the server gives up a slot that nobody reads, and runs do not read it that often."""
    where = f"Publisher {session.info.dbname}"
    with translated_errors(where):
        limit = _idle_limit(session)
    if limit is not None and (longest_pause is None or limit <= longest_pause):
        pause = "no schedule says when runs come" if longest_pause is None else f"runs pause for up to {longest_pause}"
        yield (
            f"{where}: idle_replication_slot_timeout is {limit}, and {pause}: a slot that nobody reads for so long is "
            f"invalidated, and the publication must then be reinitialized. {NO_IDLE_LIMIT} prevents it, and so does a "
            "longer time"
        )


def _idle_limit(session: Session) -> timedelta | None:
    (limit,) = session.execute(
        "SELECT coalesce(pg_catalog.current_setting('idle_replication_slot_timeout', true), '0')::interval"
    ).fetchall()[0]
    return limit or None
