r"""An image as one line: its values in COPY's text format, separated by tabs, \N for NULL and for what does not travel.

Source: PostgreSQL documentation, COPY, "Text Format". One string costs a store and its readers a fraction of what a
list of strings costs, and a Subscriber that loads by COPY takes the values as they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

NULL = "\\N"
_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_MEANING = {"t": "\t", "n": "\n", "r": "\r", "b": "\b", "f": "\f", "v": "\v"}
"""COPY itself escapes more than `lines` does."""


def lines(values: pa.StringArray, offsets: npt.NDArray[np.int64], absent: npt.NDArray[np.bool_]) -> pa.StringArray:
    """Join values into one line for each row: row i has the values from `offsets[i]` up to `offsets[i + 1]`; NULL where
    it is absent."""
    escaped = pc.fill_null(_escaped(values), NULL)
    rows = pa.ListArray.from_arrays(
        pa.array(offsets.astype(np.int32)), escaped, mask=pa.array(absent) if absent.any() else None
    )
    return pc.binary_join(rows, "\t")


def image_lines(rows: Sequence[Sequence[str | None] | None]) -> pa.StringArray:
    """Return each row's values as one line; NULL for None."""
    flat = pa.array([value for row in rows for value in row or ()], pa.string())
    offsets = np.cumsum([0, *(len(row or ()) for row in rows)]).astype(np.int64)
    return lines(flat, offsets, np.array([row is None for row in rows], dtype=np.bool_))


def _escaped(values: pa.StringArray) -> pa.StringArray:
    content = contents(values)
    for character, escape in _ESCAPES:
        if (content == ord(character)).any():
            values = pc.replace_substring(values, character, escape)
    return values


def cells(images: pa.StringArray) -> pa.ListArray:
    r"""Split each line into its values, still escaped, \N among them; NULL where the line is."""
    return pc.split_pattern(images, "\t")


def values(line: str) -> list[str | None]:
    """Return the values of one line."""
    return [None if cell == NULL else _ESCAPED.sub(_unescape, cell) for cell in line.split("\t")]


def _unescape(match: re.Match[str]) -> str:
    return _MEANING.get(match[1], match[1])


def contents(values: pa.StringArray) -> npt.NDArray[np.uint8]:
    """Return the values' bytes, one after the other, without a copy."""
    if len(values) == 0 or values.buffers()[2] is None:
        return np.zeros(0, dtype=np.uint8)
    offsets = np.frombuffer(values.buffers()[1], dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    return np.frombuffer(values.buffers()[2], dtype=np.uint8)[int(offsets[0]) : int(offsets[-1])]
