"""The identity of a PostgreSQL log, and the proof that what is registered lies on it: checked before every run.

A log goes back where its server is restored from a backup, or where a standby that did not have all of it is promoted.
Then it grows again, over positions that are registered already: so positions alone prove nothing. What proves it is the
log's own history of timelines and, as long as the slot stands before it, the last registered transaction itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from psycopg import sql
from psycopg.errors import FeatureNotSupported, InsufficientPrivilege, ObjectNotInPrerequisiteState

from tranrepl.connections import Connection
from tranrepl.errors import INCONSISTENT_DISTRIBUTION_DATABASE, InternalError, MustBeReinitializedError
from tranrepl.model.position import Position
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.publisher.continuity import Continuation, LogIdentity, RegisteredLog
from tranrepl.publisher.postgres.lsn import lsn_number, lsn_of, lsn_text, position_of, seqno_of
from tranrepl.publisher.postgres.replication_session import replication_session
from tranrepl.publisher.postgres.slot import STANDBY_SECONDS, ReplicationSlot, Slot, log
from tranrepl.publisher.postgres.standby_slots import standby_behind, wait_for_standbys, waiting_for
from tranrepl.remedies import REINITIALIZE

_NO_TIME = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Continuity:
    """The continuity of one log and what is registered of it. LSNs as integers."""

    session: Session
    slot: ReplicationSlot
    identity: LogIdentity
    registered: RegisteredLog

    @property
    def where(self) -> str:
        return self.slot.where

    def continuation(self) -> Continuation:
        """Return where reading goes on.

        Raises MustBeReinitializedError where what is registered is not of this log, or where log is lost that was not
        read; TransientError where the slot is in use.
        """
        while True:
            slot, registered = self.slot.ready(), self._registered()
            try:
                return self._continuation(slot)
            except MustBeReinitializedError:
                # Another log reader may register and advance between one look and the next, and both do not fit then.
                self.registered.renew()
                if self.slot.ready() == slot and self._registered() == registered:
                    raise

    def _registered(self) -> tuple[object, ...]:
        known = self.registered
        return known.position, known.start, known.timeline, known.last

    def _continuation(self, slot: Slot) -> Continuation:
        self.require_history()
        if slot.confirmed_flush_lsn > lsn_of(self.registered.position):
            # Another log reader may have registered and advanced since; then it says so by now.
            self.registered.renew()
        timeline, position = self.registered.timeline, lsn_of(self.registered.position)
        left_at = None if self.identity.timeline == timeline else self._left_at()
        position = min(position, left_at or position)
        if slot.confirmed_flush_lsn > position:
            raise self._slot_is_ahead(slot, position)
        # In this order: a snapshot that is taken meanwhile is of log behind the end.
        start, snapshot = self._proven_start(slot), self._latest_snapshot()
        end = flushed_to(self.session)
        if snapshot is not None and snapshot > end:
            raise self._lost_snapshot(snapshot, f"ends at {lsn_text(end)}")
        if position > end:
            position = start
        return Continuation(position_of(position), self.identity.timeline, position_of(min(start, position)))

    def require_history(self) -> None:
        """Raise MustBeReinitializedError where the registered transactions do not lie on the log's history of
        timelines."""
        now, known = self.identity.timeline, self.registered.timeline
        if now == known:
            return
        left_at, last = self._left_at(), self._last()
        if left_at is None:
            raise self._log_reset(f"its timeline {now} does not come from timeline {known}")
        if last is not None and last >= left_at:
            raise self._log_reset(
                f"its timeline {now} left timeline {known} at {lsn_text(left_at)}, as after a standby was promoted or "
                "a backup restored that did not have all of the log"
            )
        snapshot = self._latest_snapshot()
        if snapshot is not None and snapshot >= left_at:
            raise self._lost_snapshot(snapshot, f"on timeline {now}, left timeline {known} at {lsn_text(left_at)}")

    def _proven_start(self, slot: Slot) -> int:
        """Return where everything before is registered, and nothing after it.

        A slot stands before the registered position after a job died between registering and advancing, after a crash
        of the server, which forgets advances since its last checkpoint, and after a restore.
        """
        last, confirmed = self._last(), slot.confirmed_flush_lsn
        if self.registered.start is not None and confirmed < lsn_of(self.registered.start):
            raise self._log_reset(
                f"its slot is at {lsn_text(confirmed)}, before reading it began, as after a backup was restored"
            )
        if confirmed == lsn_of(self.registered.position) or last is None or last < confirmed:
            return confirmed
        if not self._holds_commit(last, self.registered.last_commit_time or _NO_TIME):
            raise self._log_reset("it does not hold that transaction, as after a backup was restored")
        return last + 1

    def _holds_commit(self, lsn: int, latest: datetime) -> bool:
        """Return whether a transaction of the publication commits there, in the log after what the slot has confirmed,
        and did so at `latest` or before. Raises TransientError where that is not known before a standby has the log."""
        if lsn >= flushed_to(self.session):
            return False
        wait_for_standbys(self.session, lsn + 1, STANDBY_SECONDS, log.warning)
        with translated_errors(self.where):
            return holds_commit(self.session, self.slot.name, self.slot.name, lsn, latest)

    def _left_at(self) -> int | None:
        found = self.identity.left_at(self.registered.timeline or 0)
        return None if found is None else lsn_of(found)

    def _last(self) -> int | None:
        """Return the LSN of the last registered commit."""
        seqno = self.registered.last
        return None if seqno is None else int.from_bytes(seqno, "big")

    def _latest_snapshot(self) -> int | None:
        """Return the LSN of the last snapshot, where it is of log that is not registered yet."""
        seqno = self.registered.latest_snapshot()
        lsn = None if seqno is None else int.from_bytes(seqno, "big")
        return None if lsn is None or lsn < lsn_of(self.registered.position) else lsn

    def _lost_snapshot(self, snapshot: int, why: str) -> MustBeReinitializedError:
        return _broken(
            f"{self.where}: the log went back. Rows were copied from it as of {lsn_text(snapshot)} of timeline "
            f"{self.registered.timeline}, and it now {why}. {self.registered.delivered()}"
        )

    def _log_reset(self, why: str) -> MustBeReinitializedError:
        seqno, last = self.registered.last, self._last()
        up_to = (
            f"transaction 0x{seqno.hex()} ({lsn_text(last)})"
            if seqno and last
            else lsn_text(lsn_of(self.registered.position))
        )
        return _broken(
            f"{self.where}: the log went back. It is registered up to {up_to} of timeline {self.registered.timeline}, "
            f"but {why}. {self.registered.delivered()}"
        )

    def _slot_is_ahead(self, slot: Slot, registered: int) -> MustBeReinitializedError:
        return _broken(
            f"{self.where}: replication slot {slot.name} is at {lsn_text(slot.confirmed_flush_lsn)}, but the log "
            f"is registered only up to {lsn_text(registered)}: changes between the two are lost. The slot was advanced "
            "or created again by somebody else, or the distribution database was restored from a backup"
        )


def _broken(message: str) -> MustBeReinitializedError:
    return MustBeReinitializedError(message, remedy=REINITIALIZE, number=INCONSISTENT_DISTRIBUTION_DATABASE)


_COMMIT = ord("C")
_POSTGRES_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)

_AS_IT_IS = "SELECT pg_catalog.set_config('client_encoding', pg_catalog.current_setting('server_encoding'), true)"
# With messages: a transaction of nothing else, as a tracer token's, is not shown without.
# A Commit message: byte 1 flags, 2 to 9 the LSN of the commit, 10 to 17 its end, 18 to 25 its time in microseconds.
_FIND = """
SELECT substr(data, 19, 8)
  FROM pg_catalog.pg_logical_slot_peek_binary_changes(
       %s, %s::pg_lsn, NULL, 'proto_version', '1', 'publication_names', %s, 'binary', 'true', 'messages', 'true')
 WHERE get_byte(data, 0) = %s AND substr(data, 3, 8) = %s
"""


def holds_commit(session: Session, slot: str, publication: str, lsn: int, latest: datetime) -> bool:
    """Return whether a transaction of the publication commits at `lsn`, in the log after what the slot has confirmed,
    and did so at `latest` or before.

    Where a log went back and has grown again, a transaction at the same place is a later one. The log is decoded up to
    there.
    """
    parameters = [slot, lsn_text(lsn + 1), publication, _COMMIT, seqno_of(lsn)]
    # No value is looked at: none may keep the server from showing the commit.
    with session.transaction():
        session.execute(_AS_IT_IS)
        rows = session.execute(_FIND, parameters).fetchall()
    return any(_time(bytes(stamp)) <= latest for (stamp,) in rows)


def _time(stamp: bytes) -> datetime:
    return _POSTGRES_EPOCH + timedelta(microseconds=int.from_bytes(stamp, "big", signed=True))


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


_IDENTITY = """
SELECT system_identifier::pg_catalog.text,
       pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8)
  FROM pg_catalog.pg_control_system()
"""
"""A segment's name begins with the timeline on which the server writes, in hexadecimal digits."""


def read_log_identity(session: Session, connection: Connection, known_timeline: int | None = None) -> LogIdentity:
    """Ask the Publisher. The system identifier is the same on physical standbys and in file-level backups; a promoted
    standby, and a server restored to a point in time, begin a new timeline. Its history of timelines is read only where
    it is not on the one that is known.

    The session in autocommit mode is asked first: the protocol takes a session of its own. Raises ConfigurationError
    where the server refuses that one, TransientError where it is not there.
    """
    where = f"Publisher {session.info.dbname}"
    with translated_errors(where):
        found = _queried_identity(session)
    if found is not None and found.timeline in (1, known_timeline):
        return found
    with replication_session(connection, "tranrepl log identity") as replication, translated_errors(where):
        row = replication.execute("IDENTIFY_SYSTEM").fetchone()
        if row is None:
            raise InternalError(f"{where}: IDENTIFY_SYSTEM gave no answer")
        system, timeline = str(row[0]), int(row[1])
        ancestors: Mapping[int, Position] = {}
        if timeline > 1 and timeline != known_timeline:
            history = replication.execute(sql.SQL("TIMELINE_HISTORY {}").format(sql.Literal(timeline))).fetchone()
            ancestors = parse_timeline_history(history[1] if history else "")
    return LogIdentity(system, timeline, ancestors)


def _queried_identity(session: Session) -> LogIdentity | None:
    """Return the identity without its history; None where a query does not tell it: in recovery, or where its functions
    are not for our role."""
    try:
        row = session.execute(_IDENTITY).fetchone()
    except (InsufficientPrivilege, ObjectNotInPrerequisiteState, FeatureNotSupported):
        return None
    return None if row is None else LogIdentity(row[0], int(row[1], 16))


def parse_timeline_history(content: str | bytes) -> dict[int, Position]:
    """Return the timelines of a history file, each with the LSN at which it was left.

    A line is `timeline, LSN, reason`; comments begin with #. Servers send it as text or as bytes, by their version.
    """
    text = content if isinstance(content, str) else content.decode("latin-1")
    lines = (line.split("#", 1)[0].split() for line in text.splitlines())
    return {int(fields[0]): position_of(lsn_number(fields[1])) for fields in lines if len(fields) > 1}
