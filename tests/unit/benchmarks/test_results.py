"""`results.json`: its shape, and that a row is the median of its rounds."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.limits import Limit
from benchmarks.results import Measurement, Phase, Results, TimedJob, medians, read_rows
from benchmarks.startup import SmallRun, StartUp
from tranrepl.settings.publication import Apply

_STARTUP = StartUp(4.0, 5.0, 6.0, (SmallRun(1000, 7.0, 8.0, 1.9),))


def _round(seconds: float, reference: float, phase: Phase = Phase.DISTRIBUTION, memory: float = 1.0) -> Measurement:
    return Measurement(
        "insert",
        Apply.AUTO,
        phase,
        1000,
        TimedJob(seconds, {"apply": seconds / 2}, {"driver JVM": memory}, probe_seconds=seconds / 4),
        reference,
        6000,
    )


def test_a_row_is_the_median_of_its_rounds_and_the_highest_of_the_peaks() -> None:
    (row,) = medians([_round(2, 4, memory=3), _round(1, 5, memory=9), _round(8, 2)], _STARTUP)
    assert (row.ours_per_s, row.reference_per_s, row.ratio) == (500, 250, 2)
    assert (row.seconds, row.probe_seconds, row.startup_seconds, row.total_seconds) == (2, 0.5, 6.5, 8.5)
    assert (row.phases, row.peak_mb, row.stored_bytes_per_change) == ({"apply": 1}, {"driver JVM": 9}, 6)


def test_each_workload_mode_and_phase_has_its_row() -> None:
    rounds = [_round(1, 1, Phase.LOG_READER), _round(1, 1, Phase.WHOLE), _round(2, 1, Phase.LOG_READER)]
    rows = medians(rounds, _STARTUP)
    assert [(row.phase, row.startup_seconds) for row in rows] == [
        (Phase.LOG_READER, 5.375),
        (Phase.WHOLE, 11.25),
    ]


def test_two_jobs_take_what_both_take_and_hold_what_the_larger_holds() -> None:
    read = TimedJob(1, {"read": 1, "other": 2}, {"driver JVM": 3, "Python worker": 4}, 0.5)
    delivered = TimedJob(2, {"apply": 4, "other": 3}, {"driver JVM": 5}, 0.25)
    assert read.then(delivered) == TimedJob(
        3, {"read": 1, "other": 5, "apply": 4}, {"driver JVM": 5, "Python worker": 4}, 0.75
    )


def test_the_file_has_the_shape_that_was_agreed_and_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "bench" / "results.json"
    rows = medians([_round(2, 4)], None)
    Results(rows, [Limit("COPY into the table", 1000, 5.0)], _STARTUP).write(file)
    document = json.loads(file.read_text(encoding="utf-8"))
    expected = {
        "workload": "insert",
        "mode": "auto",
        "phase": "distribution",
        "changes": 1000,
        "ours_per_s": 500,
        "reference_per_s": 250,
        "ratio": 2,
    }
    assert document["rows"][0].items() >= expected.items()
    assert document["limits"] == [{"name": "COPY into the table", "rows": 1000, "rows_per_s": 5.0}]
    assert document["startup"]["small_runs"][0]["changes"] == 1000
    assert read_rows(file) == rows
