"""The one row layout that carries commands, and the order of its rows.

A module of its own: a DAG file needs the words of `model.commands`, and neither NumPy nor Arrow.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tranrepl.errors import InternalError
from tranrepl.model.commands import XACT_SEQNO_BYTES

ROW_LAYOUT = pa.schema(
    [
        pa.field("xact_seqno", pa.binary()),
        pa.field("command_id", pa.int64()),
        pa.field("commit_time", pa.timestamp("us", tz="UTC")),
        pa.field("article_id", pa.int32()),
        pa.field("operation", pa.int8()),
        pa.field("before", pa.string()),
        pa.field("after", pa.string()),
        pa.field("changed", pa.binary()),
    ]
)
"""Commands; (`xact_seqno`, `command_id`) is the total order.

`before` and `after` are images: one line (`row_images`) with a value for each published column, in the Publisher's
own text form, NULL where the value is NULL or does not travel; values at the end that do not travel may be left off.
The image itself is NULL where none of it travels. `changed` is the bitmask of an UPDATE: it alone tells "set to NULL"
from "unchanged".
"""

ROW_LAYOUT_DDL = (
    "xact_seqno binary, command_id bigint, commit_time timestamp, article_id int, operation tinyint, "
    "before string, after string, changed binary"
)
"""`ROW_LAYOUT` as Spark spells it."""


def only_chunk(commands: pa.Table, name: str) -> pa.Array:
    """Return a column of commands as one array; `combine_chunks` leaves one chunk of it, or none."""
    chunked = commands[name]
    return chunked.chunk(0) if chunked.num_chunks else pa.array([], chunked.type)


def xact_seqno_numbers(column: pa.BinaryArray) -> npt.NDArray[np.uint64]:
    """Return `xact_seqno` as numbers, shape (rows,), which sort as the bytes do. Raises InternalError where one is of
    another width."""
    if len(column) == 0:
        return np.zeros(0, dtype=np.uint64)
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    if (np.diff(offsets) != XACT_SEQNO_BYTES).any():
        raise InternalError(f"an xact_seqno is not {XACT_SEQNO_BYTES} bytes wide")
    data = np.frombuffer(column.buffers()[2], dtype=np.uint8)[offsets[0] : offsets[-1]]
    return data.view(">u8").astype(np.uint64)


def require_order(
    seqnos: npt.NDArray[np.uint64], command_ids: npt.NDArray[np.int64], after: tuple[int, int]
) -> tuple[int, int]:
    """Check that one or more commands stand in the order of (`xact_seqno`, `command_id`), all of them after another
    one; the last of them. Raises InternalError."""
    forward = (seqnos[1:] > seqnos[:-1]) | ((seqnos[1:] == seqnos[:-1]) & (command_ids[1:] > command_ids[:-1]))
    if not forward.all() or (int(seqnos[0]), int(command_ids[0])) <= after:
        raise InternalError("commands are not in the order of (xact_seqno, command_id)")
    return int(seqnos[-1]), int(command_ids[-1])
