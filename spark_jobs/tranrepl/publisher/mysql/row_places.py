"""The places of rows and values in rows events, found for many events at a time.

A row has no length: where the next one begins is known when its values are. But every event has a cursor of its own,
and one step moves all cursors by one row. A step only passes over values; those of all rows are looked at afterwards,
column by column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tranrepl.errors import DataError
from tranrepl.model.arrays import Bools, Bytes, Ints
from tranrepl.publisher.changes import NULL
from tranrepl.publisher.mysql.table_maps import LoggedColumn, LoggedTable

_WORD = 8
_LOWEST = np.array([*((1 << 8 * it) - 1 for it in range(_WORD)), -1], dtype=np.int64)
"""The bits of so many bytes at the low end of a word."""
_COMPARED_BYTES = 2 * _WORD


class LogBytes:
    """Bytes of a log, of one piece or several, with integers readable at any offset."""

    def __init__(self, *pieces: Bytes) -> None:
        self.length = sum(map(len, pieces))
        # Reads of up to 16 bytes past a value's start must stay inside.
        self.bytes = np.concatenate([*pieces, np.zeros(16, dtype=np.uint8)])
        self._views: dict[str, npt.NDArray[np.generic]] = {}

    def numbers(self, at: Ints, dtype: str) -> Ints:
        """Return the integers of this type that begin at these offsets; those of eight bytes without a sign keep their
        bits."""
        return self._view(dtype)[at].astype(np.int64)

    def are(self, at: Ints, value: bytes) -> Bools:
        """Return at which of these offsets these bytes are."""
        is_there: Bools = self._view(f"V{len(value)}")[at] == np.void(value)
        return is_there

    def put(self, at: Ints, value: bytes) -> None:
        """Write these bytes at each of these offsets."""
        self._view(f"V{len(value)}")[at] = np.void(value)

    def _view(self, dtype: str) -> npt.NDArray[np.generic]:
        if dtype not in self._views:
            count = len(self.bytes) - np.dtype(dtype).itemsize + 1
            self._views[dtype] = np.ndarray(shape=(count,), dtype=dtype, buffer=self.bytes.data, strides=(1,))
        return self._views[dtype]

    def number(self, at: Ints, count: int) -> Ints:
        """Return the integers of so many bytes, the lowest first."""
        if count == 3:
            return self.numbers(at, "<u4") & 0xFFFFFF
        return self.numbers(at, {1: "u1", 2: "<u2", 4: "<u4", 8: "<i8"}[count])

    def big(self, at: Ints, count: int) -> Ints:
        """Return the integers of so many bytes, 8 at most, the highest first."""
        if count == 0:
            return np.zeros(len(at), dtype=np.int64)
        value = self.numbers(at, ">u8")
        return value if count == 8 else (value >> (64 - 8 * count)) & ((1 << 8 * count) - 1)


@dataclass(frozen=True, slots=True)
class Images:
    """Row images of a table. `starts` and `lengths` have shape (images, columns),
    lengths NULL where there is no value."""

    starts: Ints
    lengths: Ints
    ends: Ints
    """Where each image ends, shape (images,)."""

    def are_same(self, data: LogBytes, others: Images, column: int) -> bool:
        """Return whether a column has the bytes in every image that it has in the other one, and few of them. One NULL
        is the same as another."""
        lengths = self.lengths[:, column]
        if (lengths > _COMPARED_BYTES).any() or (lengths != others.lengths[:, column]).any():
            return False
        for at in range(0, int(lengths.max(initial=0)), _WORD):
            one, other = (data.numbers(it.starts[:, column] + at, "<i8") for it in (self, others))
            if ((one ^ other) & _LOWEST[np.clip(lengths - at, 0, _WORD)]).any():
                return False
        return True


@dataclass(frozen=True, slots=True)
class _Run:
    """Columns of one width each, which follow one another, and the one of variable length after them."""

    columns: tuple[int, ...]
    variable: int | None


class ImageLayout:
    """How the images of a table lie in the log."""

    def __init__(self, table: LoggedTable) -> None:
        self.columns: Sequence[LoggedColumn] = table.columns
        self.null_bytes = (len(self.columns) + 7) // 8
        self._nullable = [at for at, it in enumerate(self.columns) if it.nullable]
        self._runs = list(self._cut())
        self._widths = [self._by_null_byte(it) for it in self._runs]

    def _cut(self) -> Sequence[_Run]:
        runs, fixed = [], list[int]()
        for at, it in enumerate(self.columns):
            if it.length_bytes:
                runs.append(_Run(tuple(fixed), at))
                fixed = []
            else:
                fixed.append(at)
        return [*runs, _Run(tuple(fixed), None)]

    def _by_null_byte(self, run: _Run) -> tuple[int, dict[int, Ints]]:
        """Return the width of a run's columns without NULLs, and by each byte of NULL bits how much less that is, by
        its value."""
        full = sum(self.columns[at].bytes for at in run.columns)
        less: dict[int, Ints] = {}
        for at in run.columns:
            if self.columns[at].nullable:
                table = less.setdefault(at // 8, np.zeros(256, dtype=np.int64))
                table[(np.arange(256) >> at % 8) & 1 == 1] += self.columns[at].bytes
        return full, less

    def skip(self, data: LogBytes, at: Ints) -> Ints:
        """Return where the images end that begin at these offsets."""
        nulls: dict[int, Ints] = {}

        def null_byte(number: int) -> Ints:
            if number not in nulls:
                nulls[number] = data.bytes[at + number].astype(np.int64)
            return nulls[number]

        to = at + self.null_bytes
        for run, (full, less) in zip(self._runs, self._widths, strict=True):
            to = to + full
            for number, table in less.items():
                to -= table[null_byte(number)]
            if run.variable is not None:
                column = self.columns[run.variable]
                size = data.number(to, column.length_bytes) + column.length_bytes
                if column.nullable:
                    size[(null_byte(run.variable // 8) >> run.variable % 8) & 1 == 1] = 0
                to += size
        return to

    def images(self, data: LogBytes, at: Ints, wanted: Sequence[int]) -> Images:
        """Return the images that begin at these offsets, with these columns."""
        place = {column: number for number, column in enumerate(wanted)}
        shape = (len(at), len(wanted))
        starts, lengths = (np.zeros(shape, dtype=np.int64, order="F") for _ in range(2))
        to = at + self.null_bytes
        for number, column in enumerate(self.columns):
            is_null: Bools | None = None
            if column.nullable:
                is_null = (data.bytes[at + number // 8] >> number % 8) & 1 == 1
                if not is_null.any():
                    is_null = None
            prefix = column.length_bytes
            size = data.number(to, prefix) if prefix else np.full(len(at), column.bytes, dtype=np.int64)
            if is_null is not None:
                size[is_null] = 0
            if number in place:
                starts[:, place[number]] = to + prefix
                lengths[:, place[number]] = size if is_null is None else np.where(is_null, NULL, size)
            to = to + size + (prefix if is_null is None else np.where(is_null, 0, prefix))
        return Images(starts, lengths, to)


def row_starts(starts: Ints, ends: Ints, skip: Callable[[Ints], Ints], where: str) -> Ints:
    """Return where each row begins of events whose rows lie between these offsets, ascending. Raises DataError where
    rows do not end with their event."""
    found = [np.zeros(0, dtype=np.int64)]
    at, end = starts[starts < ends], ends[starts < ends]
    while len(at):
        found.append(at)
        at = skip(at)
        if (at > end).any():
            raise DataError(f"{where}: rows of the binary log do not end where their event does")
        live = at < end
        at, end = at[live], end[live]
    return np.sort(np.concatenate(found))
