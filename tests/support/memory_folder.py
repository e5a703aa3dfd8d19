"""A folder in memory for the servers of tests, which make and drop some thousand databases of 300 files each.

On ext4 each new file costs a search through those removed in the last minute: a third of a run's time went there.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
_PREFIX = "tranrepl-tests-"
_ENOUGH_BYTES = 8 * 1024**3
"""Three runs side by side need about a third of it, at their most."""


@contextmanager
def memory_folder() -> Iterator[Path]:
    """Yield a folder in shared memory, or where temporary files go if the machine has too little."""
    _remove_left_behind()
    parent = _SHARED_MEMORY if _has_room() else None
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _has_room() -> bool:
    if not os.access(_SHARED_MEMORY, os.W_OK):
        return False
    there = os.statvfs(_SHARED_MEMORY)
    return min(there.f_bavail * there.f_frsize, _available_memory()) >= _ENOUGH_BYTES


def _available_memory() -> int:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _remove_left_behind() -> None:
    """Remove what runs that were killed have left: memory that nobody else frees."""
    for folder in _SHARED_MEMORY.glob(f"{_PREFIX}*-*"):
        owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path(f"/proc/{owner}").exists():
            shutil.rmtree(folder, ignore_errors=True)
