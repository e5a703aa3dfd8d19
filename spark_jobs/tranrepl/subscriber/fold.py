"""Commands of one article folded by key: what they come to, and what must be true before.

A row is in the table before its first command, or it is not; the same holds after its last. Between the two lie the
values that it ends with: of each column the one that was set last. The order of different rows is given up, which is
right where nothing at the Subscriber looks on: no trigger, no procedure of its own, no key that changes its row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tranrepl.article import RegisteredArticle
from tranrepl.call_syntax import Image, sent
from tranrepl.commands import Operation
from tranrepl.image_lines import NULL, cells
from tranrepl.subscriber.key_order import Columns, Ints, key_order

Bools = npt.NDArray[np.bool_]
Masks = npt.NDArray[np.uint8]


class NotFoldableError(Exception):
    """Why commands cannot be folded: one by one, they may be applied all the same, or fail with an error."""


@dataclass(frozen=True, slots=True)
class FoldedUpdates:
    """Rows that stay, with the values they end with."""

    keys: Columns
    values: dict[int, pa.StringArray]
    """By position (from 0) of each published column that some row sets; where a row does not, its cell means nothing.
    """
    masks: Masks
    """A row's bitmask of what it sets, one row each, laid out as `encode_changed` does."""

    def __len__(self) -> int:
        return len(self.masks)

    def setting(self, position: int) -> Bools:
        """Which rows set a column."""
        return _bit(self.masks, position)

    def mask_digits(self) -> pa.StringArray:
        """Each row's bitmask in hexadecimal."""
        digits = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
        rows, width = self.masks.shape
        text = np.empty((rows, 2 * width), dtype=np.uint8)
        text[:, 0::2], text[:, 1::2] = digits[self.masks >> 4], digits[self.masks & 15]
        offsets = np.arange(rows + 1, dtype=np.int32) * text.shape[1]
        return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(text))


@dataclass(frozen=True, slots=True)
class Folded:
    """What commands of one article come to. Keys and values are cells of `image_lines`, still escaped; a key's columns
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


def fold(commands: pa.Table, article: RegisteredArticle) -> Folded:
    """Fold commands (row layout, in order) of one article: INSERT, UPDATE and DELETE.

    Raises NotFoldableError where they do not follow from one another, or an UPDATE changes a key.
    """
    commands = commands.combine_chunks()
    operations = commands["operation"].to_numpy()
    if (operations == Operation.INSERT).all():
        # Whether one comes twice is for the table's own key to say.
        nothing = _no_keys(article)
        return Folded(article, nothing, None, _only_chunk(commands, Image.AFTER), nothing)
    return _Folding(article, commands, operations.astype(np.int64)).folded()


def _no_keys(article: RegisteredArticle) -> Columns:
    return tuple(pa.array([], pa.string()) for _ in article.key_positions)


@dataclass(frozen=True)
class _Folding:
    article: RegisteredArticle
    commands: pa.Table
    operations: Ints

    def folded(self) -> Folded:
        """Groups are numbered in the order of their first commands."""
        self._require_unchanged_keys()
        self._require_succession()
        first, last = self._sorted[self._starts], self._sorted[self._ends - 1]
        was_there, is_there = first != Operation.INSERT, last != Operation.DELETE
        left = np.add.reduceat(self._sorted == Operation.DELETE, self._starts) > 0
        updated = was_there & is_there & ~left
        deleted, absent = np.flatnonzero(was_there & left), np.flatnonzero(~was_there & ~is_there)
        return Folded(
            self.article,
            self._keys_of(self._by_key(deleted)),
            self._updates(np.flatnonzero(updated)) if updated.any() else None,
            self._inserts(is_there & ~updated),
            self._keys_of(absent),
        )

    def _require_unchanged_keys(self) -> None:
        updates = np.flatnonzero(self.operations == Operation.UPDATE)
        if len(updates) == 0:
            return
        if self._masked:
            set_bits = [_bit(self._masks[updates], at) for at in self.article.key_positions]
            changed = np.logical_or.reduce(set_bits)
        else:
            places = pa.array(updates)
            after = [self._after.column(at, updates) for at in self.article.key_positions]
            same = [
                np.asarray(pc.equal(new, old.take(places)).to_numpy(zero_copy_only=False), dtype=np.bool_)
                for new, old in zip(after, self._keys, strict=True)
            ]
            changed = ~np.logical_and.reduce(same)
        if changed.any():
            raise NotFoldableError("an UPDATE changes the key")

    def _require_succession(self) -> None:
        """A row is inserted where it is not, and updated or deleted where it is."""
        inside = np.ones(len(self._sorted), dtype=np.bool_)
        inside[self._starts] = False
        gone = np.concatenate([[False], self._sorted[:-1] == Operation.DELETE])
        if (inside & (gone != (self._sorted == Operation.INSERT))).any():
            raise NotFoldableError("commands for one row do not follow from one another")

    # Groups: the commands of one key, in order

    @cached_property
    def _keys(self) -> Columns:
        """What each command finds its row by."""
        inserted = self.operations == Operation.INSERT
        columns = []
        for at in self.article.key_positions:
            before, after = self._before.places(at), self._after.places(at) + len(self._before.values)
            column = self._values.take(pa.array(np.where(inserted, after, before)))
            if pc.any(pc.equal(column, NULL)).as_py():
                raise NotFoldableError("a key holds NULL")
            columns.append(column)
        return tuple(columns)

    @cached_property
    def _values(self) -> pa.StringArray:
        return pa.concat_arrays([self._before.values, self._after.values])

    @cached_property
    def _groups(self) -> Ints:
        names = self._keys[0] if len(self._keys) == 1 else pc.binary_join_element_wise(*self._keys, "\t")
        return np.asarray(names.dictionary_encode().indices.to_numpy(), dtype=np.int64)

    @cached_property
    def _order(self) -> Ints:
        """Commands by group, in order within."""
        if int(self._groups[-1]) == len(self._groups) - 1:
            return np.arange(len(self._groups))
        return np.argsort(self._groups, kind="stable")

    @cached_property
    def _starts(self) -> Ints:
        groups = self._groups[self._order]
        return np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]]))

    @cached_property
    def _ends(self) -> Ints:
        return np.concatenate([self._starts[1:], [len(self._order)]])

    @cached_property
    def _sorted(self) -> Ints:
        """Operations by group."""
        return self.operations[self._order]

    def _keys_of(self, groups: Ints) -> Columns:
        places = pa.array(self._order[self._starts[groups]])
        return tuple(column.take(places) for column in self._keys)

    def _by_key(self, groups: Ints) -> Ints:
        """In the order of their keys: neighbours share a page of the key's index, and mostly one of the table."""
        return groups[key_order(self._keys_of(groups))]

    # Values

    @cached_property
    def _before(self) -> _Cells:
        return _Cells.of(self.commands, Image.BEFORE)

    @cached_property
    def _after(self) -> _Cells:
        return _Cells.of(self.commands, Image.AFTER)

    @cached_property
    def _masked(self) -> bool:
        return sent(self.article.propagation(Operation.UPDATE), Operation.UPDATE).mask

    @cached_property
    def _masks(self) -> Masks:
        """What each command sets, as bits: an INSERT sets all."""
        width = (len(self.article.columns) + 7) // 8
        masks = np.full((len(self.operations), width), 0xFF, dtype=np.uint8)
        masks[self.operations == Operation.DELETE] = 0
        if self._masked:
            updates = self.operations == Operation.UPDATE
            masks[updates] = _mask_bytes(_only_chunk(self.commands, "changed"), width)[updates]
        return masks

    def _last_setting(self, at: int) -> Ints:
        """Of each group, the command that sets a column last; negative where none does."""
        sets = _bit(self._masks, at)[self._order]
        places = np.maximum.reduceat(np.where(sets, np.arange(len(sets)), -1), self._starts)
        return np.where(places < 0, -1, self._order[places])

    def _updates(self, groups: Ints) -> FoldedUpdates:
        set_by_group = np.bitwise_or.reduceat(self._masks[self._order], self._starts, axis=0)
        others = [at for at in self.article.unique_positions if at not in self.article.key_positions]
        # A value may pass from row to row: each of them gives it up before the next one takes it.
        if not any(_bit(set_by_group[groups], at).any() for at in others):
            groups = self._by_key(groups)
        masks, values = set_by_group[groups], {}
        for at in range(len(self.article.columns)):
            setting = self._last_setting(at)[groups]
            if (setting >= 0).any():
                values[at] = self._after.column(at, setting)
        return FoldedUpdates(self._keys_of(groups), values, masks)

    def _inserts(self, groups: Bools) -> pa.StringArray:
        last = self._order[self._ends[groups] - 1]
        if (self.operations[last] == Operation.INSERT).all():
            return _only_chunk(self.commands, Image.AFTER).take(pa.array(last))
        columns = [self._after.column(at, self._last_setting(at)[groups]) for at in range(len(self.article.columns))]
        return pc.binary_join_element_wise(*columns, "\t")


@dataclass(frozen=True, slots=True)
class _Cells:
    """The cells of all images, and where each image's begin among them."""

    values: pa.StringArray
    starts: Ints

    @classmethod
    def of(cls, commands: pa.Table, image: Image) -> _Cells:
        listed = cells(_only_chunk(commands, image))
        offsets = listed.offsets.to_numpy().astype(np.int64)
        first, end = int(offsets[0]), int(offsets[-1])
        return cls(listed.values.slice(first, end - first), offsets[:-1] - first)

    def places(self, at: int) -> Ints:
        return self.starts + at

    def column(self, at: int, rows: Ints) -> pa.StringArray:
        """One column's cells of these rows; NULL where the row is negative."""
        absent = rows < 0
        places = self.starts[rows] + at
        taken = self.values.take(pa.array(places, mask=absent) if absent.any() else pa.array(places))
        return pc.fill_null(taken, NULL) if absent.any() else taken


def _only_chunk(commands: pa.Table, name: str) -> pa.Array:
    chunked = commands[name]
    return chunked.chunk(0) if chunked.num_chunks else pa.array([], chunked.type)


def _bit(masks: Masks, at: int) -> Bools:
    return np.asarray((masks[:, at // 8] >> np.uint8(at % 8)) & 1, dtype=np.bool_)


def _mask_bytes(masks: pa.BinaryArray, width: int) -> Masks:
    """Each mask as a row of `width` bytes, zeros where it is NULL."""
    offsets = np.frombuffer(masks.buffers()[1], dtype=np.int32)[masks.offset : masks.offset + len(masks) + 1]
    lengths = np.diff(offsets)
    if (lengths > width).any():
        raise NotFoldableError("a mask is wider than its article")
    data = np.frombuffer(masks.buffers()[2], dtype=np.uint8)[offsets[0] : offsets[-1]] if lengths.any() else None
    rows = np.zeros((len(masks), width), dtype=np.uint8)
    if data is not None:
        within = np.arange(width)[None, :] < lengths[:, None]
        rows[within] = data
    return rows
