"""What /proc tells of running processes."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path


def session_of(pid: int) -> int | None:
    """Return the session's leader, None for a process that has ended."""
    with suppress(OSError):
        state, _, _, session = fields_of(pid)[:4]
        return int(session) if state != "Z" else None
    return None


def fields_of(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name, which may hold spaces: state, parent, group, session …"""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()


def process_ids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def parent_of(pid: int) -> int:
    """Return 0 for a process that has ended."""
    with suppress(OSError):
        return int(fields_of(pid)[1])
    return 0


def descendants(process: int) -> set[int]:
    """Return the children of a process, theirs, and so on."""
    found, parents = {process}, {it: parent_of(it) for it in process_ids()}
    while more := {it for it, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {process}


def lives(process: int) -> bool:
    return session_of(process) is not None


def command_of(pid: int) -> bytes:
    """Return the arguments with a NUL byte after each, nothing for a process that has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def name_of(pid: int) -> str:
    """Return "" for a process that has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    return ""


def kill(pid: int) -> None:
    """Send SIGKILL, if the process has not ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
