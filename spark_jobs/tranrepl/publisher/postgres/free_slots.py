"""Replication slots that are free at a Publisher: each reading of the log needs one while it lasts, a snapshot for the
moment in which it is exported."""

from __future__ import annotations

from dataclasses import dataclass

from tranrepl.errors import ConfigurationError, ReplicationError, TransientError
from tranrepl.postgres.session import Session, translated_errors

ALL_IN_USE = "53400"
MORE_SLOTS = (
    "drop a slot that nobody needs (SELECT slot_name, active FROM pg_replication_slots), or raise "
    "max_replication_slots and restart the server"
)


_SETTING = "max_replication_slots"
"""In the hint of every language."""


@dataclass(frozen=True, slots=True)
class FreeSlots:
    """`temporary`: how many of those in use end with their session."""

    allowed: int
    free: int
    temporary: int


def free_slots(session: Session, where: str) -> FreeSlots:
    """Count the free slots as of now: others come and go."""
    with translated_errors(where):
        row = session.execute(
            "SELECT allowed, allowed - count(slot_name)::int, (count(*) FILTER (WHERE temporary))::int "
            "FROM (SELECT current_setting('max_replication_slots')::int AS allowed) AS setting "
            "LEFT JOIN pg_catalog.pg_replication_slots ON true GROUP BY allowed"
        ).fetchone()
    return FreeSlots(*row) if row else FreeSlots(0, 0, 0)


def none_free(where: str, slots: FreeSlots) -> ReplicationError:
    """Return the error of a log reader that finds no free slot."""
    message = f"{where}: all {slots.allowed} replication slots are in use, and reading the log needs one while it lasts"
    if slots.temporary:
        return TransientError(
            f"{message}; {slots.temporary} of them end by themselves, as those of other log readers and snapshots do",
            database_code=ALL_IN_USE,
            remedy=f"wait for them; or {MORE_SLOTS}",
        )
    return ConfigurationError(message, database_code=ALL_IN_USE, remedy=MORE_SLOTS)


def is_all_in_use(error: Exception) -> bool:
    """Return whether an error, which may have come without its SQLSTATE, says that all slots are in use."""
    return _SETTING in str(error)
