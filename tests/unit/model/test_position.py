"""Positions sort as their bytes do, and a watermark can be written in more than one way."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel

from tranrepl.model.position import (
    FIRST_POSITION,
    SEQNOS_PER_PLACE,
    Position,
    StoredPosition,
    equivalent_watermark,
    seqno_after,
    seqno_before,
    seqnos_of_one_place,
)

SEQNOS = st.integers(1, 2**63).map(lambda number: number.to_bytes(8, "big"))


class _Stored(BaseModel):
    position: StoredPosition = FIRST_POSITION


@given(SEQNOS, SEQNOS)
def test_positions_sort_as_their_bytes(one: bytes, other: bytes) -> None:
    assert (Position(one) < Position(other)) == (one < other)
    assert Position(one) > FIRST_POSITION


@given(SEQNOS)
def test_a_watermark_has_so_many_marks_of_its_place(seqno: bytes) -> None:
    marks, mark = {seqno}, seqno
    for _ in range(SEQNOS_PER_PLACE):
        mark = equivalent_watermark(mark)
        marks.add(mark)
    assert mark == seqno
    assert len(marks) == SEQNOS_PER_PLACE
    assert {seqnos_of_one_place(it) for it in marks} == {(min(marks), max(marks))}


@given(SEQNOS)
def test_nothing_sorts_between_a_seqno_and_its_neighbours(seqno: bytes) -> None:
    assert seqno_before(seqno) < seqno < seqno_after(seqno)
    assert seqno_after(seqno_before(seqno)) == seqno


@given(SEQNOS)
def test_a_position_is_hexadecimal_in_json(seqno: bytes) -> None:
    written = _Stored(position=Position(seqno)).model_dump_json()
    assert seqno.hex() in written
    assert _Stored.model_validate_json(written).position == Position(seqno)


def test_bytes_of_another_width_are_no_position() -> None:
    with pytest.raises(ValueError, match=r"8 bytes, not 3"):
        Position(b"abc")
