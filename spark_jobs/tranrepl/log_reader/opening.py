"""What a log reader opens before it reads, and the agreement of slot and watermark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tranrepl.connections import Connection
from tranrepl.distributor.database import DistributionDatabase, PublicationRecord
from tranrepl.errors import ConfigurationError
from tranrepl.jobs import LogReaderRequest
from tranrepl.postgres import connect
from tranrepl.publisher.lsn import lsn_text
from tranrepl.publisher.postgres import PostgresPublisher


@dataclass(frozen=True, slots=True)
class OpenLogReader:
    database: DistributionDatabase
    record: PublicationRecord
    publisher: PostgresPublisher
    connection: Connection


@contextmanager
def open_log_reader(request: LogReaderRequest, connections: Mapping[str, Connection]) -> Iterator[OpenLogReader]:
    """Connect to the distribution database and the Publisher, and bring the slot to the registered position.

    Raises ConfigurationError where the slot is missing, invalidated or past that position, TransientError where it is
    in use.
    """
    publication = request.publication
    connection = connections[publication.publisher.connection]
    database = DistributionDatabase(connections[publication.distributor.connection])
    try:
        record = database.publication(publication.publication)
        with connect(connection, "tranrepl log reader", autocommit=True) as session:
            publisher = PostgresPublisher(session, publication.publication)
            record = _agreed(publisher, database, record)
            yield OpenLogReader(database, record, publisher, connection)
    finally:
        database.close()


def _agreed(
    publisher: PostgresPublisher, database: DistributionDatabase, record: PublicationRecord
) -> PublicationRecord:
    slot = publisher.ready_slot()
    if slot.confirmed_flush_lsn > (record.registered_lsn or 0):
        # Another log reader may have registered and advanced since; then it says so by now.
        record = database.publication(record.publication)
    registered = record.registered_lsn or 0
    if slot.confirmed_flush_lsn > registered:
        raise ConfigurationError(
            f"{publisher.where}: replication slot {slot.name} stands at {lsn_text(slot.confirmed_flush_lsn)}, but "
            f"the log is registered only up to {lsn_text(registered)}: changes between the two are lost",
            remedy="somebody else advanced the slot, or the distribution database was restored from a backup: "
            "initialise the subscriptions anew",
            number="18846",
        )
    # A job that died between registering its batch and advancing the slot leaves it behind.
    publisher.advance(registered)
    publisher.advance_restart_lsn()
    return record
