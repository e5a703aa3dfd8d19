"""Whether what is registered lies on the Publisher's log, and where reading goes on: checked before every run.

How it is proved is the Publisher's own (`Publisher.continuation`); it gets what is registered from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tranrepl.distributor.database import DistributionDatabase, PublicationRecord
from tranrepl.distributor.database.publications import another_publisher
from tranrepl.errors import MustBeReinitializedError
from tranrepl.model.position import FIRST_POSITION, Position
from tranrepl.publisher.continuity import Continuation, LogIdentity
from tranrepl.publisher.publisher import Publisher


@dataclass(slots=True)
class RegisteredPublication:
    """What the distribution database knows of a publication's log: a `RegisteredLog`."""

    database: DistributionDatabase
    record: PublicationRecord

    @property
    def position(self) -> Position:
        return self.record.registered_to or FIRST_POSITION

    @property
    def start(self) -> Position | None:
        return self.record.read_from

    @property
    def timeline(self) -> int | None:
        return self.record.timeline

    @property
    def last(self) -> bytes | None:
        return self.record.registered_xact_seqno

    @property
    def proof(self) -> str | None:
        return self.record.registered_proof

    @property
    def last_commit_time(self) -> datetime | None:
        return self.record.registered_commit_time

    def renew(self) -> None:
        self.record = self.database.publications.get(self.record.publication)

    def latest_snapshot(self) -> bytes | None:
        return self.database.snapshots.latest(self.record)

    def delivered(self) -> str:
        """Return how far the Subscribers are, as the history has it."""
        living = self.database.subscriptions.living(self.record)
        stand = {it.subscription: self.database.history.last_known_watermark(self.record, it) for it in living}
        said = [f"{name} up to 0x{seqno.hex()}" for name, seqno in stand.items() if seqno]
        return f"Subscribers are ahead: {', '.join(said)}" if said else "Nothing was delivered yet"


def find_break(
    publisher: Publisher, database: DistributionDatabase, record: PublicationRecord
) -> MustBeReinitializedError | None:
    """Return what keeps the log from being read on, for good; None where nothing does. Changes nothing."""
    try:
        identity = _identity(publisher, record)
        publisher.require_unbroken(identity, RegisteredPublication(database, record))
    except MustBeReinitializedError as error:
        return error
    return None


def continuation(
    publisher: Publisher, database: DistributionDatabase, record: PublicationRecord
) -> tuple[PublicationRecord, Continuation]:
    """Prove that the registered position is one of this log; the record, as it is registered by then. Changes nothing.

    Raises MustBeReinitializedError where it is not, or where log is lost that was not read; TransientError where
    another session reads the log.
    """
    registered = RegisteredPublication(database, record)
    found = publisher.continuation(_identity(publisher, record), registered)
    return registered.record, found


def _identity(publisher: Publisher, record: PublicationRecord) -> LogIdentity:
    identity = publisher.identity(record.timeline)
    if identity.system != record.publisher_system:
        raise another_publisher(publisher.where, record.publication, record.publisher_system, identity.system)
    return identity
