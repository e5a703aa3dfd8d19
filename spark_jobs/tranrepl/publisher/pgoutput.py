"""Decode PostgreSQL's `pgoutput` messages (protocol version 1) into changes, a whole Arrow batch at a time.

Message formats: PostgreSQL documentation, "Logical Replication Message Formats". Every step works on all messages of
a batch at once; only Relation and Truncate messages, of which there are few, are read one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tranrepl.article import RegisteredArticle
from tranrepl.commands import ROW_LAYOUT, Operation

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_POSTGRES_EPOCH_US = 946_684_800_000_000
_INLINE = 12
"""Arrow's string views hold up to this many bytes themselves."""
_INLINE_MASKS = np.array(
    [[(1 << 8 * min(max(length - 4 * word, 0), 4)) - 1 for word in range(3)] for length in range(_INLINE + 1)],
    dtype=np.uint32,
)
_NULL = -1
_UNCHANGED = -2
"""Length of a cell that the log leaves out: an unchanged TOASTed value."""


@dataclass(frozen=True, slots=True)
class RelationColumn:
    name: str
    type_oid: int
    type_modifier: int


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as a Relation message announces it."""

    object_id: int
    schema: str
    table: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class RelationMismatch:
    """The log announced a table that no longer fits its article."""

    article: RegisteredArticle
    relation: Relation
    problem: str


@dataclass(frozen=True, slots=True)
class Commit:
    """The end of a transaction. LSNs as integers, the time in µs since 1970 UTC."""

    lsn: int
    end_lsn: int
    time: int


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """What one batch of messages held, up to where decoding stopped.

    `commits` has a row per transaction that ended: its index among the batch's messages, LSN, end LSN, time.
    """

    changes: pa.RecordBatch
    last_commit: Commit | None
    transactions: int
    mismatch: RelationMismatch | None = None
    limit_reached: bool = False


@dataclass(slots=True)
class Limits:
    """A batch ends with the transaction that reaches one of these; `stop_at` is the commit LSN to end with."""

    transactions: int
    message_bytes: int
    stop_at: int | None = None


@dataclass(slots=True)
class _Cells:
    """The values of a set of tuples, one row a tuple: where each starts in the buffer, and its length or _NULL or
    _UNCHANGED."""

    starts: Ints
    lengths: Ints


@dataclass(slots=True)
class _Image:
    """One image (before or after) of every change: cells in row order, flat, with the rows' offsets into them."""

    present: Bools
    offsets: Ints
    starts: Ints
    lengths: Ints


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where an article's columns stand in a relation's tuples."""

    article: RegisteredArticle
    tuple_columns: int
    positions: Ints


class _Buffer:
    """The messages' bytes, with big-endian integers readable at any offset."""

    def __init__(self, data: Bytes) -> None:
        # Reads of up to 16 bytes past a value's start must stay inside.
        self.bytes = np.concatenate([data, np.zeros(16, dtype=np.uint8)])
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
        return self._views[">u2"][at].astype(np.int64)

    def uint32(self, at: Ints) -> Ints:
        return self._views[">u4"][at].astype(np.int64)

    def int32(self, at: Ints) -> Ints:
        return self._views[">u4"][at].astype(np.uint32).view(np.int32).astype(np.int64)

    def uint64(self, at: Ints) -> Ints:
        return self._views[">u8"][at].astype(np.int64)

    def words(self, at: Ints) -> npt.NDArray[np.uint32]:
        return self._views["<u4"][at].astype(np.uint32, copy=False)


@dataclass(slots=True)
class _Transaction:
    """Where decoding stands inside a transaction that spans batches."""

    commit_lsn: int = 0
    commit_time: int = 0
    commands: int = 0


@dataclass(slots=True)
class PgOutputDecoder:
    """Turns batches of messages, in the order the log gives them, into changes of the registered articles.

    State between batches: the relations announced so far, the open transaction, and how much was read.
    """

    articles: Sequence[RegisteredArticle]
    limits: Limits
    transactions: int = 0
    message_bytes: int = 0
    _layouts: dict[int, _Layout] = field(default_factory=dict)
    _open: _Transaction = field(default_factory=_Transaction)

    def decode(self, messages: pa.BinaryArray) -> DecodedBatch:
        """Decode one batch. After one that says `limit_reached` or carries a `mismatch`, decode no more."""
        if len(messages) == 0:
            return DecodedBatch(_empty_changes(), None, 0)
        offsets = np.frombuffer(messages.buffers()[1], dtype=np.int32)
        starts = offsets[messages.offset : messages.offset + len(messages) + 1].astype(np.int64)
        data = np.frombuffer(messages.buffers()[2], dtype=np.uint8)[starts[0] : starts[-1]]
        starts = starts - starts[0]
        buffer = _Buffer(data)
        kinds = buffer.bytes[starts[:-1]]
        end, limit_reached = self._end(buffer, kinds, starts)
        mismatch, end, layouts = self._read_relations(buffer, kinds, starts, end)
        changes = self._changes(buffer, kinds[:end], starts[:end], layouts)
        ended = np.flatnonzero(kinds[:end] == ord("C"))
        self.transactions += len(ended)
        self.message_bytes += int(starts[end])
        commit = _commit(buffer, starts[ended[-1]]) if len(ended) else None
        return DecodedBatch(changes, commit, len(ended), mismatch, limit_reached and mismatch is None)

    def _end(self, buffer: _Buffer, kinds: Bytes, starts: Ints) -> tuple[int, bool]:
        """How many messages belong to this batch: up to the commit that reaches a limit, else all."""
        commits = np.flatnonzero(kinds == ord("C"))
        reached = (np.arange(1, len(commits) + 1) + self.transactions >= self.limits.transactions) | (
            starts[commits + 1] + self.message_bytes >= self.limits.message_bytes
        )
        if self.limits.stop_at is not None:
            reached |= buffer.uint64(starts[commits] + 2) >= self.limits.stop_at
        if not reached.any():
            return len(kinds), False
        return int(commits[np.argmax(reached)]) + 1, True

    def _read_relations(
        self, buffer: _Buffer, kinds: Bytes, starts: Ints, end: int
    ) -> tuple[RelationMismatch | None, int, list[tuple[int, _Layout]]]:
        """Learn the tables announced in this batch. Returns the layouts with the message index from which each holds.

        Ends the batch before a Relation message that does not fit its article.
        """
        by_object_id = {article.source_object_id: article for article in self.articles}
        layouts = [(-1, layout) for layout in self._layouts.values()]
        for index in np.flatnonzero(kinds[:end] == ord("R")).tolist():
            relation = _read_relation(buffer.bytes[starts[index] : starts[index + 1]].tobytes())
            article = by_object_id.get(relation.object_id)
            if article is None:
                continue
            layout = _fit(article, relation)
            if isinstance(layout, RelationMismatch):
                return layout, index, layouts
            layouts.append((index, layout))
            self._layouts[article.source_object_id] = layout
        return None, end, layouts

    def _changes(
        self, buffer: _Buffer, kinds: Bytes, starts: Ints, layouts: list[tuple[int, _Layout]]
    ) -> pa.RecordBatch:
        rows, operations, object_ids, tuples = _change_messages(buffer, kinds, starts)
        layout_of_row = _layouts_of_rows(rows, object_ids, layouts)
        published = layout_of_row >= 0
        rows, operations, tuples, layout_of_row = (
            column[published] for column in (rows, operations, tuples, layout_of_row)
        )
        images = _Images.read(buffer, operations, tuples, layout_of_row, [layout for _, layout in layouts])
        kept = ~images.unchanged
        article_ids = np.array([layout.article.article_id for _, layout in layouts] or [0], dtype=np.int32)
        transaction = self._transactions(buffer, kinds, starts, rows[kept])
        return pa.RecordBatch.from_arrays(
            [
                _binary(transaction.commit_lsn.astype(">u8").view(np.uint8).reshape(-1, 8)),
                pa.array(transaction.command_id),
                pa.array(transaction.commit_time).cast(pa.timestamp("us")).cast(pa.timestamp("us", tz="UTC")),
                pa.array(article_ids[layout_of_row[kept]]),
                pa.array(operations[kept].astype(np.int8)),
                images.before_array(kept),
                images.after_array(kept),
                images.changed_array(kept),
            ],
            schema=ROW_LAYOUT,
        )

    def _transactions(self, buffer: _Buffer, kinds: Bytes, starts: Ints, rows: Ints) -> _RowTransactions:
        begins = np.flatnonzero(kinds == ord("B"))
        # Entry 0 is the transaction that was open when the batch began.
        lsn = np.concatenate([[self._open.commit_lsn], buffer.uint64(starts[begins] + 1)])
        time = np.concatenate([[self._open.commit_time], buffer.uint64(starts[begins] + 9) + _POSTGRES_EPOCH_US])
        of_row = np.searchsorted(begins, rows, side="right")
        first_row = np.searchsorted(of_row, np.arange(len(lsn)), side="left")
        command_id = np.arange(1, len(rows) + 1) - first_row[of_row]
        command_id[of_row == 0] += self._open.commands
        last = len(lsn) - 1
        self._open = _Transaction(
            int(lsn[last]),
            int(time[last]),
            len(rows) - int(first_row[last]) + (self._open.commands if last == 0 else 0),
        )
        return _RowTransactions(lsn[of_row], time[of_row], command_id)


@dataclass(frozen=True, slots=True)
class _RowTransactions:
    commit_lsn: Ints
    commit_time: Ints
    command_id: Ints


@dataclass(slots=True)
class _Images:
    """Both images of every change and which columns an UPDATE changed."""

    buffer: _Buffer
    operations: Ints
    before: _Image
    after: _Image
    mask_offsets: Ints
    mask: Bytes
    unchanged: Bools
    """UPDATEs that changed no published column: they are no change at all."""

    @classmethod
    def read(
        cls, buffer: _Buffer, operations: Ints, tuples: Ints, layout_of_row: Ints, layouts: list[_Layout]
    ) -> _Images:
        widths = np.array([len(layout.positions) for layout in layouts] or [0], dtype=np.int64)[layout_of_row]
        before, after = _blank_image(widths), _blank_image(widths)
        mask_widths = np.where(operations == Operation.UPDATE, (widths + 7) // 8, 0)
        images = cls(
            buffer,
            operations,
            before,
            after,
            np.concatenate([[0], np.cumsum(mask_widths)]),
            np.zeros(int(mask_widths.sum()), dtype=np.uint8),
            np.zeros(len(operations), dtype=np.bool_),
        )
        readers = {
            Operation.INSERT: images._read_inserts,
            Operation.UPDATE: images._read_updates,
            Operation.DELETE: images._read_deletes,
        }
        for (index, operation), rows in _groups(layout_of_row, operations):
            if operation in readers:
                readers[operation](layouts[index], rows, tuples[rows])
        return images

    def _read_inserts(self, layout: _Layout, rows: Ints, tuples: Ints) -> None:
        cells, _ = _read_tuples(self.buffer, layout, tuples + 1)
        _place(self.after, rows, cells)

    def _read_deletes(self, layout: _Layout, rows: Ints, tuples: Ints) -> None:
        cells, _ = _read_tuples(self.buffer, layout, tuples + 1)
        _place(self.before, rows, cells)

    def _read_updates(self, layout: _Layout, rows: Ints, tuples: Ints) -> None:
        """UPDATEs come with the whole old row ('O'), with the old key where it changed ('K'), or with neither."""
        kinds = self.buffer.bytes[tuples]
        for kind in np.unique(kinds).tolist():
            chosen = np.flatnonzero(kinds == kind)
            starts = tuples[chosen]
            old = None
            if kind != ord("N"):
                old, starts = _read_tuples(self.buffer, layout, starts + 1)
            new, _ = _read_tuples(self.buffer, layout, starts + 1)
            if kind == ord("O") and old is not None:
                changed = _cells_differ(self.buffer, old, new)
            else:
                changed = new.lengths != _UNCHANGED
                old = _key_cells(layout, old, new)
                key = list(layout.article.key_positions)
                changed[:, key] = _cells_differ(
                    self.buffer,
                    _Cells(old.starts[:, key], old.lengths[:, key]),
                    _Cells(new.starts[:, key], new.lengths[:, key]),
                )
            left_out = new.lengths == _UNCHANGED
            new.starts[left_out] = old.starts[left_out]
            new.lengths[left_out] = old.lengths[left_out]
            _place(self.before, rows[chosen], old)
            _place(self.after, rows[chosen], new)
            self.unchanged[rows[chosen]] = ~changed.any(axis=1)
            packed = np.packbits(changed, axis=1, bitorder="little")
            self.mask[self.mask_offsets[rows[chosen]][:, None] + np.arange(packed.shape[1])] = packed

    def before_array(self, kept: Bools) -> pa.Array:
        return _list_array(self.buffer, self.before, kept)

    def after_array(self, kept: Bools) -> pa.Array:
        return _list_array(self.buffer, self.after, kept)

    def changed_array(self, kept: Bools) -> pa.Array:
        offsets = pa.py_buffer(self.mask_offsets.astype(np.int32))
        is_update = pa.array(self.operations == Operation.UPDATE)
        masks = pa.BinaryArray.from_buffers(
            pa.binary(), len(self.operations), [is_update.buffers()[1], offsets, pa.py_buffer(self.mask)]
        )
        return masks if kept.all() else masks.filter(pa.array(kept))


def _groups(layout_of_row: Ints, operations: Ints) -> list[tuple[tuple[int, Operation], Ints]]:
    """Rows by layout and operation."""
    code = layout_of_row * len(Operation) + operations
    order = np.argsort(code, kind="stable")
    codes, firsts = np.unique(code[order], return_index=True)
    rows = np.split(order, firsts[1:])
    return (
        [
            ((value // len(Operation), Operation(value % len(Operation))), of_code)
            for value, of_code in zip(codes.tolist(), rows, strict=True)
        ]
        if len(codes)
        else []
    )


def _blank_image(widths: Ints) -> _Image:
    offsets = np.concatenate([[0], np.cumsum(widths)])
    cells = int(offsets[-1])
    return _Image(
        np.zeros(len(widths), dtype=np.bool_),
        offsets,
        np.zeros(cells, dtype=np.int64),
        np.full(cells, _NULL, dtype=np.int64),
    )


def _place(image: _Image, rows: Ints, cells: _Cells) -> None:
    at = image.offsets[rows][:, None] + np.arange(cells.starts.shape[1])
    image.starts[at] = cells.starts
    image.lengths[at] = cells.lengths
    image.present[rows] = True


def _key_cells(layout: _Layout, old: _Cells | None, new: _Cells) -> _Cells:
    """The before image of an UPDATE whose old row is not in the log: the key alone, new where it did not change."""
    source = new if old is None else old
    cells = _Cells(np.zeros_like(source.starts), np.full_like(source.lengths, _NULL))
    key = list(layout.article.key_positions)
    cells.starts[:, key] = source.starts[:, key]
    cells.lengths[:, key] = source.lengths[:, key]
    return cells


def _read_tuples(buffer: _Buffer, layout: _Layout, at: Ints) -> tuple[_Cells, Ints]:
    """Read the tuples that start at `at` (at their column count). Returns the article's cells and where tuples end."""
    if (buffer.uint16(at) != layout.tuple_columns).any():
        raise ValueError(f"a tuple of {layout.article.source} has another number of columns than its relation")
    at = at + 2
    shape = (len(at), layout.tuple_columns)
    starts, lengths = np.empty(shape, dtype=np.int64, order="F"), np.empty(shape, dtype=np.int64, order="F")
    for column in range(layout.tuple_columns):
        kind = buffer.bytes[at]
        is_text = kind == ord("t")
        length = np.where(is_text, buffer.int32(at + 1), 0)
        starts[:, column] = at + 5
        lengths[:, column] = np.where(is_text, length, np.where(kind == ord("u"), _UNCHANGED, _NULL))
        at = at + np.where(is_text, 5 + length, 1)
    return _Cells(starts[:, layout.positions], lengths[:, layout.positions]), at


def _cells_differ(buffer: _Buffer, old: _Cells, new: _Cells) -> Bools:
    """Which cells differ. A value the log leaves out does not."""
    differ = (old.lengths != new.lengths) & (new.lengths != _UNCHANGED)
    undecided = np.flatnonzero(((old.lengths == new.lengths) & (new.lengths > 0)).ravel())
    lengths = new.lengths.ravel()[undecided]
    old_starts, new_starts = old.starts.ravel()[undecided], new.starts.ravel()[undecided]
    masks = _INLINE_MASKS[np.minimum(lengths, _INLINE)]
    unequal = np.zeros(len(undecided), dtype=np.bool_)
    for word in range(3):
        both = buffer.words(old_starts + 4 * word) ^ buffer.words(new_starts + 4 * word)
        unequal |= (both & masks[:, word]) != 0
    long = np.flatnonzero((lengths > _INLINE) & ~unequal)
    if len(long):
        old_values = _strings(buffer, old_starts[long], lengths[long])
        new_values = _strings(buffer, new_starts[long], lengths[long])
        unequal[long] = pc.not_equal(old_values, new_values).to_numpy(zero_copy_only=False)
    result = differ.ravel()
    result[undecided] = unequal
    decided: Bools = result.reshape(differ.shape)
    return decided


def _strings(buffer: _Buffer, starts: Ints, lengths: Ints) -> pa.StringArray:
    """Cells as strings: views onto the buffer, which one C++ pass then copies together."""
    count = len(starts)
    views = np.zeros((count, 4), dtype=np.uint32)
    null = lengths < 0
    lengths = np.where(null, 0, lengths)
    views[:, 0] = lengths
    masks = _INLINE_MASKS[np.minimum(lengths, _INLINE)]
    for word in range(3):
        views[:, word + 1] = buffer.words(starts + 4 * word) & masks[:, word]
    long = lengths > _INLINE
    views[long, 2] = 0
    views[long, 3] = starts[long]
    validity = pa.array(~null).buffers()[1] if null.any() else None
    array = pa.Array.from_buffers(pa.string_view(), count, [validity, pa.py_buffer(views), pa.py_buffer(buffer.bytes)])
    return array.cast(pa.string())


def _list_array(buffer: _Buffer, image: _Image, kept: Bools) -> pa.ListArray:
    """The image as array<string>, NULL where it is absent (and then without elements)."""
    present = image.present & kept
    widths = np.diff(image.offsets)
    cells = np.repeat(present, widths)
    starts, lengths = (image.starts, image.lengths) if cells.all() else (image.starts[cells], image.lengths[cells])
    offsets = np.concatenate([[0], np.cumsum(np.where(present, widths, 0)[kept])]).astype(np.int32)
    return pa.ListArray.from_arrays(
        pa.array(offsets),
        _strings(buffer, starts, lengths),
        type=ROW_LAYOUT.field("before").type,
        mask=pa.array(~present[kept]),
    )


def _binary(rows: Bytes) -> pa.BinaryArray:
    count, width = rows.shape
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.BinaryArray.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(rows))]
    )


def _empty_changes() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=ROW_LAYOUT)


def _change_messages(buffer: _Buffer, kinds: Bytes, starts: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """For each changed row: message index, operation, table's oid, and where the tuple part starts."""
    operation_of_kind = np.zeros(256, dtype=np.int64)
    for kind, operation in ((b"I", Operation.INSERT), (b"U", Operation.UPDATE), (b"D", Operation.DELETE)):
        operation_of_kind[kind[0]] = operation
    operations = operation_of_kind[kinds]
    rows = np.flatnonzero(operations)
    operations, object_ids, tuples = operations[rows], buffer.uint32(starts[rows] + 1), starts[rows] + 5
    truncated = [
        (index, object_id)
        for index in np.flatnonzero(kinds == ord("T")).tolist()
        for object_id in buffer.uint32(
            starts[index] + 6 + 4 * np.arange(int(buffer.uint32(starts[index : index + 1] + 1)[0]))
        ).tolist()
    ]
    if not truncated:
        return rows, operations, object_ids, tuples
    more = np.array(truncated, dtype=np.int64)
    rows = np.concatenate([rows, more[:, 0]])
    order = np.argsort(rows, kind="stable")
    operations = np.concatenate([operations, np.full(len(more), Operation.TRUNCATE, dtype=np.int64)])
    object_ids = np.concatenate([object_ids, more[:, 1]])
    tuples = np.concatenate([tuples, np.zeros(len(more), dtype=np.int64)])
    return rows[order], operations[order], object_ids[order], tuples[order]


def _layouts_of_rows(rows: Ints, object_ids: Ints, layouts: list[tuple[int, _Layout]]) -> Ints:
    """Index of the layout that holds for each row: the table's latest before it; -1 for a table that is no article."""
    known = np.array([layout.article.source_object_id for _, layout in layouts], dtype=np.int64)
    if not len(known):
        return np.full(len(rows), -1, dtype=np.int64)
    # Stable, and layouts are in the order of their announcement: `place` finds a table's first.
    order = np.argsort(known, kind="stable")
    place = np.minimum(np.searchsorted(known[order], object_ids), len(known) - 1)
    chosen = np.where(known[order][place] == object_ids, order[place], -1)
    for index, (since, layout) in enumerate(layouts):
        if np.count_nonzero(known == layout.article.source_object_id) > 1:
            chosen[(object_ids == layout.article.source_object_id) & (rows > since)] = index
    return chosen


def _commit(buffer: _Buffer, start: np.int64) -> Commit:
    at = np.array([start + 2, start + 10, start + 18])
    lsn, end_lsn, time = buffer.uint64(at).tolist()
    return Commit(lsn, end_lsn, time + _POSTGRES_EPOCH_US)


def _read_relation(message: bytes) -> Relation:
    object_id = int.from_bytes(message[1:5], "big")
    schema, table, rest = message[5:].split(b"\0", 2)
    count = int.from_bytes(rest[1:3], "big")
    columns, rest = [], rest[3:]
    for _ in range(count):
        name, after = rest[1:].split(b"\0", 1)
        columns.append(
            RelationColumn(
                name.decode(), int.from_bytes(after[:4], "big"), int.from_bytes(after[4:8], "big", signed=True)
            )
        )
        rest = after[8:]
    # An empty schema name stands for pg_catalog.
    return Relation(object_id, schema.decode() or "pg_catalog", table.decode(), tuple(columns))


def _fit(article: RegisteredArticle, relation: Relation) -> _Layout | RelationMismatch:
    """Find the article's columns in the relation. Columns that the article does not publish are passed over."""
    places = {column.name: place for place, column in enumerate(relation.columns)}
    positions = []
    for column in article.columns:
        place = next((places[name] for name in (column.name, *column.earlier_names) if name in places), None)
        if place is None:
            return RelationMismatch(article, relation, f"column {column.name} was dropped or renamed")
        positions.append(place)
        found = relation.columns[place]
        types = ((column.type_oid, column.type_modifier), *column.earlier_types)
        if (found.type_oid, found.type_modifier) not in types:
            return RelationMismatch(article, relation, f"column {column.name} is no longer {column.type_name}")
    return _Layout(article, len(relation.columns), np.array(positions, dtype=np.int64))
