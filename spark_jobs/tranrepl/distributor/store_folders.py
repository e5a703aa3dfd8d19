"""The command store's folders, written, listed and removed without Spark, and the room that its disk has."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from pyarrow import ArrowInvalid, ArrowNotImplementedError, fs

from tranrepl.distributor.command_file import mounted_path
from tranrepl.errors import ConfigurationError

_FOLDER = re.compile(r"[0-9a-f]{32}")
"""Pattern of the names that `store.new_folder` gives: anything else in the store is left alone."""


def store_filesystem(path: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path of the store, without Spark, and the path there."""
    filesystem, inside = fs.FileSystem.from_uri(path.replace("s3a://", "s3://", 1))
    return filesystem, inside


class StoreFolders:
    """Raises ConfigurationError where the store cannot be reached or changed from here."""

    def __init__(self, store: str) -> None:
        self._store = store
        mounted = mounted_path(store)
        with self._errors():
            if mounted is not None:
                self._files, self._base = fs.LocalFileSystem(), str(mounted)
            else:
                self._files, self._base = store_filesystem(store)

    def size(self) -> int:
        """Return how many bytes all batches take."""
        with self._errors():
            return sum(entry.size or 0 for _, entry in self._entries())

    def written_before(self, time: datetime) -> list[str]:
        """Return the batch folders in which nothing was written since."""
        newest: dict[str, datetime] = {}
        with self._errors():
            for name, entry in self._entries():
                # An object store has no times for folders.
                if entry.mtime is not None:
                    newest[name] = max(entry.mtime, newest.get(name, entry.mtime))
        return sorted(name for name, written in newest.items() if written < time)

    def read(self, name: str) -> str | None:
        """Return a small file of the store; None where it is not there."""
        with self._errors():
            path = f"{self._base.rstrip('/')}/{name}"
            if self._files.get_file_info(path).type is not fs.FileType.File:
                return None
            with self._files.open_input_stream(path) as stream:
                return bytes(stream.read()).decode(errors="replace")

    def remove_file(self, name: str) -> None:
        """Remove a file. Idempotent."""
        with self._errors():
            path = f"{self._base.rstrip('/')}/{name}"
            if self._files.get_file_info(path).type is fs.FileType.File:
                self._files.delete_file(path)

    def remove(self, folder: str) -> None:
        """Remove a folder. Idempotent."""
        with self._errors():
            path = f"{self._base.rstrip('/')}/{folder}"
            if self._files.get_file_info(path).type is fs.FileType.Directory:
                self._files.delete_dir(path)

    def _entries(self) -> Iterator[tuple[str, fs.FileInfo]]:
        """Yield what the batch folders hold, and they themselves, each with its folder's name."""
        selector = fs.FileSelector(self._base, allow_not_found=True, recursive=True)
        for entry in self._files.get_file_info(selector):
            name = entry.path.removeprefix(self._base.rstrip("/") + "/").split("/")[0]
            if _FOLDER.fullmatch(name):
                yield name, entry

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ArrowInvalid, ArrowNotImplementedError) as error:
            raise ConfigurationError(
                f"store: {self._store} cannot be cleaned up: {str(error).splitlines()[0]}",
                remedy="clean-up works on the store itself: it must be reachable and writable from here",
            ) from error


@dataclass(frozen=True, slots=True)
class StoreSpace:
    free_bytes: int
    free_percent: float
    """The part of its space or of its number of files, whichever is less."""


def store_space(store: str) -> StoreSpace | None:
    """Return what we may still use of the disk; None where the store is not mounted here, or not there."""
    folder = mounted_path(store)
    if folder is None:
        return None
    try:
        disk = os.statvfs(next(it for it in (folder, *folder.parents) if it.exists()))
    except (OSError, StopIteration):
        return None
    space = 100 * disk.f_bavail / disk.f_blocks if disk.f_blocks else 100.0
    files = 100 * disk.f_favail / disk.f_files if disk.f_files else 100.0
    return StoreSpace(disk.f_bavail * disk.f_frsize, min(space, files))
