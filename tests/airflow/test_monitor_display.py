"""Numbers and times as Replication Monitor shows them."""

from __future__ import annotations

import pytest

from tranrepl.distributor.tables import RunStatus
from tranrepl_airflow.monitor import display


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, display.UNKNOWN),
        (0.44, "0.4 s"),
        (9.96, "10.0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (3599, "60 min"),
        (3600, "1.0 h"),
        (36_000, "10 h"),
        (86_400, "1.0 d"),
        (864_000, "10 d"),
    ],
)
def test_a_duration_has_one_unit(seconds: float | None, shown: str) -> None:
    assert display.duration(seconds) == shown


@pytest.mark.parametrize(
    ("count", "shown"), [(None, display.UNKNOWN), (999, "999 B"), (16_000_000, "16.0 MB"), (10**16, "10000.0 TB")]
)
def test_a_size_has_one_unit(count: int | None, shown: str) -> None:
    assert display.size(count) == shown


def test_a_number_is_grouped_by_thousands() -> None:
    assert display.number(1_234_567.4) == "1\u202f234\u202f567"


def test_a_chart_has_a_line_for_each_stretch_without_a_gap() -> None:
    assert display.points([0, 4, None, 2, None], 40, 10) == ["0.0,9.0 10.0,1.0", "30.0,5.0 31.0,5.0"]
    assert display.points([None, None], 40, 10) == []


def test_every_status_of_a_run_has_a_word() -> None:
    assert all(display.run_status(it.name.lower()) for it in RunStatus)
