"""A batch's commands as one Parquet file, written where the log is decoded.

Rows that pass from Python through Spark's JVM into Parquet cost more than all of their decoding, and more still while
the JVM is young. So a store on a path that machines mount is written by the Python worker itself.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from tranrepl.errors import ConfigurationError
from tranrepl.failpoint import Failpoint, reach
from tranrepl.model.command_rows import ROW_LAYOUT

_PUBLISHED = "part-0.parquet"
_ROW_GROUP_BYTES = 8 * 1024 * 1024
_NOT_WORTH_COMPRESSING = 16 * 1024
_ORDERING = ["xact_seqno", "commit_time"]
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def mounted_path(path: str) -> Path | None:
    """Return the folder, where a store has no scheme or `file:`; None for another file system."""
    parts = urlsplit(path)
    if parts.scheme == "":
        return Path(path)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def write_commands(folder: Path, batches: Iterable[pa.RecordBatch]) -> str:
    """Write commands (row layout) to a file that no reader sees yet, and that a crash of the machine leaves whole.
    Returns its name, which no other attempt has, for `publish`.

    Raises ConfigurationError where the store cannot be written, and what `batches` raises.
    """
    with _new_file(folder) as file, ThreadPoolExecutor(1) as thread:
        written: Future[None] = thread.submit(file.open)
        for group in _row_groups(batches):
            written.result()
            written = thread.submit(file.write, group)
        written.result()
        file.close()
    return file.name


def write_few_commands(folder: Path, batches: Iterable[pa.RecordBatch]) -> str:
    """Do what `write_commands` does, where they are so few that a thread takes longer to begin."""
    with _new_file(folder) as file:
        file.open()
        for group in _row_groups(batches):
            file.write(group)
        file.close()
    return file.name


@contextmanager
def _new_file(folder: Path) -> Iterator[_File]:
    file = _File(folder, f"_{uuid.uuid4().hex}")
    try:
        yield file
    except BaseException:
        file.abandon()
        raise
    reach(Failpoint.STAGED)


def publish(folder: Path, name: str) -> None:
    """Let readers see the file. Raises ConfigurationError where the store cannot be written."""
    with _store_errors(folder):
        (folder / name).replace(folder / _PUBLISHED)
        for changed in (folder, folder.parent):
            _sync(changed)
    reach(Failpoint.PUBLISHED)


def read_published(folder: str) -> list[bytes]:
    """Return the content of each file that readers see of a batch, in order. Of a batch that `publish` has made it
    asks the store once."""
    try:
        return [_content(f"{folder}/{_PUBLISHED}")]
    except FileNotFoundError:
        # One that Spark wrote.
        return [_content(str(file)) for file in stored_files(Path(folder))]


def _content(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 — for small files, a Path takes as long as the file
        return file.read()


def stored_files(folder: Path) -> list[Path]:
    """Return the files that readers see of a batch, in order."""
    if not folder.is_dir():
        return []
    return sorted(it for it in folder.iterdir() if it.name.endswith(".parquet") and it.name[0] not in "_.")


def count_commands(folder: Path) -> int:
    """Count commands by the files' own account. Raises OSError or ValueError where one cannot be read."""
    return sum(pq.read_metadata(file).num_rows for file in stored_files(folder))


class _File:
    """Errors are ConfigurationError."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self.name = name
        self._writer: pq.ParquetWriter | None = None
        self._opened: list[BinaryIO | pq.ParquetWriter] = []

    def open(self) -> None:
        with _store_errors(self._folder):
            make_private(self._folder)
            self._file = new_private_file(self._folder / self.name)
            self._opened.append(self._file)

    def write(self, commands: pa.Table) -> None:
        with _store_errors(self._folder):
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
            self._opened.append(self._writer)
        return self._writer

    def close(self) -> None:
        with _store_errors(self._folder), self._file:
            self._writer_for(ROW_LAYOUT.empty_table()).close()
            self._file.flush()
            os.fsync(self._file.fileno())

    def abandon(self) -> None:
        """Close what will never be read: a Python worker lives on."""
        for end in reversed(self._opened):
            with suppress(OSError, ValueError):
                end.close()


def _row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(it.nbytes for it in held) >= _ROW_GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def new_private_file(path: Path) -> BinaryIO:
    """Create a file that is not there for this user alone, under any umask, and open it for writing."""
    file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode=0o600), "wb")
    os.fchmod(file.fileno(), 0o600)
    return file


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for this user alone, under any umask."""
    missing = [it for it in (folder, *folder.parents) if not it.exists()]
    for it in reversed(missing):
        it.mkdir(mode=0o700, exist_ok=True)
        it.chmod(0o700)


def _sync(folder: Path) -> None:
    """Make what was renamed or created in a folder survive a crash of the machine."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _store_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in _FULL
        raise ConfigurationError(
            f"store: {folder} cannot be written: {error.strerror or error}",
            remedy="make room in the store" if full else "distributor.store must be a path that Spark can write",
        ) from error
