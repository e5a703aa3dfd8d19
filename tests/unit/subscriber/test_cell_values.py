"""Cells of images as plain values: escapes, NULL, and what cannot be told apart."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tranrepl.model.row_images import values
from tranrepl.subscriber.batching.cell_values import DATE, require_matching, unescaped
from tranrepl.subscriber.batching.steps import MismatchError

_CELLS = ["plain", "", r"\N", r"tab\there", r"a\\nb", r"\\\\", r"\\\t\r\n", r"\\N", "é\U0001f600"]


def test_cells_are_unescaped_as_one_line_is() -> None:
    line = pa.array(_CELLS, pa.string())
    assert unescaped(line).to_pylist() == values("\t".join(_CELLS))
    assert unescaped(line.slice(3, 2)).to_pylist() == values("\t".join(_CELLS[3:5]))
    assert unescaped(pa.array([], pa.string())).to_pylist() == []


def test_control_characters_of_all_kinds_beside_escapes_are_left_to_serial_apply() -> None:
    with pytest.raises(MismatchError):
        unescaped(pa.array(["\x01\x02\x03\x04\x05\x06", r"\\"]))


def test_every_cell_must_match_or_be_null() -> None:
    require_matching(pa.array(["2024-01-01", r"\N"]), DATE)
    require_matching(pa.array([], pa.string()), DATE)
    with pytest.raises(MismatchError):
        require_matching(pa.array(["2024-01-01", "2024-01-01 "]), DATE)
