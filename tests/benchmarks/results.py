"""What was measured, round by round, and the medians of it: `results.json`."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from benchmarks.limits import Limit
from benchmarks.startup import StartUp
from benchmarks.workloads import MEMORY
from tranrepl.settings.publication import Apply


class Phase(StrEnum):
    LOG_READER = "log_reader"
    """Beside the slot's own decoding."""
    DISTRIBUTION = "distribution"
    """Beside built-in replication."""
    WHOLE = "whole"
    """Both jobs, beside built-in replication."""


@dataclass(frozen=True, slots=True)
class TimedJob:
    """What a job took, and what it says of itself."""

    seconds: float
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each."""
    peak_mb: Mapping[str, float] = field(default_factory=dict)
    """By role of a process, the largest one."""
    probe_seconds: float = 0.0
    """What the probe before it took: a part of its start-up, not in `seconds`."""

    def then(self, other: TimedJob) -> TimedJob:
        """Return both as one, this one first."""
        phases, peaks = {**self.phases, **other.phases}, {**self.peak_mb, **other.peak_mb}
        return TimedJob(
            self.seconds + other.seconds,
            {it: self.phases.get(it, 0.0) + other.phases.get(it, 0.0) for it in phases},
            {it: max(self.peak_mb.get(it, 0.0), other.peak_mb.get(it, 0.0)) for it in peaks},
            self.probe_seconds + other.probe_seconds,
        )


@dataclass(frozen=True, slots=True)
class Measurement:
    """One phase of one backlog, once. Start-up of Spark is not in it."""

    workload: str
    mode: Apply
    phase: Phase
    changes: int
    """The changes in the backlog, for each Subscriber."""
    ours: TimedJob
    reference_seconds: float
    stored_bytes: int | None = None

    @property
    def kind(self) -> tuple[str, Apply, Phase]:
        return self.workload, self.mode, self.phase


@dataclass(frozen=True, slots=True)
class Row:
    """A phase of a workload: medians over the rounds; of peaks, the highest."""

    workload: str
    mode: Apply
    phase: Phase
    changes: int
    ours_per_s: float
    reference_per_s: float
    ratio: float
    seconds: float
    phases: Mapping[str, float]
    peak_mb: Mapping[str, float]
    stored_bytes_per_change: float | None
    probe_seconds: float
    """A part of start-up."""
    startup_seconds: float | None = None
    total_seconds: float | None = None
    """With start-up."""


@dataclass(frozen=True, slots=True)
class Results:
    rows: Sequence[Row]
    limits: Sequence[Limit]
    startup: StartUp | None

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a file that `Results.write` wrote, without those of latency that were added."""
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return [
        Row(**{**row, "mode": Apply(row["mode"]), "phase": Phase(row["phase"])})
        for row in document["rows"]
        if "phase" in row
    ]


def slot_decoding(rows: Sequence[Row]) -> list[Limit]:
    """Return the slot's own decoding of each backlog, which no log reader can beat."""
    read = {row.workload: row for row in rows if row.phase is Phase.LOG_READER and not row.workload.startswith(MEMORY)}
    return [Limit(f"slot decoding alone: {name}", it.changes, it.reference_per_s) for name, it in read.items()]


def medians(measured: Sequence[Measurement], startup: StartUp | None) -> list[Row]:
    """Return one row for each workload, mode and phase."""
    kinds = dict.fromkeys(it.kind for it in measured)
    return [_median([it for it in measured if it.kind == kind], startup) for kind in kinds]


def _median(rounds: Sequence[Measurement], startup: StartUp | None) -> Row:
    first = rounds[0]
    ours = statistics.median(it.changes / it.ours.seconds for it in rounds)
    reference = statistics.median(it.changes / it.reference_seconds for it in rounds)
    seconds = statistics.median(it.ours.seconds for it in rounds)
    probe_seconds = statistics.median(it.ours.probe_seconds for it in rounds)
    before = _startup_seconds(first.phase, startup) + probe_seconds if startup else None
    stored = [it.stored_bytes / it.changes for it in rounds if it.stored_bytes is not None]
    return Row(
        first.workload,
        first.mode,
        first.phase,
        first.changes,
        ours,
        reference,
        ours / reference,
        seconds,
        {name: statistics.median(it.ours.phases.get(name, 0.0) for it in rounds) for name in first.ours.phases},
        {role: max(it.ours.peak_mb.get(role, 0.0) for it in rounds) for role in first.ours.peak_mb},
        statistics.median(stored) if stored else None,
        probe_seconds,
        before,
        None if before is None else before + seconds,
    )


def _startup_seconds(phase: Phase, startup: StartUp) -> float:
    return {
        Phase.LOG_READER: startup.log_reader,
        Phase.DISTRIBUTION: startup.distribution,
        Phase.WHOLE: startup.log_reader + startup.distribution,
    }[phase]
