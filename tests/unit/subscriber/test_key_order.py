"""The order of keys: that of integers by number, of several columns one after the other, of the rest by text."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from tranrepl.subscriber.batching.key_order import dense_range, key_order


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.uuids(), st.integers(-5, 5))))
def test_keys_of_several_columns(keys: list[tuple[object, ...]]) -> None:
    columns = [pa.array([str(key[at]) for key in keys], pa.string()) for at in range(3)]
    ordered = [keys[at] for at in key_order(tuple(columns))]
    assert [(a, str(b), c) for a, b, c in ordered] == sorted((a, str(b), c) for a, b, c in keys)


@pytest.mark.parametrize(
    ("keys", "places"),
    [
        ([], []),
        (["7"], [0]),
        (["1", "2", "10"], [0, 1, 2]),
        (["10", "9", "-3"], [2, 1, 0]),
        (["2026-02-01", "2026-01-31"], [1, 0]),
        (["10", "9", "x"], [0, 1, 2]),
        (["9223372036854775808", "1"], [1, 0]),
    ],
)
def test_keys_of_one_column(keys: list[str], places: list[int]) -> None:
    assert key_order((pa.array(keys, pa.string()),)).tolist() == places


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ([], None),
        (["-7"], (-7, -7)),
        (["1", "2", "10"], (1, 10)),
        (["1", "2", "12"], (1, 12)),
        (["1", "2", "13"], None),
        (["2", "1", "3"], None),
        (["2026-01-31"], None),
        (["9223372036854775807"], (2**63 - 1, 2**63 - 1)),
        (["-9223372036854775808", "9223372036854775807"], None),
        (["9223372036854775808"], None),
    ],
)
def test_a_range_with_few_gaps(keys: list[str], found: tuple[int, int] | None) -> None:
    # At most three of four are missing.
    assert dense_range((pa.array(keys, pa.string()),)) == found


def test_keys_of_two_columns_have_no_range() -> None:
    column = pa.array(["1", "2"], pa.string())
    assert dense_range((column, column)) is None
