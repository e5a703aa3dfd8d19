"""What processes cost: CPU since a moment, and memory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from support.processes import fields_of, parent_of, process_ids

_TICKS = os.sysconf("SC_CLK_TCK")
_USER, _SYSTEM, _CHILDREN_USER, _CHILDREN_SYSTEM = 11, 12, 13, 14


def descendants(process: int) -> set[int]:
    """Return the processes that a process has started, and those that they have."""
    parents = {it: parent_of(it) for it in process_ids()}
    found = {process}
    while more := {it for it, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {process}


class ProcessCosts:
    """Processes, from now on, and what they start."""

    def __init__(self, processes: Iterable[int]) -> None:
        self._roots = set(processes)
        self._before = {it: cpu_of(it) for it in self._all()}

    def _all(self) -> set[int]:
        return self._roots.union(*map(descendants, self._roots))

    def cpu_seconds(self) -> float:
        """Return the seconds of CPU since then; those of processes that have ended, their parents have."""
        return sum(cpu_of(it) - self._before.get(it, 0.0) for it in self._all())

    def memory_mb(self) -> float:
        """Return their memory now; what they share counts once."""
        return sum(map(pss_mb_of, self._all()))


def cpu_of(process: int) -> float:
    """Return the seconds of CPU that a process and its children that have ended took; 0 where it has ended."""
    with suppress(OSError):
        fields = fields_of(process)
        return sum(int(fields[it]) for it in (_USER, _SYSTEM, _CHILDREN_USER, _CHILDREN_SYSTEM)) / _TICKS
    return 0.0


def pss_mb_of(process: int) -> float:
    """Return a process's memory, with its part of what it shares; 0 where it has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text(encoding="utf-8").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0
