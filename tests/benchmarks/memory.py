"""Peak memory of the processes that take part, by what they are, from Linux's own accounts."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path

_SAMPLE_SECONDS = 0.2
_RESET_PEAK = "5"
"""What `clear_refs` takes to forget `VmHWM`."""


class Role(StrEnum):
    DRIVER_JVM = "driver JVM"
    DRIVER_PYTHON = "driver Python"
    PYTHON_WORKER = "Python worker"
    POSTGRES = "PostgreSQL process"


class PeakMemory:
    """The most that one process of each role held since this began. `stop` it to know."""

    def __init__(self) -> None:
        self._peaks: dict[Role, int] = {}
        self._stopped = threading.Event()
        for pid in _tree(os.getpid()):
            with suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text(_RESET_PEAK, encoding="ascii")
        self._sampler = threading.Thread(target=self._sample_until_stopped, daemon=True)
        self._sampler.start()

    def stop(self) -> Mapping[Role, float]:
        """Stop measuring, and return the peaks in MB."""
        self._stopped.set()
        self._sampler.join()
        self._sample()
        return {role: round(kb / 1024, 1) for role, kb in self._peaks.items()}

    def _sample_until_stopped(self) -> None:
        while not self._stopped.wait(_SAMPLE_SECONDS):
            self._sample()

    def _sample(self) -> None:
        for pid in _tree(os.getpid()):
            with suppress(OSError, KeyError, ValueError):
                role = _role(pid)
                if role is not None:
                    self._peaks[role] = max(self._peaks.get(role, 0), _kilobytes(pid))


@contextmanager
def peak_memory(into: dict[Role, float]) -> Iterator[None]:
    """Measure this process and all below it, while the context lasts."""
    peak = PeakMemory()
    try:
        yield
    finally:
        into.update(peak.stop())


def _kilobytes(pid: int) -> int:
    """Return a process's own peak. Shared buffers are the server's: they are left out of what a process that maps them
    holds now.
    """
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines())
    peak, held, shared = (int(status[name].split()[0]) for name in ("VmHWM", "VmRSS", "RssShmem"))
    return held - shared if shared else peak


def _role(pid: int) -> Role | None:
    if pid == os.getpid():
        return Role.DRIVER_PYTHON
    command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    program = Path(command.decode(errors="replace").split(" ", 1)[0]).name
    if program == "java":
        return Role.DRIVER_JVM
    if b"pyspark.daemon" in command or b"pyspark.worker" in command:
        return Role.PYTHON_WORKER
    return Role.POSTGRES if program.startswith("postgres") else None


def _tree(root: int) -> Iterator[int]:
    """Yield a process and all below it."""
    yield root
    for tasks in _listed(Path(f"/proc/{root}/task")):
        children: list[str] = []
        with suppress(OSError):
            children = (tasks / "children").read_text(encoding="ascii").split()
        for child in children:
            yield from _tree(int(child))


def _listed(folder: Path) -> list[Path]:
    with suppress(OSError):
        return list(folder.iterdir())
    return []
