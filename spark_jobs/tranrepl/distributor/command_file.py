"""A batch's commands as one Parquet file, written where the log is decoded.

Rows that pass from Python through Spark's JVM into Parquet cost more than all of their decoding, and more still while
the JVM is young. So the Python worker writes the store itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pyarrow as pa
import pyarrow.parquet as pq

from tranrepl.distributor.command_store import CommandStore, NewFile, new_folder
from tranrepl.errors import ReplicationError
from tranrepl.failpoint import Failpoint, reach
from tranrepl.model.command_rows import ROW_LAYOUT

_ROW_GROUP_BYTES = 8 * 1024 * 1024
_NOT_WORTH_COMPRESSING = 16 * 1024
_ORDERING = ["xact_seqno", "commit_time"]


def write_commands(store: CommandStore, batches: Iterable[pa.RecordBatch]) -> str:
    """Write commands (row layout) to a folder of the store. Return the folder, which no other attempt has.

    Raises ReplicationError where the store cannot be written, and what `batches` raises; nothing is left there then.
    """
    with _new_file(store) as file, ThreadPoolExecutor(1) as thread:
        written: Future[None] = thread.submit(file.open)
        for group in _row_groups(batches):
            written.result()
            written = thread.submit(file.write, group)
        written.result()
        file.close()
    return file.folder


def write_few_commands(store: CommandStore, batches: Iterable[pa.RecordBatch]) -> str:
    """Do what `write_commands` does, where they are so few that a thread takes longer to begin."""
    with _new_file(store) as file:
        file.open()
        for group in _row_groups(batches):
            file.write(group)
        file.close()
    return file.folder


def discard(store: CommandStore, folders: Iterable[str]) -> None:
    """Remove folders that will never be registered. Where that fails, clean-up removes them."""
    with suppress(ReplicationError):
        store.remove(folders)


@contextmanager
def _new_file(store: CommandStore) -> Iterator[_File]:
    file = _File(store, new_folder())
    try:
        yield file
    except BaseException:
        file.abandon()
        raise
    reach(Failpoint.STORED)


class _File:
    def __init__(self, store: CommandStore, folder: str) -> None:
        self._store = store
        self.folder = folder
        self._file: NewFile | None = None
        self._writer: pq.ParquetWriter | None = None

    def open(self) -> None:
        self._file = self._store.new_file(self.folder)

    def write(self, commands: pa.Table) -> None:
        self._writer_for(commands).write_table(commands)

    def _writer_for(self, commands: pa.Table) -> pq.ParquetWriter:
        """Return the writer; it is made for the first commands."""
        if self._writer is None:
            # Values of one column of the layout come from many columns of many tables: zstd does better by itself.
            # A few commands take a block or two in any case, and no longer to read than need be.
            compression = "none" if commands.nbytes < _NOT_WORTH_COMPRESSING else "zstd"
            self._writer = pq.ParquetWriter(
                self._file, ROW_LAYOUT, compression=compression, use_dictionary=False, write_statistics=_ORDERING
            )
        return self._writer

    def close(self) -> None:
        self._writer_for(ROW_LAYOUT.empty_table()).close()
        if self._file is not None:
            self._file.close()

    def abandon(self) -> None:
        """Close what will never be read: a Python worker lives on."""
        if self._file is not None:
            self._file.abandon()
        with suppress(Exception):
            if self._writer is not None:
                self._writer.close()


def _row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= _ROW_GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)
