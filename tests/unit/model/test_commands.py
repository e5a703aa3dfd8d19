"""The bitmask of changed columns, in SQL Server's own layout."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from tranrepl.model.commands import CallSyntax, Method, Propagation, decode_changed, encode_changed

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
    assert encode_changed(columns, count).hex() == mask
    assert decode_changed(bytes.fromhex(mask), count) == columns


@pytest.mark.parametrize(("count", "length"), [(5, 1), (8, 1), (9, 2), (16, 2), (17, 3), (24, 3), (33, 5), (53, 7)])
def test_a_mask_has_a_byte_for_every_eight_columns(count: int, length: int) -> None:
    assert len(encode_changed([], count)) == length


@st.composite
def _changed_columns(draw: st.DrawFn) -> tuple[list[int], int]:
    count = draw(st.integers(1, 120))
    return sorted(draw(st.sets(st.integers(1, count)))), count


@given(_changed_columns())
def test_what_is_encoded_is_decoded(changed: tuple[list[int], int]) -> None:
    columns, count = changed
    mask = encode_changed(columns, count)
    assert decode_changed(mask, count) == columns
    assert decode_changed(mask + b"\0\0", count) == columns


@pytest.mark.parametrize("column", [0, -1, 9])
def test_a_column_outside_the_published_ones_has_no_bit(column: int) -> None:
    with pytest.raises(ValueError, match=rf"column {column} is not one of 1\.\.8"):
        encode_changed([column], 8)


def test_a_mask_that_names_a_column_too_many_is_refused() -> None:
    with pytest.raises(ValueError, match="mask 0x0010 names column 13 of 12"):
        decode_changed(bytes.fromhex("0010"), 12)


@pytest.mark.parametrize(
    ("propagation", "text"),
    [
        (Propagation(Method.PROCEDURE, CallSyntax.SCALL), "SCALL"),
        (Propagation(Method.PROCEDURE, CallSyntax.CALL, "audit_delete"), "CALL audit_delete"),
        (Propagation(Method.STATEMENT), "SQL"),
        (Propagation(Method.NONE), "NONE"),
    ],
)
def test_a_propagation_reads_as_its_command_string(propagation: Propagation, text: str) -> None:
    assert str(propagation) == text
