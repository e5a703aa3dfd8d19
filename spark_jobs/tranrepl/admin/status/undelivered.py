"""What is stored and not delivered, counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tranrepl.distributor.database import Batch, PublicationRecord
from tranrepl.distributor.stored_commands import StoredCount, count_after
from tranrepl.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Undelivered:
    transactions: int
    commands: int
    at_most: bool
    """The store cannot be read from here: the batch that the watermark is inside of counts as a whole."""
    since: datetime | None
    """When the first of them was committed; None where there is none."""


def undelivered_after(record: PublicationRecord, batches: Sequence[Batch], watermark: bytes) -> Undelivered:
    """Count what these batches, in order, have after the watermark. Only the one that the watermark is inside of is
    read: of the others all is undelivered, and its size is registered."""
    inside = [it for it in batches if it.first_xact_seqno <= watermark]
    whole = [it for it in batches if it.first_xact_seqno > watermark]
    at_most = False
    try:
        parts = [count_after(record, it, watermark) for it in inside]
    except ConfigurationError:
        at_most = True
        parts = [_all_of(it) for it in inside]
    counts = [it for it in (*parts, *map(_all_of, whole)) if it.commands]
    return Undelivered(
        transactions=sum(it.transactions for it in counts),
        commands=sum(it.commands for it in counts),
        at_most=at_most,
        since=counts[0].since if counts else None,
    )


def _all_of(batch: Batch) -> StoredCount:
    return StoredCount(batch.transactions, batch.commands, batch.first_commit_time)
