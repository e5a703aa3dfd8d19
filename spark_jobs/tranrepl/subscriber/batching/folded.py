"""What commands of one article come to: rows that go, change, come, and those that must not be there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tranrepl.model.arrays import Bools, Bytes
from tranrepl.model.article import RegisteredArticle
from tranrepl.subscriber.batching.key_order import Columns


def bit(masks: Bytes, at: int) -> Bools:
    """Return which masks name the column at this position (from 0), shape (rows,)."""
    return np.asarray((masks[:, at // 8] >> np.uint8(at % 8)) & 1, dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class FoldedUpdates:
    """Rows that stay, with the values they end with."""

    keys: Columns
    values: dict[int, pa.StringArray]
    """New values, by position (from 0) of each published column that some row sets; where a row does not, its cell
    means nothing."""
    masks: Bytes
    """A row's bitmask of what it sets, one row each, laid out as `bitmask` does."""

    def __len__(self) -> int:
        return len(self.masks)

    def setting(self, position: int) -> Bools:
        """Return which rows set a column, shape (rows,)."""
        return bit(self.masks, position)

    def mask_digits(self) -> pa.StringArray:
        """Return each row's bitmask in hexadecimal."""
        digits = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
        rows, width = self.masks.shape
        text = np.empty((rows, 2 * width), dtype=np.uint8)
        text[:, 0::2], text[:, 1::2] = digits[self.masks >> 4], digits[self.masks & 15]
        offsets = np.arange(rows + 1, dtype=np.int32) * text.shape[1]
        return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(text))


@dataclass(frozen=True, slots=True)
class Folded:
    """What commands of one article come to. Keys and values are cells of `row_images`, still escaped; a key's columns
    stand in its own order.

    Deletes and updates are in the order of keys, but updates of another unique column in that of their first commands.
    """

    article: RegisteredArticle
    deletes: Columns
    """Keys of rows that must be there, and go: some of them come again with `inserts`."""
    updates: FoldedUpdates | None
    inserts: pa.StringArray
    """Lines of rows that must not be there then, in the order of their first commands."""
    absent: Columns
    """Keys of rows that were inserted and deleted again: they must not be there."""
