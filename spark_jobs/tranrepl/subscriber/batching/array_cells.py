r"""Cells of many images: in one array, and as one cell, the text form of a PostgreSQL array in COPY's text format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tranrepl.model.arrays import Ints
from tranrepl.model.row_images import NULL, cells


@dataclass(frozen=True, slots=True)
class ImageCells:
    """`starts` has one entry an image."""

    values: pa.StringArray
    """The values as the images have them, escaped."""
    starts: Ints

    @classmethod
    def of(cls, images: pa.StringArray) -> ImageCells:
        listed = cells(images)
        offsets = listed.offsets.to_numpy().astype(np.int64)
        first, end = int(offsets[0]), int(offsets[-1])
        return cls(listed.values.slice(first, end - first), offsets[:-1] - first)

    def places(self, at: int) -> Ints:
        """Return where the cells of one column are, one an image."""
        return self.starts + at

    def column(self, at: int, rows: Ints) -> pa.StringArray:
        """Return one column's cells of these rows; NULL where the row is negative."""
        absent = rows < 0
        places = self.starts[rows] + at
        taken = self.values.take(pa.array(places, mask=absent) if absent.any() else pa.array(places))
        return pc.fill_null(taken, NULL) if absent.any() else taken


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
