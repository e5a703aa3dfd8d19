"""Processes of servers and jobs: those that end with their owner, what /proc tells of any, and ports for them."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
from contextlib import suppress
from pathlib import Path
from signal import Signals

NO_AIRFLOW = "/dev/null/airflow"
"""An Airflow's home that nobody can make: `tranrepl setup` asks an Airflow that is there for its pools, for seconds."""

_NOBODY = 65534

_FIRST_PORT, _END_OF_PORTS = 10_000, 32_768
"""Linux gives ports from there on to connections that go out."""


class SetprivMissingError(Exception):
    """util-linux is not there, which Debian always has."""


def dying_with_owner(command: list[str], death_signal: Signals) -> list[str]:
    """Return the command, sent a signal when the thread that starts it ends."""
    return [_setpriv(), "--pdeathsig", death_signal.name.removeprefix("SIG"), *command]


def unprivileged(command: list[str]) -> list[str]:
    """Return the command as nobody if we are root: PostgreSQL refuses to run as root.

    With one capability, nobody still reaches folders below private ones. A death signal must be set inside, because the
    kernel forgets it when the user changes.
    """
    if os.geteuid() != 0:
        return command
    return [
        _setpriv(),
        *(f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"),
        *("--inh-caps=+dac_override", "--ambient-caps=+dac_override"),
        *command,
    ]


def _setpriv() -> str:
    path = shutil.which("setpriv")
    if path is None:
        raise SetprivMissingError("setpriv is not installed; as root: apt-get install util-linux")
    return path


def free_port() -> int:
    """Return one that nobody listens at, and that the system gives to no connection that goes out meanwhile."""
    while True:
        port = _FIRST_PORT + secrets.randbelow(_END_OF_PORTS - _FIRST_PORT)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


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
