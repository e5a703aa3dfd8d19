"""What a log reader opens before it reads, and the agreement of slot and watermark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tranrepl.connections import Connection
from tranrepl.distributor.database import DistributionDatabase, PublicationRecord
from tranrepl.log_reader.continuity import continuation
from tranrepl.publisher.postgres.publisher import PostgresPublisher
from tranrepl.topology import Topology


@dataclass(frozen=True, slots=True)
class OpenLogReader:
    database: DistributionDatabase
    record: PublicationRecord
    publisher: PostgresPublisher
    connection: Connection
    start_lsn: int
    """Where the first reading begins: where the log is registered to, or earlier, and no transaction is between."""


@contextmanager
def open_log_reader(topology: Topology) -> Iterator[OpenLogReader]:
    """Connect to the distribution database and the Publisher, and bring the slot to the registered position.

    Raises MustBeReinitializedError where the slot is missing or invalidated, or the log is not the one that is
    registered any more, TransientError where the slot is in use.
    """
    connection = topology.publisher_connection
    with topology.distributor() as database:
        record = database.publication(topology.publication.publication)
        with topology.publisher("tranrepl log reader") as publisher:
            record, start = _agreed(publisher, connection, database, record)
            yield OpenLogReader(database, record, publisher, connection, start)


def _agreed(
    publisher: PostgresPublisher, connection: Connection, database: DistributionDatabase, record: PublicationRecord
) -> tuple[PublicationRecord, int]:
    """Return the record, and where to read from, once slot and registered position are on one log."""
    proven = continuation(publisher, connection, database, record)
    record = proven.record
    if (record.registered_lsn, record.timeline) != (proven.registered_lsn, proven.timeline):
        record = database.renew_position(record, proven.registered_lsn, proven.timeline)
    # A job that died between registering its batch and advancing the slot leaves it behind.
    publisher.advance(proven.start_lsn)
    publisher.advance_restart_lsn()
    return record, proven.start_lsn
