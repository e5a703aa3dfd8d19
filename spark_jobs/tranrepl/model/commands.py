"""Changes and commands: operations, propagation methods, call syntaxes and the one row layout that carries them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tranrepl.errors import InternalError
from tranrepl.model.position import POSITION_BYTES

XACT_SEQNO_BYTES = POSITION_BYTES
"""Width of `xact_seqno`: a transaction's position in its Publisher's log, whose bytes sort in commit order."""

FIRST_XACT_SEQNO = bytes(XACT_SEQNO_BYTES)
"""Before every transaction: the watermark of a subscription that has received nothing."""


class Operation(IntEnum):
    """What a row of the layout does. The number is what is stored."""

    INSERT = 1
    UPDATE = 2
    DELETE = 3
    TRUNCATE = 4
    SCHEMA = 5
    """A schema change (`tranrepl.model.schema_change`): its `after` image is JSON, and its article the one before."""
    SCRIPT = 6
    """A script for the Subscribers: its `after` image is JSON. It is of no article."""
    TRACER_TOKEN = 7
    """A tracer token: its `after` image is JSON. It is of no article, and applied by none: it passes with the
    watermark."""


NO_ARTICLE_ID = 0
"""The `article_id` of a command that is of no article."""


class Method(StrEnum):
    """How an operation reaches the Subscriber.

    Source: "Transactional Articles - Specify How Changes Are Propagated".
    """

    PROCEDURE = "procedure"
    STATEMENT = "SQL"
    NONE = "NONE"


class CallSyntax(StrEnum):
    """Which values a procedure is passed (same page, "Call Syntax for Stored Procedures")."""

    CALL = "CALL"
    SCALL = "SCALL"
    MCALL = "MCALL"
    XCALL = "XCALL"


@dataclass(frozen=True, slots=True)
class Propagation:
    """One of `ins_cmd`, `upd_cmd`, `del_cmd`, parsed. `procedure` is None for the generated procedure."""

    method: Method
    syntax: CallSyntax | None = None
    procedure: str | None = None

    def __str__(self) -> str:
        if self.method is not Method.PROCEDURE:
            return self.method.value
        return " ".join(part for part in (self.syntax, self.procedure) if part)


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
The image itself is NULL where none of it travels. `changed` is the bitmask of an UPDATE (`encode_changed`): it alone
tells "set to NULL" from "unchanged".
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


def encode_changed(columns: list[int], count: int) -> bytes:
    """Encode the changed `columns` (1-based) of `count` published ones as a bitmask of ceil(count/8) bytes.

    Column i is bit (i-1) mod 8 of byte (i-1) div 8, counted from the left: the layout of SQL Server's SCALL and
    MCALL procedures (`substring(@bitmap, 1, 1) & 2` is column 2).
    """
    mask = bytearray((count + 7) // 8)
    for column in columns:
        if not 1 <= column <= count:
            raise ValueError(f"column {column} is not one of 1..{count}")
        mask[(column - 1) // 8] |= 1 << ((column - 1) % 8)
    return bytes(mask)


def decode_changed(mask: bytes, count: int) -> list[int]:
    """Return the changed columns (1-based). A longer mask is accepted where its further bits are zero."""
    columns = [8 * index + bit + 1 for index, byte in enumerate(mask) for bit in range(8) if byte >> bit & 1]
    if columns and columns[-1] > count:
        raise ValueError(f"mask 0x{mask.hex()} names column {columns[-1]} of {count}")
    return columns
