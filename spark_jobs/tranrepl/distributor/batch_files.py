"""Files of registered batches, in a store on a path that machines mount: what is not as it was registered is an error
that names the batch."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tranrepl.distributor.command_file import count_commands, mounted_path, read_published
from tranrepl.distributor.database import Batch, PublicationRecord
from tranrepl.distributor.store import folder_path
from tranrepl.errors import ConfigurationError
from tranrepl.model.command_rows import ROW_LAYOUT

_SMALL_COMMANDS = 2_000
_SMALL_BYTES = 1024 * 1024


def is_small(batch: Batch) -> bool:
    """Return whether the whole batch can be held in memory beside others."""
    return batch.commands <= _SMALL_COMMANDS and batch.log_bytes <= _SMALL_BYTES


def read_small(record: PublicationRecord, batch: Batch) -> pa.Table:
    """Return all commands of a small batch (row layout). It is checked as it is read: a look at each file before takes
    as long. Raises ConfigurationError where it is gone or damaged."""
    try:
        tables = [_table(content) for content in read_published(f"{_mounted_store(record.store)}/{batch.folder}")]
    except (OSError, ValueError) as error:
        raise damaged(record, batch, str(error)) from error
    require_count(record, batch, sum(map(len, tables)))
    return tables[0] if len(tables) == 1 else pa.concat_tables([ROW_LAYOUT.empty_table(), *tables])


@cache
def _mounted_store(store: str) -> Path:
    return mounted_path(store) or Path(store)


def _table(content: bytes) -> pa.Table:
    with pq.ParquetFile(pa.BufferReader(content)) as stored:
        rows = stored.read(use_threads=False)
    return rows if rows.schema.equals(ROW_LAYOUT) else rows.cast(ROW_LAYOUT)


def mounted_folder(record: PublicationRecord, batch: Batch) -> Path:
    """Return the folder of a batch in a store that is mounted."""
    return mounted_path(folder_path(record, batch.folder)) or Path(batch.folder)


def require_count(record: PublicationRecord, batch: Batch, commands: int) -> None:
    """Raise ConfigurationError where a batch has other than so many commands."""
    if commands != batch.commands:
        raise damaged(record, batch, f"it holds {commands} commands, {batch.commands} are registered")


def require_all_commands(record: PublicationRecord, batch: Batch) -> None:
    """Raise ConfigurationError where a batch lacks commands, in a store that is mounted here."""
    try:
        count = count_commands(mounted_folder(record, batch))
    except (OSError, ValueError) as error:
        raise damaged(record, batch, str(error)) from error
    require_count(record, batch, count)


def damaged(record: PublicationRecord, batch: Batch, problem: str) -> ConfigurationError:
    """Return the error of a batch that is not in the store as it was registered."""
    problem = " ".join(problem.split()).rstrip(".")
    return ConfigurationError(
        f"store: batch {batch.folder} cannot be read: {problem}. It holds transactions "
        f"{batch.first_xact_seqno.hex()} to {batch.last_xact_seqno.hex()}, and nothing after them is delivered",
        remedy=f"restore {folder_path(record, batch.folder)} from a backup of the store; where there is none, "
        "reinitialize the subscriptions",
        xact_seqno=batch.first_xact_seqno.hex(),
        damaged_batch=True,
    )
