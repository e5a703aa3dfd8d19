"""Changes as a log gives them: values that stay where they arrived, until it is known which of them travel.

Nothing here copies a value: a cell is a place in the buffer of messages and a length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tranrepl.errors import ReplicationError
from tranrepl.model.arrays import Bools, Bytes, Ints
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import XACT_SEQNO_BYTES, Operation
from tranrepl.model.schema_change import SchemaChange

NULL = -1
NOT_IN_LOG = -2
"""Length of a cell whose value is not in the log: a TOASTed value that did not change, of which no old one is known."""

_INLINE = 12
"""Arrow's string views hold up to this many bytes themselves."""
_INLINE_MASKS = np.array(
    [[(1 << 8 * min(max(length - 4 * word, 0), 4)) - 1 for word in range(3)] for length in range(_INLINE + 1)],
    dtype=np.uint32,
)


class Buffer:
    """The messages' bytes, of one piece or several, with integers readable at any offset: big-endian as the log has
    them."""

    def __init__(self, *pieces: Bytes) -> None:
        self.length = sum(map(len, pieces))
        # Reads of up to 16 bytes past a value's start must stay inside.
        self.bytes = np.concatenate([*pieces, np.zeros(16, dtype=np.uint8)])
        self._views = {
            dtype: np.ndarray(
                shape=(len(self.bytes) - np.dtype(dtype).itemsize + 1,),
                dtype=dtype,
                buffer=self.bytes.data,
                strides=(1,),
            )
            for dtype in (">u2", ">u4", ">u8", "<u4")
        }

    def uint16(self, at: Ints) -> Ints:
        """Return the integers of two bytes that begin at these offsets, in their shape."""
        return self._views[">u2"][at].astype(np.int64)

    def uint32(self, at: Ints) -> Ints:
        """Return the integers of four bytes that begin at these offsets, in their shape."""
        return self._views[">u4"][at].astype(np.int64)

    def uint64(self, at: Ints) -> Ints:
        """Return the integers of eight bytes that begin at these offsets, in their shape."""
        return self._views[">u8"][at].astype(np.int64)

    def words(self, at: Ints) -> npt.NDArray[np.uint32]:
        """Return the four bytes that begin at each of these offsets as they are, in the offsets' shape."""
        return self._views["<u4"][at].astype(np.uint32, copy=False)

    def strings(self, starts: Ints, lengths: Ints) -> pa.StringArray:
        """Return cells as strings, shape (cells,), NULL where there is no value."""
        null = lengths < 0
        bounds = np.empty(2 * len(starts) + 1, dtype=np.int32)
        bounds[0:-1:2] = starts
        bounds[1::2] = starts + np.where(null, 0, lengths)
        bounds[-1] = bounds[-2] if len(starts) else 0
        if (bounds[1:] < bounds[:-1]).any():
            return self._strings_in_any_order(starts, np.where(null, 0, lengths), null)
        # Cells in the order of the buffer: every second string of an array that has what lies between them too.
        pieces = pa.StringArray.from_buffers(2 * len(starts), pa.py_buffer(bounds), pa.py_buffer(self.bytes))
        chosen = np.arange(0, 2 * len(starts), 2, dtype=np.int32)
        return pieces.take(pa.array(chosen, mask=null) if null.any() else pa.array(chosen))

    def _strings_in_any_order(self, starts: Ints, lengths: Ints, null: Bools) -> pa.StringArray:
        """Return string views onto the buffer, which one C++ pass copies together."""
        count = len(starts)
        views = np.zeros((count, 4), dtype=np.uint32)
        views[:, 0] = lengths
        masks = _INLINE_MASKS[np.minimum(lengths, _INLINE)]
        for word in range(3):
            views[:, word + 1] = self.words(starts + 4 * word) & masks[:, word]
        long = lengths > _INLINE
        views[long, 2] = 0
        views[long, 3] = starts[long]
        validity = pa.array(~null).buffers()[1] if null.any() else None
        array = pa.Array.from_buffers(
            pa.string_view(), count, [validity, pa.py_buffer(views), pa.py_buffer(self.bytes)]
        )
        return array.cast(pa.string())


@dataclass(frozen=True, slots=True)
class Cells:
    """Values of some changes, shape (changes, published columns): where each starts in the buffer, and its length, or
    NULL or NOT_IN_LOG."""

    starts: Ints
    lengths: Ints

    def rows(self, chosen: Ints | Bools) -> Cells:
        """Return the cells of the chosen changes: their indexes, or which they are, shape (changes,)."""
        return Cells(self.starts[chosen], self.lengths[chosen])

    def columns(self, chosen: Sequence[int] | slice) -> Cells:
        return Cells(self.starts[:, chosen], self.lengths[:, chosen])

    def only(self, travels: Bools) -> Cells:
        """Return the cells with NULL where a value does not travel; `travels` is by column, or by row and column."""
        return Cells(self.starts, np.where(travels, self.lengths, NULL))

    def or_else(self, other: Cells) -> Cells:
        """Return the cells with what the log left out taken from `other`."""
        left_out = self.lengths == NOT_IN_LOG
        if not left_out.any():
            return self
        return Cells(np.where(left_out, other.starts, self.starts), np.where(left_out, other.lengths, self.lengths))


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """Changes of one article by one operation, in the log's order. An image that the operation does not have is None.

    `places`, shape (changes,), number the changes of a batch, ascending. `changed` (of an UPDATE) says which columns
    changed, shape (changes, published columns).
    """

    article: RegisteredArticle
    operation: Operation
    places: Ints
    before: Cells | None = None
    after: Cells | None = None
    changed: Bools | None = None
    turn: Ints | None = None
    """The order of what goes out at one place, shape (changes,): the INSERT of a pair after its DELETE. None: first."""

    def rows(self, chosen: Ints | Bools) -> ChangeSet:
        """Return the chosen changes: their indexes, or which they are, shape (changes,)."""
        return ChangeSet(
            self.article,
            self.operation,
            self.places[chosen],
            self.before.rows(chosen) if self.before is not None else None,
            self.after.rows(chosen) if self.after is not None else None,
            self.changed[chosen] if self.changed is not None else None,
            self.turn[chosen] if self.turn is not None else None,
        )


@dataclass(frozen=True, slots=True)
class Transactions:
    """The transactions that some changes belong to. Entry 0 is the one that was open when their batch began.

    `begins`, shape (transactions - 1,), are the places at which the others begin. The other arrays have shape
    (transactions,): `seqno` is the `xact_seqno`, read as a number, `time` the commit's in µs since 1970 UTC; `whole`
    says whether both ends of the transaction are in the batch.
    """

    begins: Ints
    seqno: Ints
    time: Ints
    whole: Bools

    def of(self, places: Ints) -> Ints:
        """Return the index of each place's transaction, shape (places,)."""
        return np.searchsorted(self.begins, places, side="right")

    def xact_seqno(self, index: int) -> bytes | None:
        """Return one transaction's; None where it is not known."""
        return int(self.seqno[index]).to_bytes(XACT_SEQNO_BYTES, "big") if self.seqno[index] else None


@dataclass(frozen=True, slots=True)
class PlacedSchemaChange:
    """A schema change, and the place among the changes of a batch at which it stands."""

    place: int
    change: SchemaChange


@dataclass(frozen=True, slots=True)
class PlacedMessage:
    """A message that is a command of no article, and the place among the changes of a batch at which it stands."""

    place: int
    operation: Operation
    text: str
    """The command's after image."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What some messages changed, by article and operation."""

    buffer: Buffer
    sets: list[ChangeSet]
    transactions: Transactions
    schema_changes: Sequence[PlacedSchemaChange] = ()
    """In the order of their places."""
    messages: Sequence[PlacedMessage] = ()
    """In the order of their places."""


class RefusedChange(Exception):  # noqa: N818 — it is no error of its own, it carries one
    """A change that cannot become a command: reading ends before its transaction. `place` is the change's."""

    def __init__(
        self, place: int, error: ReplicationError, *, lacks_old_row: bool = False, rows_unknown: str | None = None
    ) -> None:
        super().__init__(error.message)
        self.place = place
        self.error = error
        self.lacks_old_row = lacks_old_row
        self.rows_unknown = rows_unknown
        """Why the log does not say which rows the article of the error has now; None where it does."""


def cells_differ(buffer: Buffer, old: Cells, new: Cells) -> Bools:
    """Return which cells differ, of the cells' shape. A value the log leaves out does not."""
    differ: Bools = (old.lengths != new.lengths) & (new.lengths != NOT_IN_LOG)
    is_elsewhere = old.starts != new.starts
    undecided = np.flatnonzero((is_elsewhere & (old.lengths == new.lengths) & (new.lengths > 0)).ravel())
    if not len(undecided):
        return differ
    lengths = new.lengths.ravel()[undecided]
    old_values = buffer.strings(old.starts.ravel()[undecided], lengths)
    new_values = buffer.strings(new.starts.ravel()[undecided], lengths)
    unequal = pc.not_equal(old_values, new_values).to_numpy(zero_copy_only=False)
    result = differ.ravel()
    result[undecided] = unequal
    decided: Bools = result.reshape(differ.shape)
    return decided
