"""The chart of the benchmarks, where `make bench` or `make test` has installed what draws it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from benchmarks.results import Measurement, Phase, TimedJob, medians
from tranrepl.settings.publication import Apply

pytest.importorskip("matplotlib")


def _size_of_chart(workloads: list[str], path: Path) -> tuple[int, int]:
    from benchmarks.chart import draw

    measured = [Measurement(it, Apply.AUTO, Phase.DISTRIBUTION, 10, TimedJob(1.0), 2.0) for it in workloads]
    draw(medians(measured, None), path)
    signature, width, height = struct.unpack(">8s8xII", path.read_bytes()[:24])
    assert signature == b"\x89PNG\r\n\x1a\n"
    return width, height


def test_a_workload_more_makes_the_chart_higher_and_no_wider(tmp_path: Path) -> None:
    width, height = _size_of_chart(["insert"], tmp_path / "one.png")
    two = _size_of_chart(["insert", "update"], tmp_path / "two.png")
    assert (two[0], two[1] > height) == (width, True)


def test_the_same_results_give_the_same_file(tmp_path: Path) -> None:
    for name in ("one.png", "two.png"):
        _size_of_chart(["insert"], tmp_path / name)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
