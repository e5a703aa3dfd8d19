"""Cells put into an array are read again by the rules of COPY, then by those of arrays."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
from hypothesis import given, strategies as st

from tranrepl.model.row_images import cells, lines, values
from tranrepl.subscriber.batching.array_cells import array_cells, array_elements

_ELEMENT = re.compile(r'"((?:[^"\\]|\\.)*)"|(NULL)', re.DOTALL)
_VALUES = st.none() | st.sampled_from(["NULL", "\\N", "", '"', "\\", "{}", ","]) | st.text('a"\\\t\n\r,{}N\x08é')


def _elements(text: str) -> list[str | None]:
    """Return the elements of an array of text, as PostgreSQL reads it."""
    assert text[:1] + text[-1:] == "{}"
    found, at = [], 1
    while at < len(text) - 1:
        element = _ELEMENT.match(text, at)
        assert element is not None
        found.append(None if element[2] else re.sub(r"\\(.)", r"\1", element[1], flags=re.DOTALL))
        assert text[element.end()] in ",}"
        at = element.end() + 1
    return found


@given(st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(_VALUES, min_size=width, max_size=width), min_size=1)))
def test_an_array_has_the_values_of_its_cells(rows: list[list[str | None]]) -> None:
    width = len(rows[0])
    flat = pa.array([value for row in rows for value in row], pa.string())
    images = lines(flat, np.arange(len(rows) + 1) * width, np.zeros(len(rows), dtype=np.bool_))
    elements = array_elements(cells(images).values)
    columns = [elements.take(pa.array(np.arange(at, len(elements), width))) for at in range(width)]
    (line,) = {len(values(text)) for text in array_cells(columns).to_pylist()}
    assert line == 1
    assert [_elements(str(values(text)[0])) for text in array_cells(columns).to_pylist()] == rows


def test_what_is_absent_is_null() -> None:
    columns = [pa.array([None, '"a"'], pa.string()), pa.array(['"b"', None], pa.string())]
    assert array_cells(columns).to_pylist() == ['{NULL,"b"}', '{"a",NULL}']
