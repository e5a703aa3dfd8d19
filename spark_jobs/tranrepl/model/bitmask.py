"""The bitmask of an UPDATE: which columns it changed.

Column i of the published ones, counted from 1, is bit (i-1) mod 8 of byte (i-1) div 8, where bit 0 is the lowest. That
is the layout of SQL Server's SCALL and MCALL procedures: `substring(@bitmap, 1, 1) & 2` is column 2.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tranrepl.model.arrays import Bools, Bytes


def bitmask(columns: Sequence[int], count: int) -> bytes:
    """Return the bitmask, of ceil(count/8) bytes, of the changed `columns` (from 1) of `count` published ones."""
    mask = bytearray((count + 7) // 8)
    for column in columns:
        if not 1 <= column <= count:
            raise ValueError(f"column {column} is not one of 1..{count}")
        mask[(column - 1) // 8] |= 1 << ((column - 1) % 8)
    return bytes(mask)


def bitmasks(changed: Bools) -> Bytes:
    """Return the bitmasks of many UPDATEs of one article: `changed` has a row for each, and a column for each column;
    the result a row for each, and a column for each byte."""
    return np.packbits(changed, axis=1, bitorder="little")


def changed_columns(mask: bytes, count: int) -> list[int]:
    """Return the columns (from 1) that a bitmask names. A longer one is accepted where its further bits are zero."""
    columns = [8 * index + bit + 1 for index, byte in enumerate(mask) for bit in range(8) if byte >> bit & 1]
    if columns and columns[-1] > count:
        raise ValueError(f"mask 0x{mask.hex()} names column {columns[-1]} of {count}")
    return columns
