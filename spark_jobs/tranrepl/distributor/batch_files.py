"""Files of registered batches: what is not as it was registered is an error that names the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from tranrepl.distributor.command_store import path_in
from tranrepl.distributor.database import Batch, PublicationRecord
from tranrepl.errors import ConfigurationError
from tranrepl.model.command_rows import ROW_LAYOUT

_SMALL_COMMANDS = 2_000
_SMALL_BYTES = 1024 * 1024
_AHEAD = 64
"""Small batches that are read before they are asked for, at most."""


def is_small(batch: Batch) -> bool:
    """Return whether the whole batch can be held in memory beside others."""
    return batch.commands <= _SMALL_COMMANDS and batch.log_bytes <= _SMALL_BYTES


def read_small(record: PublicationRecord, batch: Batch) -> pa.Table:
    """Return all commands of a small batch (row layout). It is checked as it is read: a look at each file before takes
    as long. Raises ConfigurationError where it is gone or damaged."""
    try:
        rows = _table(record.store.read(batch.folder))
    except (OSError, ValueError) as error:
        raise damaged(record, batch, error) from error
    seqnos = rows["xact_seqno"]
    _require_own(record, batch, len(rows), lambda: (seqnos[0].as_py(), seqnos[-1].as_py()))
    return rows


def read_each(record: PublicationRecord, batches: Sequence[Batch]) -> Iterator[pa.Table]:
    """Yield the commands of each of many small batches, in order. Raises what `read_small` does."""
    at_once = min(record.store.reads_at_once, len(batches))
    if at_once <= 1:
        yield from map(partial(read_small, record), batches)
        return
    with ThreadPoolExecutor(at_once) as threads:
        for first in range(0, len(batches), _AHEAD):
            yield from threads.map(partial(read_small, record), batches[first : first + _AHEAD])


def _table(content: bytes) -> pa.Table:
    with pq.ParquetFile(pa.BufferReader(content)) as stored:
        rows = stored.read(use_threads=False)
    return rows if rows.schema.equals(ROW_LAYOUT) else rows.cast(ROW_LAYOUT)


def require_all_commands(record: PublicationRecord, batch: Batch) -> None:
    """Raise ConfigurationError where a batch lacks commands, by its file's own account."""
    stored = _metadata(record, batch)
    # The last row group is empty where row filters let nothing through at the end of what was read.
    groups = [it for it in map(stored.row_group, range(stored.num_row_groups)) if it.num_rows]
    ends = [it.column(0).statistics for it in groups]
    if not all(it is not None and it.has_min_max for it in ends):
        raise damaged(record, batch, "it does not say which transactions it holds")
    _require_own(record, batch, stored.num_rows, lambda: (bytes(ends[0].min), bytes(ends[-1].max)))


def _require_own(
    record: PublicationRecord, batch: Batch, commands: int, ends: Callable[[], tuple[bytes, bytes]]
) -> None:
    """Raise ConfigurationError where a batch has other than so many commands, or those of other transactions: they
    would be left out as not of the range that is delivered."""
    if commands != batch.commands:
        raise damaged(record, batch, f"it holds {commands} commands, {batch.commands} are registered")
    first, last = ends() if commands else (batch.first_xact_seqno, batch.last_xact_seqno)
    if first < batch.first_xact_seqno or last > batch.last_xact_seqno:
        raise damaged(record, batch, "it holds commands of other transactions than are registered")


def _metadata(record: PublicationRecord, batch: Batch) -> pq.FileMetaData:
    try:
        with record.store.open(batch.folder) as file:
            return pq.read_metadata(file)
    except (OSError, ValueError) as error:
        raise damaged(record, batch, error) from error


def damaged(record: PublicationRecord, batch: Batch, problem: Exception | str) -> ConfigurationError:
    """Return the error of a batch that is not in the store as it was registered."""
    missing = isinstance(problem, FileNotFoundError)
    what = "it is not there" if missing else " ".join(str(problem).split()).rstrip(".")
    first, last = batch.first_xact_seqno.hex(), batch.last_xact_seqno.hex()
    transactions = f"transaction 0x{first}" if first == last else f"transactions 0x{first} to 0x{last}"
    return ConfigurationError(
        f"store: batch {batch.folder} cannot be read: {what}. Its commands are of {transactions}; nothing "
        "from there on is delivered",
        remedy=f"restore {path_in(record.store, batch.folder)} from a backup of the store. Where there is none, "
        "`tranrepl reinitialize FILE -s NAME` copies the rows again, or, with sync_type replication_support_only, "
        "passes over these transactions: `tranrepl validate FILE -s NAME --repair` corrects their rows then",
        xact_seqno=batch.first_xact_seqno.hex(),
        damaged_batch=True,
    )
