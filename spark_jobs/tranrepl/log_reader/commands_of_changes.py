"""Changes become commands: row filter, deferred updates, what is not propagated, what each call syntax sends.

Commands are made where the log is decoded, of values that still lie in the log's own buffer, so that a value that does
not travel is never copied.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tranrepl.log_reader.refusal import refuse_left_out, refused_length, refused_truncate
from tranrepl.log_reader.row_filter import deletes_of, filtered, inserts_of
from tranrepl.model.arrays import Bools, Bytes, Ints
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.bitmask import bitmasks
from tranrepl.model.call_syntax import Image, Values, sent
from tranrepl.model.command_rows import ROW_LAYOUT
from tranrepl.model.commands import NO_ARTICLE_ID, XACT_SEQNO_BYTES, Method, Operation
from tranrepl.model.position import Positions
from tranrepl.model.propagation import Truncation, UpdatePolicy
from tranrepl.model.row_images import lines
from tranrepl.publisher.changes import NOT_IN_LOG, NULL, Buffer, Cells, Changes, ChangeSet, RefusedChange, Transactions
from tranrepl.publisher.log_range import RowFilters

_WITH_TEXT = tuple(map(int, (Operation.SCHEMA, Operation.SCRIPT, Operation.TRACER_TOKEN)))


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of commands of one `article_id` by one operation, as a `ChangeSet` has them."""

    article_id: int
    operation: Operation
    places: Ints
    before: Cells | None = None
    after: Cells | None = None
    changed: Bools | None = None
    turn: Ints | None = None

    @classmethod
    def of(cls, it: ChangeSet) -> _Rows:
        return cls(it.article.article_id, it.operation, it.places, it.before, it.after, it.changed, it.turn)


@dataclass(slots=True)
class CommandsOfChanges:
    """Turns the changes of consecutive batches of messages into commands (row layout).

    State between batches: how many commands the open transaction has so far.
    """

    positions: Positions
    filters: RowFilters | None = None
    """Needed where an article has a row filter."""
    _open_commands: int = 0

    def __call__(self, changes: Changes) -> pa.RecordBatch:
        """Return the commands, in order. Raises RefusedChange where a change cannot become one."""
        try:
            return self._commands(changes)
        except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:
            # An array of 32-bit offsets holds 2 GB.
            refused = refused_length(changes, self.positions)
            if refused is None:
                raise
            raise refused from error

    def _commands(self, changes: Changes) -> pa.RecordBatch:
        sets = [it for given in self._by_article(changes) for it in given]
        single = singletons(changes)
        going = [pair for it in sets for pair in pairs(it, changes.transactions, single)]
        commands = [_Rows.of(_travelling(it)) for it in going if len(it.places) and _is_propagated(it)]
        texts = {it.place: it.change.model_dump_json() for it in changes.schema_changes}
        texts |= {it.place: it.text for it in changes.messages}
        commands += [
            _Rows(it.change.article_id, Operation.SCHEMA, np.array([it.place])) for it in changes.schema_changes
        ]
        commands += [_Rows(NO_ARTICLE_ID, it.operation, np.array([it.place])) for it in changes.messages]
        return _with_texts(self._numbered(changes, commands), [texts[place] for place in sorted(texts)])

    def _by_article(self, changes: Changes) -> Iterator[Iterable[ChangeSet]]:
        """Yield, for each article, what of its changes concerns its published rows."""
        by_article: dict[int, list[ChangeSet]] = defaultdict(list)
        for it in changes.sets:
            if it.operation is Operation.TRUNCATE and it.article.truncate is Truncation.ERROR:
                raise RefusedChange(int(it.places[0]), refused_truncate(it.article))
            by_article[it.article.article_id].append(it)
        for given in by_article.values():
            article, sets = given[0].article, given
            if self.filters is not None and article.filter is not None:
                sets = list(filtered(changes, given, self.filters))
            yield sets

    def _numbered(self, changes: Changes, sets: Sequence[_Rows]) -> pa.RecordBatch:
        order = _order(sets)
        places = _in_order([it.places for it in sets], order)
        transactions = changes.transactions
        of_row = transactions.of(places)
        return pa.RecordBatch.from_arrays(
            [
                _xact_seqnos(transactions.seqno[of_row]),
                pa.array(self._command_ids(transactions, of_row)),
                pa.array(transactions.time[of_row]).cast(pa.timestamp("us")).cast(pa.timestamp("us", tz="UTC")),
                pa.array(_by_row(sets, order, [it.article_id for it in sets]).astype(np.int32)),
                pa.array(_by_row(sets, order, [int(it.operation) for it in sets]).astype(np.int8)),
                _image_lines(changes.buffer, sets, order, Image.BEFORE),
                _image_lines(changes.buffer, sets, order, Image.AFTER),
                _masks(sets, order),
            ],
            schema=ROW_LAYOUT,
        )

    def _command_ids(self, transactions: Transactions, of_row: Ints) -> Ints:
        count = len(transactions.seqno)
        first_row = np.searchsorted(of_row, np.arange(count), side="left")
        command_id = np.arange(1, len(of_row) + 1) - first_row[of_row]
        command_id[of_row == 0] += self._open_commands
        in_last = len(of_row) - int(first_row[-1])
        self._open_commands = in_last + (self._open_commands if count == 1 else 0)
        return command_id


def _with_texts(commands: pa.RecordBatch, texts: Sequence[str]) -> pa.RecordBatch:
    """Return the commands with the texts of schema changes and messages, in order, as their after images."""
    if not texts:
        return commands
    has_text = pc.is_in(commands["operation"], value_set=pa.array(_WITH_TEXT, pa.int8()))
    after = pc.replace_with_mask(commands["after"], has_text, pa.array(texts, pa.string()))
    return commands.set_column(ROW_LAYOUT.get_field_index("after"), ROW_LAYOUT.field("after"), after)


def _is_propagated(changes: ChangeSet) -> bool:
    article = changes.article
    if changes.operation is Operation.TRUNCATE:
        return article.truncate is Truncation.REPLICATE and article.del_cmd.method is not Method.NONE
    return article.propagation(changes.operation).method is not Method.NONE


def _travelling(changes: ChangeSet) -> ChangeSet:
    """Return the change with what its call syntax sends, and no more."""
    if changes.operation is Operation.TRUNCATE:
        return changes
    what = sent(changes.article.propagation(changes.operation), changes.operation)
    return replace(
        changes,
        before=_sent_cells(changes, changes.before, what.before),
        after=_sent_cells(changes, changes.after, what.after),
        changed=changes.changed if what.mask else None,
    )


def _sent_cells(changes: ChangeSet, image: Cells | None, values: Values) -> Cells | None:
    if image is None or values is Values.NONE:
        return None
    match values:
        case Values.KEY:
            key = list(changes.article.key_positions)
            travels = np.zeros(max(key) + 1, dtype=np.bool_)
            travels[key] = True
            # What follows the last key column is left off.
            image = image.columns(slice(len(travels)))
            return image if travels.all() else image.only(travels)
        case Values.CHANGED if changes.changed is not None:
            return image.only(changes.changed)
        case _:
            image = _without_lobs(changes, image) if image is changes.before else image
            refuse_left_out(changes, image, range(len(changes.article.columns)))
            return image


def _without_lobs(changes: ChangeSet, before: Cells) -> Cells:
    """Return the before image with NULL for text and image columns, as "Custom stored procedures" documents it."""
    key = changes.article.key_positions
    lobs = [at for at, column in enumerate(changes.article.columns) if column.lob and at not in key]
    if not lobs:
        return before
    lengths = before.lengths.copy()
    lengths[:, lobs] = NULL
    return Cells(before.starts, lengths)


def _order(sets: Sequence[_Rows]) -> Ints | None:
    """Return where the rows of all sets, one set after the other, belong; None where they are in order."""
    if len(sets) < 2:
        return None
    places = np.concatenate([it.places for it in sets])
    turns = np.concatenate([np.zeros_like(it.places) if it.turn is None else it.turn for it in sets])
    return np.lexsort((turns, places)) if turns.any() else np.argsort(places, kind="stable")


def _in_order(arrays: Sequence[Ints], order: Ints | None) -> Ints:
    if not arrays:
        return np.zeros(0, dtype=np.int64)
    return arrays[0] if order is None else np.concatenate(arrays)[order]


def _by_row(sets: Sequence[_Rows], order: Ints | None, values: Sequence[int]) -> Ints:
    counts = [len(it.places) for it in sets]
    repeated = np.repeat(np.array(values, dtype=np.int64), counts)
    return repeated if order is None else repeated[order]


def _xact_seqnos(numbers: Ints) -> pa.BinaryArray:
    offsets = np.arange(0, (len(numbers) + 1) * XACT_SEQNO_BYTES, XACT_SEQNO_BYTES, dtype=np.int32)
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(numbers), [None, pa.py_buffer(offsets), pa.py_buffer(numbers.astype(">u8"))]
    )


def _image_lines(buffer: Buffer, sets: Sequence[_Rows], order: Ints | None, image: Image) -> pa.StringArray:
    images: list[Cells | None] = [getattr(it, image.value) for it in sets]
    widths = _by_row(sets, order, [it.starts.shape[1] if it is not None else 0 for it in images])
    if not widths.any():
        return pa.nulls(len(widths), pa.string())
    offsets = np.concatenate([[0], np.cumsum(widths)])
    if order is None and images[0] is not None:
        starts, lengths = images[0].starts.ravel(), images[0].lengths.ravel()
    else:
        starts, lengths = _scattered(images, offsets, _ranks(sets, order))
    return lines(buffer.strings(starts, lengths), offsets, widths == 0)


def _ranks(sets: Sequence[_Rows], order: Ints | None) -> Iterable[Ints]:
    """Return for each set where its rows stand in order."""
    counts = [len(it.places) for it in sets]
    rank = np.arange(sum(counts))
    if order is not None:
        rank[order] = np.arange(len(order))
    return np.split(rank, np.cumsum(counts)[:-1])


def _scattered(images: Sequence[Cells | None], offsets: Ints, ranks: Iterable[Ints]) -> tuple[Ints, Ints]:
    starts, lengths = np.empty(offsets[-1], dtype=np.int64), np.empty(offsets[-1], dtype=np.int64)
    for cells, rank in zip(images, ranks, strict=True):
        if cells is not None:
            at = offsets[rank][:, None] + np.arange(cells.starts.shape[1])
            starts[at], lengths[at] = cells.starts, cells.lengths
    return starts, lengths


def _masks(sets: Sequence[_Rows], order: Ints | None) -> pa.BinaryArray:
    packed = [bitmasks(it.changed) if it.changed is not None else None for it in sets]
    widths = _by_row(sets, order, [it.shape[1] if it is not None else 0 for it in packed])
    if not widths.any():
        return pa.nulls(len(widths), pa.binary())
    offsets = np.concatenate([[0], np.cumsum(widths)])
    content: Bytes = np.empty(int(offsets[-1]), dtype=np.uint8)
    for masks, rank in zip(packed, _ranks(sets, order), strict=True):
        if masks is not None:
            content[offsets[rank][:, None] + np.arange(masks.shape[1])] = masks
    present = pa.array(widths > 0).buffers()[1]
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(widths), [present, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(content)]
    )


def singletons(changes: Changes) -> Bools:
    """Return by transaction whether it holds one change only."""
    transactions = changes.transactions
    counts = np.zeros(len(transactions.seqno), dtype=np.int64)
    for it in changes.sets:
        counts += np.bincount(transactions.of(it.places), minlength=len(counts))
    single: Bools = (counts == 1) & transactions.whole
    return single


def pairs(changes: ChangeSet, transactions: Transactions, single: Bools) -> Iterator[ChangeSet]:
    """Yield the UPDATEs, and those among them that go out as a DELETE and an INSERT. The INSERT comes right after its
    DELETE."""
    if changes.operation is not Operation.UPDATE or changes.changed is None:
        yield changes
        return
    match changes.article.update_policy:
        case UpdatePolicy.ALWAYS_PAIRS:
            deferred = np.ones(len(changes.places), dtype=np.bool_)
        case UpdatePolicy.PAIRS:
            deferred = _changes_a_unique_column(changes.changed, changes.article)
        case UpdatePolicy.SINGLETON_UPDATE:
            alone = single[transactions.of(changes.places)]
            deferred = _changes_a_unique_column(changes.changed, changes.article) & ~alone
    deferred &= ~_must_stay_updates(changes)
    if not deferred.any():
        yield changes
        return
    yield changes.rows(np.flatnonzero(~deferred))
    paired = changes.rows(np.flatnonzero(deferred))
    yield deletes_of(paired)
    yield replace(inserts_of(paired), turn=np.ones(len(paired.places), dtype=np.int64))


def _changes_a_unique_column(changed: Bools, article: RegisteredArticle) -> Bools:
    return np.asarray(changed[:, list(article.unique_positions)].any(axis=1))


def _must_stay_updates(changes: ChangeSet) -> Bools:
    """Return which rows lack a new value in the log: an INSERT cannot be made of them, an UPDATE of what changed
    can."""
    only_changed = sent(changes.article.upd_cmd, Operation.UPDATE).after is Values.CHANGED
    if not only_changed or changes.after is None:
        return np.zeros(len(changes.places), dtype=np.bool_)
    return np.asarray((changes.after.lengths == NOT_IN_LOG).any(axis=1))
