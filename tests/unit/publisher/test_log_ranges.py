"""The log cut into ranges."""

from __future__ import annotations

from hypothesis import given, strategies as st

from tranrepl.publisher.log_range import Limits
from tranrepl.publisher.postgres.log_range import largest_range
from tranrepl.publisher.postgres.slot_messages import LARGEST_RANGE, LOG_PAGE, range_ends
from tranrepl.settings.publication import LogReaderSettings

LSN = st.integers(0, 2**48)
BYTES = st.integers(0, 2**36)


@given(LSN, BYTES)
def test_ranges_go_on_from_one_another_up_to_the_end(start: int, length: int) -> None:
    ends = range_ends(start, start + length)
    assert ends[-1] == start + length
    assert all(first < second for first, second in zip([start, *ends[:-1]], ends, strict=True)) or length == 0


@given(LSN, BYTES)
def test_only_the_last_range_ends_inside_a_page(start: int, length: int) -> None:
    assert all(end % LOG_PAGE == 0 for end in range_ends(start, start + length)[:-1])


@given(LSN, BYTES)
def test_both_sessions_get_their_share_of_a_long_log(start: int, length: int) -> None:
    ends = range_ends(start, start + length)
    sizes = [last - first for first, last in zip([start, *ends[:-1]], ends, strict=True)]
    rounding = len(sizes) * LOG_PAGE
    assert len(sizes) == 1 or len(sizes) % 2 == 0
    assert len(sizes) == 1 or max(sizes) - min(sizes) <= rounding
    assert max(sizes) <= LARGEST_RANGE


def test_a_short_log_is_one_range() -> None:
    assert range_ends(100, 200) == [200]


def test_a_range_is_not_much_longer_than_a_batch() -> None:
    usual = LogReaderSettings()
    assert largest_range(Limits(usual.read_batch_size, usual.read_batch_bytes)) > 0.9 * LARGEST_RANGE
    assert largest_range(Limits(500, usual.read_batch_bytes)) == largest_range(Limits(1, 1)) < LARGEST_RANGE / 100
    assert largest_range(Limits(usual.read_batch_size, 16 * 1024 * 1024)) == 32 * 1024 * 1024
