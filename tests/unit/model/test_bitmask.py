"""The bitmask of changed columns, in SQL Server's own layout."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tranrepl.model.bitmask import bitmask, bitmasks, changed_columns

# Masks of real commands that SQL Server's Log Reader has stored: mask, published columns, changed ones.
GOLDEN = [
    ("80", 8, [8]),
    ("6000", 9, [6, 7]),
    ("00a0", 16, [14, 16]),
    ("0a", 6, [2, 4]),
    ("08", 6, [4]),
    ("9031", 14, [5, 8, 9, 13, 14]),
    ("3004", 11, [5, 6, 11]),
    ("38000000000000", 53, [4, 5, 6]),
]


@pytest.mark.parametrize(("mask", "count", "columns"), GOLDEN)
def test_masks_are_those_of_sql_server(mask: str, count: int, columns: list[int]) -> None:
    assert bitmask(columns, count).hex() == mask
    assert changed_columns(bytes.fromhex(mask), count) == columns


@pytest.mark.parametrize(("count", "length"), [(5, 1), (8, 1), (9, 2), (16, 2), (17, 3), (24, 3), (33, 5), (53, 7)])
def test_a_mask_has_a_byte_for_every_eight_columns(count: int, length: int) -> None:
    assert len(bitmask([], count)) == length


@st.composite
def _changed_columns(draw: st.DrawFn) -> tuple[list[int], int]:
    count = draw(st.integers(1, 120))
    return sorted(draw(st.sets(st.integers(1, count)))), count


@given(_changed_columns())
def test_what_is_encoded_is_decoded(changed: tuple[list[int], int]) -> None:
    columns, count = changed
    mask = bitmask(columns, count)
    assert changed_columns(mask, count) == columns
    assert changed_columns(mask + b"\0\0", count) == columns
    assert bitmasks(np.isin(np.arange(1, count + 1), columns)[None, :]).tobytes() == mask


@pytest.mark.parametrize("column", [0, -1, 9])
def test_a_column_outside_the_published_ones_has_no_bit(column: int) -> None:
    with pytest.raises(ValueError, match=rf"column {column} is not one of 1\.\.8"):
        bitmask([column], 8)


def test_a_mask_that_names_a_column_too_many_is_refused() -> None:
    with pytest.raises(ValueError, match="mask 0x0010 names column 13 of 12"):
        changed_columns(bytes.fromhex("0010"), 12)
