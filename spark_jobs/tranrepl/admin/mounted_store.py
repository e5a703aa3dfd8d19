"""Check that this user can write the command store on a mounted path."""

from __future__ import annotations

import getpass
import os
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from tranrepl.distributor.command_file import mounted_path
from tranrepl.errors import ConfigurationError

_TRIED_BYTES = 64 * 1024


def store_problems(store: str) -> Iterator[ConfigurationError]:
    """Yield what keeps a store on a mounted path from being written: a folder with a file is made there, and removed
    again. Another path takes Spark's own way, for which there is a job (`store_check`)."""
    path = mounted_path(store)
    if path is None:
        return
    if not path.is_absolute():
        yield ConfigurationError(
            f"distributor.store: {store!r} is relative", remedy="allowed: an absolute path or a URL"
        )
        return
    # Not Path.exists: it raises where a folder on the way may not be entered.
    nearest = next((parent for parent in (path, *path.parents) if os.path.exists(parent)), Path("/"))  # noqa: PTH110
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        what = "is not a folder" if not nearest.is_dir() else "is not writable for this user"
        yield ConfigurationError(f"distributor.store: {store!r}: {nearest} {what}", remedy=_writable(nearest))
        return
    try:
        with tempfile.TemporaryDirectory(prefix="_tranrepl_check_", dir=nearest) as folder:
            Path(folder, "file").write_bytes(bytes(_TRIED_BYTES))
    except OSError as error:
        denied = isinstance(error, PermissionError)
        yield ConfigurationError(
            f"distributor.store: {store!r}: {nearest} cannot be written: {error.strerror}",
            remedy=_writable(nearest) if denied else "make room there, or name another path to write to",
        )


def store_warnings(store: str) -> Iterator[str]:
    """Yield what lets other users of the machine read a store on a mounted path: it has all rows that are changed."""
    path = mounted_path(store)
    if path is None or not os.access(path, os.R_OK | os.X_OK):
        return
    with suppress(OSError):
        # A batch is removed while others are looked at.
        found = (it for folder in (path, *path.iterdir()) for it in (folder, *_files(folder)))
        wider = next((it for it in found if it.stat().st_mode & 0o077), None)
        if wider is not None:
            yield (
                f"distributor.store: {store!r}: other users of this machine may read or enter {wider}; "
                f"chmod -R u+rwX,go= {shlex.quote(str(path))}"
            )


def _files(folder: Path) -> Iterator[Path]:
    yield from islice(folder.iterdir() if folder.is_dir() else (), 1)


def _writable(folder: Path) -> str:
    """Return a remedy that says how this user gets a folder to write to."""
    if not folder.is_dir():
        return "allowed: a path to write to"
    return f"allowed: a path to write to; or, as root: chown {getpass.getuser()} {shlex.quote(str(folder))}"
