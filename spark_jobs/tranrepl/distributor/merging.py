"""Small batches put together: consecutive ones become one, in one folder.

A log reader that looks every second leaves a folder a second. Nobody waits for a merge: the new folder exists for no
reader until one transaction registers it in the place of the others, whose folders are kept for as long as those that a
killed job left. A delivery that has not read one by then asks again what is registered.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import pyarrow as pa

from tranrepl.distributor.batch_files import is_small, read_each
from tranrepl.distributor.command_file import discard, write_commands
from tranrepl.distributor.database import Batch, DistributionDatabase, PublicationRecord
from tranrepl.distributor.database.batches import definitions_of
from tranrepl.errors import ConfigurationError
from tranrepl.failpoint import Failpoint, reach

FEWEST_BATCHES = 10
"""Fewer are not worth writing their commands once more."""
MOST_COMMANDS = 50_000
MOST_BYTES = 32 * 1024 * 1024
LONGEST_SPAN = timedelta(hours=1)
"""From the first commit to the last of what is put together, and between registrations: retention is in hours."""
_COPIED = 256
"""Batches whose rows are copied together: what is held of each file is far more than its few rows."""

log = logging.getLogger(__name__)


def merge_small_batches(
    database: DistributionDatabase, record: PublicationRecord, watermarks: Collection[bytes]
) -> int:
    """Put small batches together, but none that a Subscriber at one of these watermarks has with one that it has not.
    Return how many there were of those that are one now.

    Idempotent. Raises ReplicationError where the store cannot be written.
    """
    runs = list(mergeable(database.batches.entered(record), watermarks))
    return sum(len(run.batches) for run in runs if _merge(database, record, run))


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive batches to be put together, with the time when the last of them was registered."""

    batches: tuple[Batch, ...]
    entry_time: datetime

    def joined(self, folder: str) -> Batch:
        """Return them as one batch, in a folder."""
        ids = definitions_of(self.batches)
        return Batch(
            folder,
            self.batches[0].first_xact_seqno,
            self.batches[-1].last_xact_seqno,
            min(it.first_commit_time for it in self.batches),
            max(it.last_commit_time for it in self.batches),
            sum(it.transactions for it in self.batches),
            sum(it.commands for it in self.batches),
            sum(it.log_bytes for it in self.batches),
            next((it.clock_difference for it in reversed(self.batches) if it.clock_difference is not None), None),
            article_ids=None if ids is None else tuple(sorted(ids)),
        )


def mergeable(entered: Sequence[tuple[Batch, datetime]], watermarks: Collection[bytes]) -> Iterator[Run]:
    """Yield what to put together of registered batches, which are given in commit order with the times when they were
    registered."""
    run = _Growing()
    for batch, entry_time in entered:
        if run.batches and not run.takes(batch, entry_time, watermarks):
            yield from run.ended()
            run = _Growing()
        if _is_mergeable(batch):
            run.add(batch, entry_time)
    yield from run.ended()


def _is_mergeable(batch: Batch) -> bool:
    """Return whether it is small, and of the log: what setup stored was committed at no time that means anything."""
    return is_small(batch) and batch.log_bytes > 0


class _Growing:
    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self._entered: list[datetime] = []
        self._commands = self._bytes = 0

    def add(self, batch: Batch, entry_time: datetime) -> None:
        self.batches.append(batch)
        self._entered.append(entry_time)
        self._commands += batch.commands
        self._bytes += batch.log_bytes

    def takes(self, batch: Batch, entry_time: datetime, watermarks: Collection[bytes]) -> bool:
        return (
            _is_mergeable(batch)
            and self._commands + batch.commands <= MOST_COMMANDS
            and self._bytes + batch.log_bytes <= MOST_BYTES
            and entry_time - self._entered[0] <= LONGEST_SPAN
            and batch.last_commit_time - self.batches[0].first_commit_time <= LONGEST_SPAN
            and not any(self.batches[-1].last_xact_seqno <= it < batch.first_xact_seqno for it in watermarks)
        )

    def ended(self) -> Iterator[Run]:
        if len(self.batches) >= FEWEST_BATCHES:
            yield Run(tuple(self.batches), max(self._entered))


def _merge(database: DistributionDatabase, record: PublicationRecord, run: Run) -> bool:
    """Put batches together; return whether they are one now."""
    try:
        merged = run.joined(write_commands(record.store, _commands(record, run.batches)))
    except ConfigurationError as error:
        if not error.report.damaged_batch:
            raise
        log.warning("small batches are not put together: %s", error.message)
        return False
    reach(Failpoint.MERGED)
    registered = database.batches.replace(record, run.batches, merged, run.entry_time)
    reach(Failpoint.MERGE_REGISTERED)
    if not registered:
        discard(record.store, [merged.folder])
    return registered


def _commands(record: PublicationRecord, batches: Sequence[Batch]) -> Iterator[pa.RecordBatch]:
    for first in range(0, len(batches), _COPIED):
        commands = pa.concat_tables(read_each(record, batches[first : first + _COPIED]))
        yield from commands.combine_chunks().to_batches()
