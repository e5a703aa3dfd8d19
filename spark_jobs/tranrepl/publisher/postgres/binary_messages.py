"""`pgoutput` messages whose values are in the binary form of their types, with the text form put in its place.

A server builds a message in one buffer of 1 GB, and bytea is twice as long in text: what does not fit there may fit in
binary. Types of which the text is near at hand are converted here, all others by the Publisher itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import pq

from tranrepl.model.arrays import Ints
from tranrepl.postgres.session import Session, translate
from tranrepl.publisher.changes import Buffer
from tranrepl.publisher.postgres.relations import read_relation

_BOOLEAN, _BYTEA, _BPCHAR, _VARCHAR, _TEXT, _NAME, _JSON, _JSONB, _TSQUERY = 16, 17, 1042, 1043, 25, 19, 114, 3802, 3615
_AS_IT_IS = frozenset({_TEXT, _VARCHAR, _BPCHAR, _NAME, _JSON})
_INTEGERS = {21: ">i2", 23: ">i4", 20: ">i8"}
_HEXADECIMAL = np.frombuffer(bytes(range(256)).hex().encode(), dtype="<u2")
"""The two digits of each byte."""
_PREFIX = np.frombuffer(b"\\x", dtype="<u2")[0]
_AT_ONCE = 16 * 1024 * 1024
_LENGTH_BYTES = 4
_MOST_PARAMETERS = 1000
"""The most of one statement: a SELECT gives 1,664 columns at most."""
_MOST_PARAMETER_BYTES = 64 * 1024 * 1024
_LONGEST = 2**31 - 2
"""The most bytes that an Arrow array can hold."""


class TooLongError(Exception):
    """A message whose text form no buffer takes."""


@dataclass(slots=True)
class TextForm:
    """Converts consecutive batches of messages. State between them: the types of the relations' columns."""

    session: Session
    """At the Publisher, with the settings of the text form and no search path but pg_catalog."""
    _types: dict[int, Ints] = field(default_factory=dict)

    def __call__(self, batches: Iterable[pa.BinaryArray]) -> Iterator[pa.BinaryArray]:
        for batch in batches:
            yield self._converted(batch) if len(batch) else batch

    def _converted(self, batch: pa.BinaryArray) -> pa.BinaryArray:
        offsets = np.frombuffer(batch.buffers()[1], dtype=np.int32)[batch.offset : batch.offset + len(batch) + 1]
        starts = offsets.astype(np.int64) - offsets[0]
        buffer = Buffer(np.frombuffer(batch.buffers()[2], dtype=np.uint8)[offsets[0] : offsets[-1]])
        cells = self._binary_cells(buffer, starts)
        if not len(cells.starts):
            return batch
        return _replaced(buffer, starts, cells, self._texts(buffer, cells))

    def _binary_cells(self, buffer: Buffer, starts: Ints) -> _Cells:
        kinds = buffer.bytes[starts[:-1]]
        relations = np.flatnonzero(kinds == ord("R"))
        rows = np.flatnonzero(np.isin(kinds, np.frombuffer(b"IUD", dtype=np.uint8)))
        found: list[_Cells] = []
        # Between two announcements, a table's columns have the same types.
        for first, end in pairwise([-1, *relations.tolist(), len(kinds)]):
            if first >= 0:
                relation = read_relation(buffer.bytes[starts[first] : starts[first + 1]].tobytes())
                self._types[relation.object_id] = np.array([it.type_oid for it in relation.columns], dtype=np.int64)
            own = rows[(rows > first) & (rows < end)]
            object_ids = buffer.uint32(starts[own] + 1)
            for object_id in np.unique(object_ids).tolist():
                found += _cells_of(buffer, starts[own[object_ids == object_id]] + 5, self._types[object_id])
        return _Cells.together(found)

    def _texts(self, buffer: Buffer, cells: _Cells) -> pa.LargeBinaryArray:
        """Return the text form of each cell, in their order."""
        arrays: list[pa.LargeBinaryArray] = []
        order: list[Ints] = []
        requested: list[Ints] = []
        for type_oid in np.unique(cells.types).tolist():
            chosen = np.flatnonzero(cells.types == type_oid)
            made = _converted_here(type_oid, buffer, cells.starts[chosen] + 1 + _LENGTH_BYTES, cells.lengths[chosen])
            if made is None:
                requested.append(chosen)
            else:
                arrays.append(made)
                order.append(chosen)
        if requested:
            order.append(np.concatenate(requested))
            arrays.append(self._by_the_publisher(buffer, _accepted(cells.chosen(order[-1]))))
        rank = np.empty(len(cells.starts), dtype=np.int64)
        rank[np.concatenate(order)] = np.arange(len(rank))
        return pa.concat_arrays(arrays).take(pa.array(rank))

    def _by_the_publisher(self, buffer: Buffer, cells: _Cells) -> pa.LargeBinaryArray:
        bounds = _parts(cells.lengths)
        texts = [it for first, end in pairwise(bounds) for it in self._ask(buffer, cells.chosen(slice(first, end)))]
        return pa.array(texts, pa.large_binary())

    def _ask(self, buffer: Buffer, cells: _Cells) -> list[bytes | None]:
        begins = cells.starts + 1 + _LENGTH_BYTES
        places = zip(begins.tolist(), (begins + cells.lengths).tolist(), strict=True)
        values = [buffer.bytes[first:end].tobytes() for first, end in places]
        query = b"SELECT " + b", ".join(b"$%d" % number for number in range(1, len(values) + 1))
        result = self.session.pgconn.exec_params(query, values, cells.types.tolist(), [pq.Format.BINARY] * len(values))
        if result.status != pq.ExecStatus.TUPLES_OK:
            error = psycopg.errors.error_from_result(result, encoding="utf-8")
            raise translate(f"Publisher {self.session.info.dbname}", error)
        return [result.get_value(0, column) for column in range(len(values))]


@dataclass(frozen=True, slots=True)
class _Cells:
    """Binary values, shape (values,) each: where the cell starts, at its kind; how long the value is; its type."""

    starts: Ints
    lengths: Ints
    types: Ints

    @classmethod
    def together(cls, parts: Sequence[_Cells]) -> _Cells:
        """Join cells in the order of the buffer."""
        if not parts:
            nothing = np.zeros(0, dtype=np.int64)
            return cls(nothing, nothing, nothing)
        starts = np.concatenate([it.starts for it in parts])
        order = np.argsort(starts, kind="stable")
        lengths, types = (np.concatenate([getattr(it, name) for it in parts]) for name in ("lengths", "types"))
        return cls(starts[order], lengths[order], types[order])

    def chosen(self, rows: Ints | slice) -> _Cells:
        return _Cells(self.starts[rows], self.lengths[rows], self.types[rows])


def _cells_of(buffer: Buffer, at: Ints, types: Ints) -> Iterator[_Cells]:
    """Yield the cells of the rows of one table, whose tuples begin at `at` with 'N', 'K' or 'O'; a new tuple may follow
    an old one."""
    old = buffer.bytes[at] != ord("N")
    parts, ends = _cells_of_tuples(buffer, at, types)
    yield from parts
    # What follows a DELETE's tuple is another message, which is none of these kinds: 'N' stands for a new tuple alone.
    more = ends[old & (buffer.bytes[ends] == ord("N"))]
    if len(more):
        yield from _cells_of_tuples(buffer, more, types)[0]


def _cells_of_tuples(buffer: Buffer, at: Ints, types: Ints) -> tuple[list[_Cells], Ints]:
    """Return cells, and where each tuple ends."""
    found: list[_Cells] = []
    at = at + 3
    for type_oid in types.tolist():
        kind, length = buffer.bytes[at], buffer.uint32(at + 1)
        binary = kind == ord("b")
        found.append(_Cells(at[binary], length[binary], np.full(int(binary.sum()), type_oid)))
        at = at + np.where(binary | (kind == ord("t")), 1 + _LENGTH_BYTES + length, 1)
    return found, at


def _accepted(cells: _Cells) -> _Cells:
    """Replace empty tsquery values by the empty text: they are sent, but not received."""
    empty = (cells.types == _TSQUERY) & (cells.lengths == _LENGTH_BYTES)
    return _Cells(cells.starts, np.where(empty, 0, cells.lengths), np.where(empty, _TEXT, cells.types))


def _converted_here(type_oid: int, buffer: Buffer, starts: Ints, lengths: Ints) -> pa.LargeBinaryArray | None:
    """Return texts that are converted here; None where the Publisher must convert them."""
    if type_oid in _AS_IT_IS:
        return _gathered(buffer.bytes, starts, lengths)
    if type_oid == _JSONB:
        # A version stands before the text.
        return _gathered(buffer.bytes, starts + 1, lengths - 1)
    if type_oid == _BOOLEAN:
        return pa.array(np.where(buffer.bytes[starts] != 0, b"t", b"f").tolist(), pa.large_binary())
    if type_oid in _INTEGERS:
        width = np.dtype(_INTEGERS[type_oid]).itemsize
        digits = buffer.bytes[starts[:, None] + np.arange(width)]
        numbers = np.ascontiguousarray(digits).view(_INTEGERS[type_oid]).ravel().astype(np.int64)
        return pa.array(numbers).cast(pa.large_string()).cast(pa.large_binary())
    return _hexadecimal(buffer, starts, lengths) if type_oid == _BYTEA else None


def _hexadecimal(buffer: Buffer, starts: Ints, lengths: Ints) -> pa.LargeBinaryArray:
    r"""Write bytes as `\x`, then two digits a byte."""
    # With the byte before each value, in place of which the prefix comes.
    bounds = np.concatenate([[0], np.cumsum(1 + lengths)])
    given = np.frombuffer(_gathered(buffer.bytes, starts - 1, 1 + lengths).buffers()[2], dtype=np.uint8)
    digits = np.empty(int(bounds[-1]), dtype=_HEXADECIMAL.dtype)
    for at in range(0, len(digits), _AT_ONCE):
        # NumPy makes eight bytes of each that it looks up.
        digits[at : at + _AT_ONCE] = _HEXADECIMAL[given[at : at + _AT_ONCE]]
    digits[bounds[:-1]] = _PREFIX
    return _large_binary(2 * bounds, digits)


def _gathered(data: npt.NDArray[np.uint8], starts: Ints, lengths: Ints) -> pa.LargeBinaryArray:
    """Return these places of the data, ascending, one after the other."""
    bounds = np.empty(2 * len(starts) + 1, dtype=np.int64)
    bounds[0:-1:2], bounds[1::2] = starts, starts + lengths
    bounds[-1] = bounds[-2]
    pieces = _large_binary(bounds, data)
    return pieces.take(pa.array(np.arange(0, 2 * len(starts), 2)))


def _large_binary(bounds: Ints, data: npt.NDArray[Any]) -> pa.LargeBinaryArray:
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )


def _replaced(buffer: Buffer, starts: Ints, cells: _Cells, texts: pa.LargeBinaryArray) -> pa.BinaryArray:
    """Return the messages with each cell's text in its place. Raises TooLongError."""
    bounds = np.frombuffer(texts.buffers()[1], dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    lengths = np.diff(bounds)
    growth = np.concatenate([[0], np.cumsum(lengths - cells.lengths)])
    new_starts = starts + growth[np.searchsorted(cells.starts, starts)]
    if new_starts[-1] > _LONGEST:
        raise TooLongError
    headers = np.empty((len(lengths), 1 + _LENGTH_BYTES), dtype=np.uint8)
    headers[:, 0] = ord("t")
    headers[:, 1:] = lengths.astype(">u4").view(np.uint8).reshape(-1, _LENGTH_BYTES)
    ends = cells.starts + 1 + _LENGTH_BYTES + cells.lengths
    after = np.concatenate([[0], ends])
    before = _gathered(buffer.bytes, after, np.concatenate([cells.starts, starts[-1:]]) - after)
    last = pa.array([b""], pa.large_binary())
    data = pc.binary_join_element_wise(
        before,
        pa.concat_arrays([_large_binary((1 + _LENGTH_BYTES) * np.arange(len(lengths) + 1), headers), last]),
        pa.concat_arrays([texts, last]),
        pa.scalar(b"", pa.large_binary()),
    ).buffers()[2]
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(starts) - 1, [None, pa.py_buffer(new_starts.astype(np.int32)), data]
    )


def _parts(lengths: Ints) -> list[int]:
    """Return where statements begin and end, of so many values and bytes at most."""
    bounds, bytes_so_far = [0], 0
    for place, length in enumerate(lengths.tolist()):
        bytes_so_far += length
        if place > bounds[-1] and (place - bounds[-1] == _MOST_PARAMETERS or bytes_so_far > _MOST_PARAMETER_BYTES):
            bounds.append(place)
            bytes_so_far = length
    return [*bounds, len(lengths)]
