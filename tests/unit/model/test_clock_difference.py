"""How far a server's clock is ahead is known to half of the round trip."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from tranrepl.model.clock_difference import ClockDifference, measure


@pytest.mark.parametrize("ahead", [timedelta(hours=1), timedelta(seconds=-7), timedelta()])
def test_the_shortest_round_trip_counts(ahead: timedelta) -> None:
    waits = iter([0.05, 0.0, 0.05])

    def read_clock() -> datetime:
        time.sleep(next(waits))
        return datetime.now(UTC) + ahead

    found = measure(read_clock)
    assert found.uncertainty < 25_000
    assert abs(found.microseconds - ahead // timedelta(microseconds=1)) <= found.uncertainty + 1


def test_two_clocks_are_compared_by_a_third() -> None:
    publisher, distributor = (ClockDifference(microseconds=it, uncertainty=3) for it in (500, -200))
    assert publisher.minus(distributor) == ClockDifference(microseconds=700, uncertainty=6)
