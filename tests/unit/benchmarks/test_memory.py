"""Peak memory by role, of this process and what is below it."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.memory import PeakMemory, Role, peak_memory

_MB = 1024 * 1024


def test_a_peak_is_seen_though_it_has_passed() -> None:
    peaks: dict[Role, float] = {}
    with peak_memory(peaks):
        held = b"x" * (150 * _MB)
        del held
    assert peaks[Role.DRIVER_PYTHON] > 150


def test_an_earlier_peak_is_forgotten() -> None:
    held = b"x" * (300 * _MB)
    with_it = PeakMemory().stop()[Role.DRIVER_PYTHON]
    del held
    assert PeakMemory().stop()[Role.DRIVER_PYTHON] < with_it - 250


def test_a_process_below_counts_by_its_role() -> None:
    # Spark's workers do so: their command says what they are.
    program = f"held = b'x' * {200 * _MB}; del held; print('held', flush=True); input()"
    command = [sys.executable, "-c", program, "pyspark.daemon"]
    # Workers of the test run's own Spark session may be there already.
    others = PeakMemory().stop().get(Role.PYTHON_WORKER, 0.0)
    peak = PeakMemory()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "held\n"
        peaks = peak.stop()
        worker.communicate("\n")
    assert 200 < peaks[Role.PYTHON_WORKER] < max(260, others + 60)
