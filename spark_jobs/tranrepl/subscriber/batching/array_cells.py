r"""Cells of image lines as one cell: the text form of a PostgreSQL array, in COPY's text format."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tranrepl.model.row_images import NULL

_BACKSLASH = "\\\\"
"""A backslash as a cell has it: escaped."""


def array_elements(cells: pa.StringArray) -> pa.StringArray:
    """Quote cells as elements of an array."""
    escaped = pc.replace_substring(cells, _BACKSLASH, 2 * _BACKSLASH)
    quoted = pc.binary_join_element_wise('"', pc.replace_substring(escaped, '"', f'{_BACKSLASH}"'), '"', "")
    return pc.if_else(pc.equal(cells, NULL), "NULL", quoted)


def array_cells(columns: Sequence[pa.StringArray]) -> pa.StringArray:
    """Join the elements that each column has into one array a row; NULL where it has none."""
    joined = pc.binary_join_element_wise(*columns, ",", null_handling="replace", null_replacement="NULL")
    return pc.binary_join_element_wise("{", joined, "}", "")
