"""The benchmark of latency measures both ways from the same commits, and leaves other results as they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.continuous_site import BUILT_IN, Way
from benchmarks.latency import add_rows, measured

pytestmark = [pytest.mark.slow, pytest.mark.submit]


def test_both_ways_are_measured_at_each_rate(tmp_path: Path) -> None:
    rows = measured(tmp_path / "servers", [0, 20], 3)
    assert [(it.rate, it.mode) for it in rows] == [(0, Way.SHELL), (0, BUILT_IN), (20, Way.SHELL), (20, BUILT_IN)]
    idle, busy = rows[:2], rows[2:]
    assert {it.p50_ms for it in idle} == {None}
    assert all(0 < (it.p50_ms or 0) <= (it.p95_ms or 0) <= (it.p99_ms or 0) for it in busy)
    assert all(it.memory_mb > 0 for it in rows)
    file = tmp_path / "results.json"
    file.write_text(json.dumps({"rows": [{"workload": "insert", "phase": "whole"}], "limits": [], "startup": None}))
    add_rows(file, rows)
    add_rows(file, rows)
    found = json.loads(file.read_text(encoding="utf-8"))["rows"]
    assert [it["workload"] for it in found] == ["insert", *["latency"] * 4]
