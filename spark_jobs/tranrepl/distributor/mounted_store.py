"""The command store on a path that machines mount, for its user alone."""

from __future__ import annotations

import errno
import getpass
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from tranrepl.distributor.command_store import FILE, FOLDER, TRIED_BYTES, StoredFolder, StoreSpace, new_folder
from tranrepl.errors import ConfigurationError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, slots=True)
class MountedStore:
    """A `CommandStore`."""

    url: str
    path: Path

    @property
    def gathering_interval(self) -> float:
        return 0.02

    @property
    def reads_at_once(self) -> int:
        return 1

    def new_file(self, folder: str) -> _NewFile:
        return _NewFile(self.path / folder)

    def read(self, folder: str) -> bytes:
        with open(f"{self.path}/{folder}/{FILE}", "rb", buffering=0) as file:  # noqa: PTH123 — for small files, a Path takes as long as the file
            return file.read()

    def open(self, folder: str) -> pa.NativeFile:
        return pa.OSFile(f"{self.path}/{folder}/{FILE}")

    def folders(self) -> Iterator[StoredFolder]:
        with _errors(self.path, "be listed"):
            for folder in self.path.iterdir() if self.path.is_dir() else ():
                # Another job may remove it meanwhile.
                with suppress(FileNotFoundError, NotADirectoryError):
                    if FOLDER.fullmatch(folder.name):
                        found = [it.stat() for it in (folder, *folder.iterdir())]
                        written = datetime.fromtimestamp(max(it.st_mtime for it in found), UTC)
                        yield StoredFolder(folder.name, written, sum(it.st_size for it in found[1:]))

    def remove(self, folders: Iterable[str]) -> None:
        with _errors(self.path, "be cleaned up"):
            for folder in folders:
                with suppress(FileNotFoundError):
                    shutil.rmtree(self.path / folder)

    def read_text(self, name: str) -> str | None:
        with _errors(self.path / name, "be read", "let this user read and write all of the store"):
            with suppress(FileNotFoundError, NotADirectoryError):
                return (self.path / name).read_text(errors="replace")
            return None

    def write_text(self, name: str, text: str) -> None:
        written = self.path / f"{name}.{new_folder()}"
        with _errors(self.path, "be written"):
            _make_private(self.path)
            with _new_private_file(written) as file:
                file.write(text.encode())
            with suppress(FileExistsError):
                (self.path / name).hardlink_to(written)
            written.unlink()

    def remove_text(self, name: str) -> None:
        with _errors(self.path, "be cleaned up"):
            (self.path / name).unlink(missing_ok=True)

    def space(self) -> StoreSpace | None:
        try:
            disk = os.statvfs(next(it for it in (self.path, *self.path.parents) if it.exists()))
        except (OSError, StopIteration):
            return None
        space = 100 * disk.f_bavail / disk.f_blocks if disk.f_blocks else 100.0
        files = 100 * disk.f_favail / disk.f_files if disk.f_files else 100.0
        return StoreSpace(disk.f_bavail * disk.f_frsize, min(space, files))

    def problems(self) -> Iterator[ConfigurationError]:
        """Yield what keeps it from being written: a folder with a file is made there, and removed again."""
        path, named = self.path, f"distributor.store: {self.url!r}"
        if not path.is_absolute():
            yield ConfigurationError(f"{named} is relative", remedy="allowed: an absolute path or a URL")
            return
        # Not Path.exists: it raises where a folder on the way may not be entered.
        nearest = next((parent for parent in (path, *path.parents) if os.path.exists(parent)), Path("/"))  # noqa: PTH110
        if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
            what = "is not a folder" if not nearest.is_dir() else "is not writable for this user"
            yield ConfigurationError(f"{named}: {nearest} {what}", remedy=_writable(nearest))
            return
        try:
            with tempfile.TemporaryDirectory(prefix="_tranrepl_check_", dir=nearest) as folder:
                Path(folder, "file").write_bytes(bytes(TRIED_BYTES))
        except OSError as error:
            denied = isinstance(error, PermissionError)
            yield ConfigurationError(
                f"{named}: {nearest} cannot be written: {error.strerror}",
                remedy=_writable(nearest) if denied else "make room there, or name another path to write to",
            )

    def warnings(self) -> Iterator[str]:
        """Yield what lets other users of the machine read it."""
        if not os.access(self.path, os.R_OK | os.X_OK):
            return
        with suppress(OSError):
            # A batch is removed while others are looked at.
            found = (it for folder in (self.path, *self.path.iterdir()) for it in (folder, *_files(folder)))
            wider = next((it for it in found if it.stat().st_mode & 0o077), None)
            if wider is not None:
                yield (
                    f"distributor.store: {self.url!r}: other users of this machine may read or enter {wider}; "
                    f"chmod -R u+rwX,go= {shlex.quote(str(self.path))}"
                )


class _NewFile:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            _make_private(folder)
            self._file = _new_private_file(folder / FILE)
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise _error(folder, "be written", error) from error

    @property
    def closed(self) -> bool:
        return self._file.closed

    def write(self, data: bytes, /) -> int:
        try:
            return self._file.write(data)
        except OSError as error:
            raise _error(self._folder, "be written", error) from error

    def flush(self) -> None:
        pass

    def close(self) -> None:
        with _errors(self._folder, "be written"):
            with self._file:
                self._file.flush()
                os.fsync(self._file.fileno())
            for made in (self._folder, self._folder.parent):
                _sync(made)

    def abandon(self) -> None:
        with suppress(OSError):
            self._file.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for this user alone, under any umask."""
    missing = [it for it in (folder, *folder.parents) if not it.exists()]
    for it in reversed(missing):
        it.mkdir(mode=0o700, exist_ok=True)
        it.chmod(0o700)


def _new_private_file(path: Path) -> BinaryIO:
    """Create a file that is not there for this user alone, under any umask, and open it for writing."""
    file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode=0o600), "wb")
    os.fchmod(file.fileno(), 0o600)
    return file


def _sync(folder: Path) -> None:
    """Make what was created in a folder survive a crash of the machine."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _files(folder: Path) -> Iterator[Path]:
    yield from islice(folder.iterdir() if folder.is_dir() else (), 1)


def _writable(folder: Path) -> str:
    """Return a remedy that says how this user gets a folder to write to."""
    if not folder.is_dir():
        return "allowed: a path to write to"
    return f"allowed: a path to write to; or, as root: chown {getpass.getuser()} {shlex.quote(str(folder))}"


@contextmanager
def _errors(path: Path, what: str, remedy: str | None = None) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _error(path, what, error, remedy) from error


def _error(path: Path, what: str, error: OSError, remedy: str | None = None) -> ConfigurationError:
    full = error.errno in _FULL
    return ConfigurationError(
        f"store: {path} cannot {what}: {error.strerror or error}",
        remedy="make room in the store" if full else remedy or "let this user read and write all of the store",
    )
