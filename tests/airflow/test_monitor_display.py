"""Numbers and times as Replication Monitor shows them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tranrepl.distributor.monitoring.charts import ChartPart, Charts
from tranrepl.distributor.tables import RunStatus
from tranrepl.printable import counted
from tranrepl_airflow.monitor import display
from tranrepl_airflow.monitor.plot import count_scale, time_scale
from tranrepl_airflow.monitor.publication_charts import ChartRange, publication_charts


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
    ("count", "shown"), [(None, display.UNKNOWN), (999, "999 B"), (16_000_000, "16.0 MB"), (10**16, "10,000.0 TB")]
)
def test_a_size_has_one_unit(count: int | None, shown: str) -> None:
    assert display.size(count) == shown


def test_a_number_is_grouped_by_thousands() -> None:
    assert display.number(1_234_567.4) == "1,234,567"
    assert (counted(1, "command"), counted(17_796, "command")) == ("1 command", "17,796 commands")


def test_a_chart_has_a_line_for_each_stretch_without_a_gap() -> None:
    assert display.points([0, 4, None, 2, None], 40, 10) == ["0.0,9.0 10.0,1.0", "30.0,5.0 31.0,5.0"]
    assert display.points([None, 3, 4], 40, 10) == [], "two points are no course"


@pytest.mark.parametrize(
    ("highest", "labels"),
    [
        (0.2, ["0 s", "0.05 s", "0.1 s", "0.15 s", "0.2 s"]),
        (7.0, ["0 s", "2 s", "4 s", "6 s", "8 s"]),
        (40.0, ["0 s", "15 s", "30 s", "45 s"]),
        (140.0, ["0 s", "30 s", "1 min", "1.5 min", "2 min", "2.5 min"]),
        (700.0, ["0 s", "5 min", "10 min", "15 min"]),
    ],
)
def test_an_axis_of_times_has_round_steps(highest: float, labels: list[str]) -> None:
    scale = time_scale(datetime(2026, 1, 1, tzinfo=UTC), 60, 12, highest, display.exact_duration)
    assert [label for _, label in scale.y_ticks()] == labels


def test_an_axis_of_counts_has_whole_numbers() -> None:
    scale = count_scale(datetime(2026, 1, 1, tzinfo=UTC), 60, 12, 2.0, display.number)
    assert [label for _, label in scale.y_ticks()] == ["0", "1", "2"]


def test_charts_begin_at_the_first_measurement() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    parts = [
        ChartPart(start + timedelta(minutes=5 * at), {}, None if at < 50 else 2.0, None, None, None) for at in range(72)
    ]
    drawn = publication_charts(Charts(300.0, parts, [], None, None, 1, 1), ChartRange.SIX_HOURS)
    throughput = drawn.plots[2]
    assert throughput.hovers[0].time == parts[50].start
    assert len(throughput.dots) == 0, "twenty-two values are a line"
    few = Charts(
        300.0,
        [*parts[:50], *(replace(it, delivered_per_second=None) for it in parts[50:70]), *parts[70:]],
        [],
        None,
        None,
        1,
        1,
    )
    throughput = publication_charts(few, ChartRange.SIX_HOURS).plots[2]
    assert (throughput.hovers[0].time, len(throughput.dots)) == (parts[60].start, 2)


def test_every_status_of_a_run_has_a_word() -> None:
    assert all(display.run_status(it.name.lower()) for it in RunStatus)
