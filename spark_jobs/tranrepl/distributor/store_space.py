"""How much room the disk of a mounted store has."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tranrepl.distributor.command_file import mounted_path


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
