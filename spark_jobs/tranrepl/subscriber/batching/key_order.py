"""Rows in the order of their keys, as near as text tells it.

It decides how far the Subscriber has to go from one row to the next, and nothing else: integers have their own order,
dates, times and UUIDs that of their text; any other text may be ordered otherwise by its collation.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tranrepl.model.arrays import Ints

Columns = tuple[pa.StringArray, ...]
KeyRange = tuple[int, int]
"""The least and the greatest key, both included."""
_SPARSEST = 4


def key_order(keys: Columns, within: Ints | None = None) -> Ints:
    """Return the places of the rows in key order, shape (rows,). `keys` has an array for each column of the key. One
    array a column of the key. `within`: a number before all of these."""
    columns = {str(at): _comparable(column) for at, column in enumerate(keys)}
    if within is not None:
        columns = {"within": pa.array(within), **columns}
    elif len(columns) == 1 and _is_sorted(columns["0"]):
        return np.arange(len(keys[0]))
    sorted_by = [(name, "ascending") for name in columns]
    return np.asarray(pc.sort_indices(pa.table(columns), sort_keys=sorted_by).to_numpy(), dtype=np.int64)


def dense_range(keys: Columns) -> KeyRange | None:
    """Return the range of integers in ascending order that are at least one in `_SPARSEST` of all within it; None for
    all other keys."""
    if len(keys) != 1 or len(keys[0]) == 0:
        return None
    try:
        numbers = keys[0].cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    first, last = numbers[0].as_py(), numbers[-1].as_py()
    dense = last - first < _SPARSEST * len(numbers) and _is_sorted(numbers)
    return (first, last) if dense else None


def _comparable(column: pa.StringArray) -> pa.Array:
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        return column


def _is_sorted(column: pa.Array) -> bool:
    before, after = column.slice(0, max(0, len(column) - 1)), column.slice(1)
    return bool(pc.all(pc.less_equal(before, after), min_count=0).as_py())
