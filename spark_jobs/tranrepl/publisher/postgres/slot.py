"""The logical replication slot of a publication: the server keeps its log by it, and how much of it."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import LiteralString

from psycopg import sql
from psycopg.errors import QueryCanceled

from tranrepl.error_numbers import Codes
from tranrepl.errors import ConfigurationError, MustBeReinitializedError, TransientError
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.printable import size
from tranrepl.publisher.postgres.lsn import lsn_number, lsn_text
from tranrepl.publisher.postgres.standby_slots import wait_for_standbys
from tranrepl.publisher.publisher import Danger, OpenTransaction, RetainedLog
from tranrepl.remedies import REINITIALIZE

PLUGIN = "pgoutput"
_ADVANCE_TIMEOUT = "30min"
"""Advancing a slot takes nearly as long as decoding the log in between."""
_SLOT_TIMEOUT = "60s"
STANDBY_SECONDS = 60.0
NO_IDLE_LIMIT = "ALTER SYSTEM SET idle_replication_slot_timeout = 0, then SELECT pg_reload_conf(),"
_IDLE = "idle_timeout"
_ENDANGERED = ("unreserved", "lost")
_SMALL_PART = 5
"""One of so many parts of what the server lets a slot retain is a small rest."""

log = logging.getLogger(__name__)


class SlotState(StrEnum):
    READY = "ready"
    IN_USE = "in use"
    INVALIDATED = "invalidated"


@dataclass(frozen=True, slots=True)
class Slot:
    """The logical replication slot of a publication. LSNs as integers."""

    name: str
    state: SlotState
    reason: str
    confirmed_flush_lsn: int


def object_name(database: str, publication: str) -> str:
    """Return the name of a publication's slot and of its publication at the server.

    Slots are the cluster's, not the database's: two databases may have publications of one name. And a slot's name has
    neither capital letters nor hyphens: two publications must not become one.
    """
    suffix = hashlib.sha256(f"{database}/{publication}".encode()).hexdigest()[:8]
    return f"tranrepl_{publication.lower().replace('-', '_')}_{suffix}"


class ReplicationSlot:
    """The slot of this name, in the session's database."""

    def __init__(self, session: Session, name: str) -> None:
        self._session = session
        self.name = name
        self.where = f"Publisher {session.info.dbname}"

    def find(self) -> Slot | None:
        """Return the publication's slot; None where it does not exist. Raises ConfigurationError for another's slot."""
        with translated_errors(self.where):
            row = self._session.execute(
                sql.SQL(
                    "SELECT s.database, s.plugin, s.active, s.wal_status, s.confirmed_flush_lsn::text, {} "
                    "FROM pg_catalog.pg_replication_slots s WHERE s.slot_name = %s"
                ).format(sql.SQL(self._invalidation_column())),
                [self.name],
            ).fetchone()
        if row is None:
            return None
        database, plugin, active, wal_status, confirmed, invalidation = row
        if database != self._session.info.dbname or plugin != PLUGIN:
            raise ConfigurationError(
                f"{self.where}: slot {self.name} exists, but for database {database} and plugin {plugin}",
                remedy="rename the publication, or drop that slot if nobody needs it",
            )
        state = SlotState.IN_USE if active else SlotState.READY
        if wal_status == "lost" or invalidation:
            state = SlotState.INVALIDATED
        return Slot(self.name, state, invalidation or wal_status or "", lsn_number(confirmed or "0/0"))

    def _invalidation_column(self) -> LiteralString:
        if self._version >= 17:
            return "coalesce(s.invalidation_reason, '')"
        return "CASE WHEN s.conflicting THEN 'conflict' ELSE '' END" if self._version == 16 else "''"

    def ready(self) -> Slot:
        """Return the slot, fit to be read. Raises MustBeReinitializedError where it is missing or invalidated,
        TransientError where another session reads it."""
        slot = self.require()
        if slot.state is SlotState.IN_USE:
            raise self._in_use()
        return slot

    def require(self) -> Slot:
        """Return the slot as `ready` does, also where another session reads it."""
        slot = self.find()
        if slot is None:
            raise MustBeReinitializedError(
                f"{self.where}: replication slot {self.name} does not exist: changes made since it was lost "
                "cannot be read any more",
                remedy=REINITIALIZE,
            )
        if slot.state is SlotState.INVALIDATED:
            raise self.invalidated(slot)
        return slot

    def require_idle(self) -> Slot | None:
        """Return the slot, whatever state it is in. Raises TransientError where another session reads it."""
        slot = self.find()
        if slot is not None and slot.state is SlotState.IN_USE:
            raise self._in_use()
        return slot

    def set_up(self) -> list[str]:
        """Make the slot where there is none; what was done. Raises TransientError where it must wait too long."""
        slot = self.find()
        if slot is not None:
            if slot.state is SlotState.INVALIDATED:
                raise self.invalidated(slot)
            return []
        failover = sql.SQL(", failover => true") if self._version >= 17 else sql.SQL("")
        try:
            with self._session.transaction():
                self._session.execute("SELECT pg_catalog.set_config('statement_timeout', %s, true)", [_SLOT_TIMEOUT])
                self._session.execute(
                    sql.SQL("SELECT pg_catalog.pg_create_logical_replication_slot(%s, %s, false{})").format(failover),
                    [self.name, PLUGIN],
                )
        except QueryCanceled as error:
            raise TransientError(
                f"{self.where}: no replication slot after {_SLOT_TIMEOUT}: a new one waits for the transactions that "
                f"were open before; the oldest is {self._oldest_writer()}",
                remedy="end that transaction, or wait for its end, then run `tranrepl setup FILE`",
                **Codes.POSTGRES.value.numbered(error.sqlstate),
            ) from error
        return [f"created replication slot {self.name} at {self.where}"]

    def _oldest_writer(self) -> str:
        """Describe the transaction that has been open for longest of those that have written."""
        row = self._session.execute(
            "SELECT who, date_trunc('second', clock_timestamp() - since)::text FROM ("
            "SELECT concat('that of process ', pid, ' (', usename, ', ', application_name, ')') AS who, "
            "xact_start AS since FROM pg_catalog.pg_stat_activity WHERE backend_xid IS NOT NULL UNION ALL "
            "SELECT concat('prepared transaction ', quote_literal(gid)), prepared "
            "FROM pg_catalog.pg_prepared_xacts) AS writers ORDER BY since LIMIT 1"
        ).fetchone()
        return f"{row[0]}, open for {row[1]}" if row else "one that has ended since"

    def drop(self) -> list[str]:
        """Let a new one take its place; what was done. Raises TransientError where another session reads it."""
        slot = self.require_idle()
        if slot is None:
            return []
        with translated_errors(self.where):
            self._session.execute("SELECT pg_catalog.pg_drop_replication_slot(%s)", [slot.name])
        return [f"dropped replication slot {slot.name} at {self.where}"]

    def waits_for_standbys(self) -> bool:
        """Return whether the server sends who reads the slot itself nothing that standbys do not have: where it is a
        failover slot."""
        if self._version < 17:
            return False
        with translated_errors(self.where):
            row = self._session.execute(
                "SELECT failover FROM pg_catalog.pg_replication_slots WHERE slot_name = %s", [self.name]
            ).fetchone()
        return row == (True,)

    def advance(self, up_to: int) -> None:
        """Confirm that everything before `up_to` is registered, so that the Publisher may drop its log.

        Raises TransientError where a standby must have it before and does not get it, or where it takes too long.
        """
        slot = self.ready()
        if slot.confirmed_flush_lsn >= up_to:
            return
        wait_for_standbys(self._session, up_to, STANDBY_SECONDS, log.warning)
        with translated_errors(self.where), self._session.transaction():
            self._session.execute("SELECT pg_catalog.set_config('statement_timeout', %s, true)", [_ADVANCE_TIMEOUT])
            self._session.execute(
                "SELECT pg_catalog.pg_replication_slot_advance(%s, %s::pg_lsn)", [self.name, lsn_text(up_to)]
            )

    def _in_use(self) -> TransientError:
        return TransientError(
            f"{self.where}: replication slot {self.name} is in use by another session",
            remedy="one log reader at a time: wait for the other one, or end it",
            database_code="55006",
        )

    def invalidated(self, slot: Slot) -> MustBeReinitializedError:
        idle = slot.reason == _IDLE
        why = "nobody has read it for longer than idle_replication_slot_timeout" if idle else "the log it needs is gone"
        prevented = NO_IDLE_LIMIT if idle else "A higher max_slot_wal_keep_size"
        return MustBeReinitializedError(
            f"{self.where}: replication slot {slot.name} is invalidated ({slot.reason}): {why}",
            remedy=f"{REINITIALIZE}. {prevented} prevents it",
        )

    @property
    def _version(self) -> int:
        return self._session.info.server_version // 10000


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
    dangers = tuple(slot_dangers(status, size, left, idle, _idle_limit(session)))
    return RetainedLog(status, size, left, catalog_xmin_age, oldest_transaction(session), dangers)


def slot_dangers(
    status: str, kept: int | None, left: int | None, idle: timedelta | None, idle_limit: timedelta | None
) -> Iterator[Danger]:
    """Yield why the slot may be lost soon. `kept`: bytes that it retains; `left`: bytes that may be written before it
    is in danger; `idle`: for how long nobody has read it."""
    nearly_used = kept is not None and left is not None and left * _SMALL_PART <= kept + left
    if status in _ENDANGERED or nearly_used:
        rest = "" if left is None else f"; {size(max(0, left))} may be written before it may be lost"
        yield Danger(
            f"the replication slot is in danger: wal_status {status}{rest}",
            "read the log with `tranrepl run FILE`, or raise max_slot_wal_keep_size at the Publisher",
        )
    if idle is not None and idle_limit is not None and (idle_limit - idle) * _SMALL_PART <= idle_limit:
        yield Danger(
            f"the replication slot is in danger: it was not read for {idle.total_seconds() / 60:,.0f} minutes, and "
            f"after {idle_limit} (idle_replication_slot_timeout) the server invalidates it",
            "read the log with `tranrepl run FILE`, or raise idle_replication_slot_timeout at the Publisher",
        )


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


# Without pg_read_all_stats, the times of other roles' transactions are NULL.
_OLDEST = """
SELECT seconds, who FROM (
    SELECT extract(epoch FROM clock_timestamp() - xact_start), format('session %s (%s)', pid, concat_ws(', ',
           'role ' || usename, 'database ' || datname, nullif(application_name, '')))
      FROM pg_catalog.pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_catalog.pg_backend_pid()
    UNION ALL
    SELECT extract(epoch FROM clock_timestamp() - prepared),
           format('prepared transaction %L (role %s, database %s)', gid, owner, database)
      FROM pg_catalog.pg_prepared_xacts
) AS open (seconds, who)
WHERE seconds IS NOT NULL ORDER BY seconds DESC LIMIT 1
"""


def oldest_transaction(session: Session) -> OpenTransaction | None:
    """Return the transaction that has been open for longest, as far as our role sees its time; None where there is
    none."""
    with translated_errors(f"Publisher {session.info.dbname}"):
        row = session.execute(_OLDEST).fetchone()
    return None if row is None else OpenTransaction(float(row[0]), str(row[1]))


_WORTH_PASSING_OVER = 32 * 1024 * 1024
"""Bytes of log between `restart_lsn` and what is confirmed, from which on it is moved."""
_SECONDS = 2.0


def advance_restart_lsn(session: Session, slot: str) -> None:
    """Let `restart_lsn` follow to what is confirmed, where it is far behind.

    Advancing the slot is cheaper than decoding that log again, most of all where it is one large transaction. What a
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
