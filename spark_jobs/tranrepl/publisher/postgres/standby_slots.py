"""Standbys that must have the log before anybody else is given it: `synchronized_standby_slots` (PostgreSQL 17).

The server itself waits for them where the publication's own slot is read or advanced. The log reader reads copies of
that slot, for which it does not wait: so it has to look by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tranrepl.errors import TransientError
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.publisher.postgres.lsn import lsn_number, lsn_text

_FIRST_VERSION = 170000
_LOOK_SECONDS = 0.05

_STANDBYS = """
SELECT btrim(named.name) AS name,
       CASE WHEN s.slot_type = 'physical' AND s.wal_status IS DISTINCT FROM 'lost' THEN s.restart_lsn::text END AS lsn,
       CASE WHEN s.slot_name IS NULL THEN 'it does not exist' WHEN s.slot_type <> 'physical' THEN 'it is a logical one'
            WHEN s.wal_status = 'lost' THEN 'it is invalidated' WHEN s.active THEN 'active' ELSE 'inactive' END AS state
  FROM unnest(string_to_array(current_setting('synchronized_standby_slots'), ',')) AS named (name)
  LEFT JOIN pg_catalog.pg_replication_slots s ON s.slot_name = btrim(named.name)
"""


@dataclass(frozen=True, slots=True)
class StandbySlot:
    """A physical slot that `synchronized_standby_slots` names."""

    name: str
    confirmed_lsn: int
    """What its standby has; 0 where it has confirmed nothing."""
    state: str

    def __str__(self) -> str:
        return f"replication slot {self.name} ({self.state}, at {lsn_text(self.confirmed_lsn)})"


def slowest_standby(session: Session) -> StandbySlot | None:
    """Return the standby that has confirmed least; None where the server waits for none."""
    if session.info.server_version < _FIRST_VERSION:
        return None
    with translated_errors(f"Publisher {session.info.dbname}"):
        rows = session.execute(_STANDBYS).fetchall()
    slots = [StandbySlot(name, lsn_number(lsn or "0/0"), state) for name, lsn, state in rows]
    return min(slots, key=lambda it: it.confirmed_lsn, default=None)


def standby_behind(session: Session, lsn: int, patience_seconds: float) -> StandbySlot | None:
    """Wait until every standby has the log up to `lsn`, for so long; whom it still waits for then, None where all are
    there."""
    deadline = time.monotonic() + patience_seconds
    while (slowest := slowest_standby(session)) is not None and slowest.confirmed_lsn < lsn:
        if time.monotonic() >= deadline:
            return slowest
        time.sleep(_LOOK_SECONDS)
    return None


def wait_for_standbys(session: Session, lsn: int, timeout_seconds: float, say: Callable[[str], None]) -> None:
    """Return when every standby has the log up to `lsn`. `say` reports which one it waits for.

    Raises TransientError after `timeout_seconds`.
    """
    if (behind := standby_behind(session, lsn, 1.0)) is None:
        return
    say(waiting_for(session, behind))
    if (behind := standby_behind(session, lsn, timeout_seconds)) is not None:
        raise TransientError(
            f"{waiting_for(session, behind)}, for {timeout_seconds:.0f} seconds by now",
            remedy="start that standby, or take its slot out of synchronized_standby_slots",
        )


def waiting_for(session: Session, standby: StandbySlot) -> str:
    """Say that the log is read no further than a standby has it."""
    return (
        f"Publisher {session.info.dbname}: the log is read no further than the standby of {standby} has it, as "
        "synchronized_standby_slots asks"
    )
