"""Stored commands, read without Spark: what a person asks about a few of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from tranrepl.distributor.batch_files import damaged
from tranrepl.distributor.command_store import path_in
from tranrepl.distributor.database import Batch, PublicationRecord
from tranrepl.errors import ConfigurationError, ReplicationError
from tranrepl.model.position import seqnos_of_one_place

_ROWS_AT_ONCE = 1000


def read_batch(
    record: PublicationRecord, batch: Batch, chosen: pc.Expression, columns: Sequence[str] | None = None
) -> pa.Table:
    """Return the chosen commands of a batch. Raises ReplicationError where it cannot be read from here, or is
    damaged."""
    return pa.concat_tables(scan_batch(record, batch, chosen, columns))


def scan_batch(
    record: PublicationRecord, batch: Batch, chosen: pc.Expression, columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """Yield what `read_batch` returns, a bounded number at a time, in the order in which they were stored; at least
    one table."""
    # It loads pandas, and most that import this module read nothing.
    import pyarrow.dataset as ds

    try:
        with record.store.open(batch.folder) as file:
            scanner = (
                ds.ParquetFileFormat()
                .make_fragment(file)
                .scanner(
                    filter=chosen,
                    columns=None if columns is None else list(columns),
                    batch_size=_ROWS_AT_ONCE,
                    batch_readahead=1,
                    fragment_readahead=1,
                )
            )
            yield scanner.projected_schema.empty_table()
            for rows in scanner.to_batches():
                yield pa.Table.from_batches([rows])
    except (FileNotFoundError, PermissionError) as error:
        raise ConfigurationError(
            f"store: {path_in(record.store, batch.folder)} cannot be read: {str(error).splitlines()[0]}",
            remedy="this reads the store itself: it must be reachable from here",
        ) from error
    except (OSError, pa.ArrowInvalid) as error:
        raise damaged(record, batch, error) from error


def first_transaction(record: PublicationRecord, batches: Sequence[Batch], after: bytes) -> bytes | None:
    """Return the `xact_seqno` of the first stored transaction after another one; None where there is none."""
    for batch in batches:
        later = pc.field("xact_seqno") > pa.scalar(after, pa.binary())
        seqnos = read_batch(record, batch, later, ["xact_seqno"])["xact_seqno"]
        if len(seqnos):
            return bytes(pc.min(seqnos).as_py())
    return None


def holds_transaction(record: PublicationRecord, batches: Sequence[Batch], xact_seqno: bytes) -> bool:
    """Return whether a transaction of this place in the log is among these batches, as far as is known here: a
    store that cannot be read may hold it."""
    first, last = seqnos_of_one_place(xact_seqno)
    same = (pc.field("xact_seqno") >= pa.scalar(first, pa.binary())) & (
        pc.field("xact_seqno") <= pa.scalar(last, pa.binary())
    )
    for batch in batches:
        try:
            if len(read_batch(record, batch, same, ["xact_seqno"])):
                return True
        except ReplicationError:
            return True
    return False


def is_stored(record: PublicationRecord, batches: Sequence[Batch], xact_seqno: bytes) -> bool:
    """Return whether a transaction's commands are among those of these batches."""
    own = [it for it in batches if it.first_xact_seqno <= xact_seqno <= it.last_xact_seqno]
    same = pc.field("xact_seqno") == pa.scalar(xact_seqno, pa.binary())
    return any(len(read_batch(record, it, same, ["xact_seqno"])) for it in own)


@dataclass(frozen=True, slots=True)
class StoredCount:
    transactions: int = 0
    commands: int = 0
    since: datetime | None = None
    """When the first of them was committed; None where there is none."""


def count_after(record: PublicationRecord, batch: Batch, xact_seqno: bytes) -> StoredCount:
    """Return how much of one batch comes after a transaction. Two columns are read, and of them what comes after.

    Raises ConfigurationError where the store cannot be read from here.
    """
    later = pc.field("xact_seqno") > pa.scalar(xact_seqno, pa.binary())
    transactions, commands, since, last = 0, 0, None, None
    for rows in scan_batch(record, batch, later, ["xact_seqno", "commit_time"]):
        if not len(rows):
            continue
        seqnos = rows["xact_seqno"]
        # A transaction may go on from one piece to the next.
        goes_on = seqnos[0].as_py() == last
        transactions += pc.count_distinct(seqnos).as_py() - int(goes_on)
        commands += len(rows)
        since, last = since or rows["commit_time"][0].as_py(), seqnos[-1].as_py()
    return StoredCount(transactions, commands, since)
