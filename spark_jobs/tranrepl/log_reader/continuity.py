"""Whether what is registered lies on the Publisher's log, and where reading goes on: asked before every run.

A log goes back where its server is restored from a backup, or where a standby that did not have all of it is promoted.
Then it grows again, over positions that are registered already: so positions alone prove nothing. What proves it is the
log's own history of timelines and, as long as the slot stands before it, the last registered transaction itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from tranrepl.connections import Connection
from tranrepl.distributor.database import DistributionDatabase, PublicationRecord, another_publisher
from tranrepl.errors import INCONSISTENT_DISTRIBUTION_DATABASE, ConfigurationError, MustBeReinitializedError
from tranrepl.publisher.postgres.log_identity import LogIdentity, read_log_identity
from tranrepl.publisher.postgres.lsn import lsn_text
from tranrepl.publisher.postgres.publisher import REINITIALIZE, PostgresPublisher, Slot, SlotState

_NO_TIME = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Continuation:
    """Where reading goes on."""

    record: PublicationRecord
    """As it is registered."""
    registered_lsn: int
    """What must be registered instead: less, where the log went back and nothing registered was in what it lost."""
    timeline: int
    start_lsn: int
    """Everything committed before is registered. After it no transaction is, though `registered_lsn` may be later."""


def find_break(
    publisher: PostgresPublisher, connection: Connection, database: DistributionDatabase, record: PublicationRecord
) -> MustBeReinitializedError | None:
    """Return the error that keeps the log from being read on, for good; None where nothing does. Changes nothing."""
    slot = publisher.slot()
    try:
        if slot is not None and slot.state is SlotState.IN_USE:
            # Whoever reads it has proved the rest.
            _identified(publisher, connection, database, record)
        else:
            continuation(publisher, connection, database, record)
    except MustBeReinitializedError as error:
        return error
    return None


def continuation(
    publisher: PostgresPublisher, connection: Connection, database: DistributionDatabase, record: PublicationRecord
) -> Continuation:
    """Prove that the registered position is one of this log. Changes nothing.

    Raises MustBeReinitializedError where it is not, or where log is lost that was not read; TransientError where the
    slot is in use.
    """
    log = _identified(publisher, connection, database, record)
    slot = publisher.ready_slot()
    if slot.confirmed_flush_lsn > (record.registered_lsn or 0):
        # Another log reader may have registered and advanced since; then it says so by now.
        record = database.publication(record.publication)
    left_at = None if log.timeline == record.timeline else log.left_at(record.timeline or 0)
    registered = min(record.registered_lsn or 0, left_at or record.registered_lsn or 0)
    if slot.confirmed_flush_lsn > registered:
        raise _slot_is_ahead(publisher, slot, registered)
    start, end = _proven_start(publisher, database, record, slot), publisher.end_of_log()
    snapshot = _latest_snapshot(database, record)
    if snapshot is not None and snapshot > end:
        raise _lost_snapshot(publisher, database, record, snapshot, f"ends at {lsn_text(end)}")
    if registered > end:
        registered = start
    return Continuation(record, registered, log.timeline, min(start, registered))


def _identified(
    publisher: PostgresPublisher, connection: Connection, database: DistributionDatabase, record: PublicationRecord
) -> LogIdentity:
    """Return the log's identity, where the registered transactions lie on its history of timelines."""
    log = read_log_identity(connection, record.timeline)
    if log.system != record.publisher_system:
        raise another_publisher(publisher.where, record.publication, record.publisher_system, log.system)
    if log.timeline == record.timeline:
        return log
    left_at, last = log.left_at(record.timeline or 0), _last_registered(record)
    if left_at is None:
        raise _went_back(
            publisher, database, record, f"its timeline {log.timeline} does not come from timeline {record.timeline}"
        )
    if last is not None and last >= left_at:
        raise _went_back(
            publisher,
            database,
            record,
            f"its timeline {log.timeline} left timeline {record.timeline} at {lsn_text(left_at)}, as after a standby "
            "was promoted or a backup restored that did not have all of the log",
        )
    snapshot = _latest_snapshot(database, record)
    if snapshot is not None and snapshot >= left_at:
        raise _lost_snapshot(
            publisher,
            database,
            record,
            snapshot,
            f"on timeline {log.timeline}, left timeline {record.timeline} at {lsn_text(left_at)}",
        )
    return log


def _proven_start(
    publisher: PostgresPublisher, database: DistributionDatabase, record: PublicationRecord, slot: Slot
) -> int:
    """Return the LSN before which everything is registered, and after which nothing is.

    A slot stands before the registered position after a job died between registering and advancing, after a crash of
    the server, which forgets advances since its last checkpoint, and after a restore.
    """
    last = _last_registered(record)
    if slot.confirmed_flush_lsn < (record.start_lsn or 0):
        raise _went_back(
            publisher,
            database,
            record,
            f"its slot stands at {lsn_text(slot.confirmed_flush_lsn)}, before reading it began, as after a backup was "
            "restored",
        )
    if slot.confirmed_flush_lsn == record.registered_lsn or last is None or last < slot.confirmed_flush_lsn:
        return slot.confirmed_flush_lsn
    if not publisher.holds_commit(last, record.registered_commit_time or _NO_TIME):
        raise _went_back(
            publisher, database, record, "it does not hold that transaction, as after a backup was restored"
        )
    return last + 1


def _last_registered(record: PublicationRecord) -> int | None:
    """Return the LSN of the last registered commit."""
    seqno = record.registered_xact_seqno
    return None if seqno is None else int.from_bytes(seqno, "big")


def _latest_snapshot(database: DistributionDatabase, record: PublicationRecord) -> int | None:
    """Return the LSN of the last snapshot, where it is of log that is not registered yet."""
    seqno = database.latest_snapshot(record)
    lsn = None if seqno is None else int.from_bytes(seqno, "big")
    return None if lsn is None or lsn < (record.registered_lsn or 0) else lsn


def _lost_snapshot(
    publisher: PostgresPublisher, database: DistributionDatabase, record: PublicationRecord, snapshot: int, why: str
) -> MustBeReinitializedError:
    return MustBeReinitializedError(
        f"{publisher.where}: the log went back. Rows were copied from it as of {lsn_text(snapshot)} of timeline "
        f"{record.timeline}, and it now {why}. {_ahead(database, record)}",
        remedy=REINITIALIZE,
        number=INCONSISTENT_DISTRIBUTION_DATABASE,
    )


def _went_back(
    publisher: PostgresPublisher, database: DistributionDatabase, record: PublicationRecord, why: str
) -> MustBeReinitializedError:
    seqno, last = record.registered_xact_seqno, _last_registered(record)
    up_to = (
        f"transaction 0x{seqno.hex()} ({lsn_text(last)})" if seqno and last else lsn_text(record.registered_lsn or 0)
    )
    return MustBeReinitializedError(
        f"{publisher.where}: the log went back. It is registered up to {up_to} of timeline {record.timeline}, but "
        f"{why}. {_ahead(database, record)}",
        remedy=REINITIALIZE,
        number=INCONSISTENT_DISTRIBUTION_DATABASE,
    )


def _ahead(database: DistributionDatabase, record: PublicationRecord) -> str:
    """Describe how far the Subscribers are, as the history has it."""
    stand = {it.subscription: database.last_known_watermark(record, it) for it in database.living_subscriptions(record)}
    said = [f"{name} up to 0x{seqno.hex()}" for name, seqno in stand.items() if seqno]
    return f"Subscribers are ahead: {', '.join(said)}" if said else "Nothing was delivered yet"


def _slot_is_ahead(publisher: PostgresPublisher, slot: Slot, registered: int) -> ConfigurationError:
    return MustBeReinitializedError(
        f"{publisher.where}: replication slot {slot.name} stands at {lsn_text(slot.confirmed_flush_lsn)}, but the log "
        f"is registered only up to {lsn_text(registered)}: changes between the two are lost. The slot was advanced or "
        "made anew by somebody else, or the distribution database was restored from a backup",
        remedy=REINITIALIZE,
        number=INCONSISTENT_DISTRIBUTION_DATABASE,
    )
