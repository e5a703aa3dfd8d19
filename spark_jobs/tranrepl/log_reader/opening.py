"""What a log reader opens before it reads, and the agreement of the log and what is registered of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

from tranrepl.distributor.database import DistributionDatabase, PublicationRecord
from tranrepl.log_reader.continuity import continuation
from tranrepl.log_reader.log_handover import with_log_handover
from tranrepl.model.position import Position
from tranrepl.publisher.publisher import Publisher
from tranrepl.topology import Topology


@dataclass(frozen=True, slots=True)
class OpenLogReader:
    database: DistributionDatabase
    record: PublicationRecord
    publisher: Publisher
    start: Position
    """Where the first reading begins: where the log is registered to, or earlier, and no transaction is between."""


@contextmanager
def open_log_reader(
    topology: Topology, opened: DistributionDatabase | None = None, *, ask: bool = True
) -> Iterator[OpenLogReader]:
    """Connect to the Publisher, and to the distribution database unless it is `opened`, and let the log be kept from
    the registered position.

    Raises MustBeReinitializedError where the log is kept no more, or is not the one that is registered, TransientError
    where another session reads it. A continuous log reader is asked for the hand-over before, unless `ask` is False.
    """
    with topology.distributor() if opened is None else nullcontext(opened) as database:
        record = database.publications.get(topology.publication.publication)
        with topology.publisher("tranrepl log reader") as publisher:
            agree = partial(_agreed, publisher, database, record)
            record, start = with_log_handover(database, record.publication_id, agree) if ask else agree()
            yield OpenLogReader(database, record, publisher, start)


def _agreed(
    publisher: Publisher, database: DistributionDatabase, record: PublicationRecord
) -> tuple[PublicationRecord, Position]:
    """Return the record, and where to read from, once the log and the registered position are one."""
    record, proven = continuation(publisher, database, record)
    if (record.registered_to, record.timeline) != (proven.position, proven.timeline):
        record = database.publications.renew_position(record, proven.position, proven.timeline)
    # A job that died between registering its batch and advancing leaves the log behind.
    publisher.catch_up(proven.start)
    return record, proven.start
