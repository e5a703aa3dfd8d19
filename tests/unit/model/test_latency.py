"""Latencies counted by how long: added up, they say what all of them together do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tranrepl.distribution.latency import buckets
from tranrepl.model.latency import (
    LAST_BUCKET,
    DeliveredMinute,
    LatencyByLeg,
    Leg,
    by_minute,
    quantile,
    together,
)

_LATENCIES = st.lists(st.integers(1_000, 3_600_000_000), min_size=1, max_size=200)
"""µs: from a millisecond to an hour."""


def _counted(latencies: Sequence[int]) -> LatencyByLeg:
    found, counts = np.unique(buckets(np.array(latencies, dtype=np.int64)), return_counts=True)
    counted = dict(zip(found.tolist(), counts.tolist(), strict=True))
    return LatencyByLeg(registered=counted, delivered=counted, overall=counted)


@given(_LATENCIES, st.sampled_from([0.5, 0.95, 0.99, 1.0]))
def test_a_quantile_is_told_within_some_percent(latencies: list[int], share: float) -> None:
    exact = float(np.quantile(latencies, share, method="inverted_cdf")) / 1_000_000
    assert quantile(_counted(latencies).overall, share) == pytest.approx(exact, rel=0.07)


@given(st.lists(_LATENCIES, min_size=1, max_size=5))
def test_what_several_runs_counted_is_what_one_run_would_count(runs: list[list[int]]) -> None:
    whole = _counted([it for run in runs for it in run])
    assert together(map(_counted, runs)) == whole
    parts = [DeliveredMinute(minute=7, transactions=1, commands=len(it), latency=_counted(it)) for it in runs]
    (minute,) = by_minute(parts)
    assert (minute.transactions, minute.commands, minute.latency) == (len(runs), whole.commands, whole)


def test_what_no_clock_can_tell_is_less_than_a_millisecond() -> None:
    assert buckets(np.array([-5_000_000, 0, 999, 1_000, 2**62])).tolist() == [0, 0, 0, 1, LAST_BUCKET]
    assert _counted([-1]).quantiles(Leg.OVERALL) is not None
    assert LatencyByLeg().quantiles(Leg.OVERALL) is None
    assert LatencyByLeg().all_quantiles() == {}


def test_the_latest_measurement_of_the_clocks_is_told() -> None:
    earlier, later, unknown = (LatencyByLeg(clock_difference=it) for it in (5, -7, None))
    assert together([earlier, later]).clock_difference == -7
    assert together([earlier, unknown]).clock_difference == 5
