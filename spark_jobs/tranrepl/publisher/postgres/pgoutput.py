"""Decode PostgreSQL's `pgoutput` messages (protocol version 1) into changes, a whole Arrow batch at a time.

Message formats: PostgreSQL documentation, "Logical Replication Message Formats". Every step works on all messages of
a batch at once; only Relation and Truncate messages, of which there are few, are read one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from tranrepl.errors import ConfigurationError
from tranrepl.model.arrays import Bools, Bytes, Ints
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import Operation
from tranrepl.publisher.changes import (
    NOT_IN_LOG,
    NULL,
    Buffer,
    Cells,
    Changes,
    ChangeSet,
    PlacedMessage,
    PlacedSchemaChange,
    Transactions,
    cells_differ,
)
from tranrepl.publisher.log_range import Limits, NeedsArticleId
from tranrepl.publisher.messages import FoundMessage, FoundMessages, MessageReader
from tranrepl.publisher.postgres.logged_tables import (
    BatchTables,
    LoggedTables,
    NeedsDefinitions,
    SchemaMessages,
    SchemaStop,
)
from tranrepl.publisher.postgres.message_secret import MessageSecret
from tranrepl.publisher.postgres.partition_changes import PublishedRelations
from tranrepl.publisher.postgres.relations import Layout, RelationMismatch
from tranrepl.publisher.postgres.signed_messages import (
    XID_AT,
    read_messages,
    told_unsigned,
)
from tranrepl.remedies import RUN_SETUP

_POSTGRES_EPOCH_US = 946_684_800_000_000
_OPERATIONS = max(Operation) + 1
_NO_TABLE = -1
_OF_MESSAGES = (int(Operation.SCRIPT), int(Operation.TRACER_TOKEN))


@dataclass(frozen=True, slots=True)
class Commit:
    """The end of a transaction. LSNs as integers, the time in µs since 1970 UTC."""

    lsn: int
    end_lsn: int
    time: int


class _Told(Protocol):
    @property
    def notices(self) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """What one batch of messages held, up to where decoding stopped."""

    changes: Changes
    last_commit: Commit | None
    transactions: int
    problem: RelationMismatch | SchemaStop | None = None
    limit_reached: bool = False
    definitions: Sequence[RegisteredArticle] = ()
    """Definitions of articles that the log brought: new ones, and those in force of which more is known."""
    notices: Sequence[str] = ()
    """Notes on schema changes that are left alone, and on scripts that no Subscriber runs."""
    unsigned: str | None = None
    needs_definitions: bool = False
    """It ends before a schema change that makes a definition, for which there is no number, or before setup's
    message."""
    redefinition: str | None = None
    """It ends before setup's message of this digest."""
    ends_in_transaction: bool = False
    """It ends so in the middle of a transaction."""


@dataclass(slots=True)
class PgOutputDecoder:
    """Turns batches of messages, in the order the log gives them, into changes of the registered articles.

    State between batches: the relations read so far, the open transaction, and how much was read.
    """

    relations: PublishedRelations
    limits: Limits
    schema: SchemaMessages | None = None
    """None: messages of schema changes are ignored."""
    readers: Sequence[MessageReader] = ()
    """Those of messages that become commands of no article; all others are ignored."""
    secrets: Collection[MessageSecret] = ()
    transactions: int = field(default=0, init=False)
    message_bytes: int = field(default=0, init=False)
    _tables: LoggedTables = field(init=False)
    _open_lsn: int = 0
    _open_time: int = 0
    _open_xid: int = 0

    def __post_init__(self) -> None:
        self._tables = LoggedTables(self.relations, self.schema)

    @property
    def open_lsn(self) -> int:
        """Commit LSN of the transaction of the last message."""
        return self._open_lsn

    def decode(self, messages: pa.BinaryArray) -> DecodedBatch:
        """Decode one batch. After one that says `limit_reached` or carries a `problem`, decode no more."""
        if len(messages) == 0:
            return DecodedBatch(Changes(Buffer(np.zeros(0, dtype=np.uint8)), [], self._nothing()), None, 0)
        buffer, kinds, starts = _parted(messages)
        end, limit_reached = self._end(buffer, kinds, starts)
        messages, unsigned = read_messages(buffer, kinds[:end], starts, self.secrets, self._open_xid)
        tables = self._tables.read(buffer, kinds, starts, end, self._open_lsn, messages)
        needs_definitions = isinstance(tables.problem, NeedsArticleId)
        begins = np.flatnonzero(kinds[: tables.end] == ord("B"))
        ends_in_transaction = needs_definitions and not len(begins)
        if needs_definitions:
            tables.cut(int(begins[-1]) if len(begins) else 0)
        read = [it.read([message for message in messages if message.index < tables.end]) for it in self.readers]
        changes = self._changes(buffer, kinds[: tables.end], starts[: tables.end], tables, _in_order(read))
        ended = np.flatnonzero(kinds[: tables.end] == ord("C"))
        self.transactions += len(ended)
        self.message_bytes += int(starts[tables.end])
        return DecodedBatch(
            changes,
            _commit(buffer, starts[ended[-1]]) if len(ended) else None,
            len(ended),
            None if isinstance(tables.problem, NeedsArticleId) else tables.problem,
            needs_definitions or (limit_reached and tables.problem is None),
            [it.article for it in tables.definitions if it.article is not None],
            [*_notices(tables.definitions), *_notices(read)],
            told_unsigned(unsigned, tables.end),
            needs_definitions,
            tables.problem.digest if isinstance(tables.problem, NeedsDefinitions) else None,
            ends_in_transaction,
        )

    def all_verify(self, messages: pa.BinaryArray) -> bool:
        """Return whether all of a batch's messages with a prefix of ours are ours. Decodes nothing."""
        return len(messages) == 0 or not read_messages(*_parted(messages), self.secrets, self._open_xid)[1]

    def _end(self, buffer: Buffer, kinds: Bytes, starts: Ints) -> tuple[int, bool]:
        """Return how many messages belong to this batch: up to the commit that reaches a limit, else all."""
        commits = np.flatnonzero(kinds == ord("C"))
        reached = (np.arange(1, len(commits) + 1) + self.transactions >= self.limits.transactions) | (
            starts[commits + 1] + self.message_bytes >= self.limits.message_bytes
        )
        if self.limits.last_xact_seqno is not None:
            reached |= buffer.uint64(starts[commits] + 2) >= int.from_bytes(self.limits.last_xact_seqno, "big")
        if not reached.any():
            return len(kinds), False
        return int(commits[np.argmax(reached)]) + 1, True

    def _changes(
        self,
        buffer: Buffer,
        kinds: Bytes,
        starts: Ints,
        tables: BatchTables,
        messages_of_ours: Sequence[FoundMessage],
    ) -> Changes:
        found = sorted((it for it in tables.changes if it.index < len(kinds)), key=lambda it: it.index)
        others = [
            (index, object_id, int(Operation.TRUNCATE)) for index, object_id in tables.truncated if index < len(kinds)
        ]
        others += [(it.index, _NO_TABLE, int(Operation.SCHEMA)) for it in found]
        others += [(it.index, _NO_TABLE, int(it.operation)) for it in messages_of_ours]
        messages, operations, object_ids, tuples = _change_messages(buffer, kinds, starts, others)
        layouts = tables.layouts
        layout_of_row = _layouts_of_rows(messages, object_ids, layouts)
        if any(layout.ignored_to or layout.problem for _, layout in layouts):
            layout_of_row = self._without_ignored(buffer, kinds, starts, messages, layout_of_row, layouts)
        sets = [
            _read_changes(buffer, layouts[index][1], operation, rows, tuples[rows])
            for (index, operation), rows in _groups(layout_of_row, operations, np.flatnonzero(layout_of_row >= 0))
        ]
        transactions = self._transactions(buffer, kinds, starts, messages)
        places = np.flatnonzero(operations == Operation.SCHEMA).tolist()
        placed = [PlacedSchemaChange(at, it.change) for at, it in zip(places, found, strict=True)]
        places = np.flatnonzero(np.isin(operations, _OF_MESSAGES)).tolist()
        sent = [PlacedMessage(at, it.operation, it.text) for at, it in zip(places, messages_of_ours, strict=True)]
        return Changes(buffer, [it for it in sets if len(it.places)], transactions, placed, sent)

    def _without_ignored(
        self,
        buffer: Buffer,
        kinds: Bytes,
        starts: Ints,
        messages: Ints,
        layout_of_row: Ints,
        layouts: list[tuple[int, Layout]],
    ) -> Ints:
        begins = np.flatnonzero(kinds == ord("B"))
        commit_lsn = np.concatenate([[self._open_lsn], buffer.uint64(starts[begins] + 1)])
        ignored_to = np.array([*(layout.ignored_to for _, layout in layouts), 0], dtype=np.int64)
        ignored = commit_lsn[np.searchsorted(begins, messages)] <= ignored_to[layout_of_row]
        left = np.where(ignored, -1, layout_of_row)
        for index in np.unique(left[left >= 0]).tolist():
            if (problem := layouts[index][1].problem) is not None:
                source = layouts[index][1].article.source
                raise ConfigurationError(
                    f"table {source} was altered: {problem}", remedy=RUN_SETUP, article=str(source)
                )
        return left

    def _nothing(self) -> Transactions:
        none = np.zeros(0, dtype=np.int64)
        return Transactions(none, np.array([self._open_lsn]), np.array([self._open_time]), np.zeros(1, dtype=np.bool_))

    def _transactions(self, buffer: Buffer, kinds: Bytes, starts: Ints, messages: Ints) -> Transactions:
        begins = np.flatnonzero(kinds == ord("B"))
        lsn = np.concatenate([[self._open_lsn], buffer.uint64(starts[begins] + 1)])
        time = np.concatenate([[self._open_time], buffer.uint64(starts[begins] + 9) + _POSTGRES_EPOCH_US])
        whole = np.ones(len(lsn), dtype=np.bool_)
        whole[0] = False
        ends = np.flatnonzero(kinds == ord("C"))
        if not len(ends) or (len(begins) and ends[-1] < begins[-1]):
            whole[-1] = False
        xid = np.concatenate([[self._open_xid], buffer.uint32(starts[begins[-1:]] + XID_AT)])
        self._open_lsn, self._open_time, self._open_xid = int(lsn[-1]), int(time[-1]), int(xid[-1])
        return Transactions(np.searchsorted(messages, begins), lsn, time, whole)


def _parted(messages: pa.BinaryArray) -> tuple[Buffer, Bytes, Ints]:
    """Return the messages as one buffer, their kinds, shape (messages,), and where they start and the last one ends."""
    offsets = np.frombuffer(messages.buffers()[1], dtype=np.int32)
    starts = offsets[messages.offset : messages.offset + len(messages) + 1].astype(np.int64)
    buffer = Buffer(np.frombuffer(messages.buffers()[2], dtype=np.uint8)[starts[0] : starts[-1]])
    starts = starts - starts[0]
    return buffer, buffer.bytes[starts[:-1]], starts


def _notices(read: Iterable[_Told]) -> Iterator[str]:
    return (notice for it in read for notice in it.notices)


def _in_order(read: Sequence[FoundMessages]) -> list[FoundMessage]:
    return sorted((message for it in read for message in it.messages), key=lambda it: it.index)


def _groups(layout_of_row: Ints, operations: Ints, published: Ints) -> list[tuple[tuple[int, Operation], Ints]]:
    """Group published rows by layout and operation."""
    code = (layout_of_row * _OPERATIONS + operations)[published]
    if len(code) and (code == code[0]).all():
        order, codes, firsts = published, code[:1], np.zeros(1, dtype=np.int64)
    else:
        order = np.argsort(code, kind="stable")
        codes, firsts = np.unique(code[order], return_index=True)
        order = published[order]
    return [
        ((value // _OPERATIONS, Operation(value % _OPERATIONS)), rows)
        for value, rows in zip(codes.tolist(), np.split(order, firsts[1:]), strict=False)
    ]


def _read_changes(buffer: Buffer, layout: Layout, operation: Operation, places: Ints, tuples: Ints) -> ChangeSet:
    article = layout.article
    match operation:
        case Operation.INSERT:
            after, _ = _read_tuples(buffer, layout, tuples + 1)
            return ChangeSet(article, operation, places, after=after)
        case Operation.DELETE:
            return ChangeSet(article, operation, places, before=_deleted(buffer, layout, tuples))
        case Operation.UPDATE:
            return _read_updates(buffer, layout, places, tuples)
        case _:
            return ChangeSet(article, operation, places)


def _deleted(buffer: Buffer, layout: Layout, tuples: Ints) -> Cells:
    """Return the old row ('O') or its key ('K') of each DELETE."""
    before, _ = _read_tuples(buffer, layout, tuples + 1)
    only_key = buffer.bytes[tuples] == ord("K")
    if only_key.any():
        key = np.zeros(len(layout.positions), dtype=np.bool_)
        key[list(layout.article.key_positions)] = True
        before.lengths[only_key[:, None] & ~key] = NOT_IN_LOG
    return before


def _read_updates(buffer: Buffer, layout: Layout, places: Ints, tuples: Ints) -> ChangeSet:
    """Read UPDATEs, which come with the whole old row ('O'), with the old key where it changed ('K'), or with neither.

    One that changed no published column is no change at all.
    """
    kinds = buffer.bytes[tuples]
    if len(kinds) and (kinds == kinds[0]).all():
        before, after, changed = _update_images(buffer, layout, int(kinds[0]), tuples)
    else:
        shape = (len(places), len(layout.positions))
        before, after = (Cells(np.empty(shape, np.int64), np.empty(shape, np.int64)) for _ in range(2))
        changed = np.empty(shape, dtype=np.bool_)
        for kind in np.unique(kinds).tolist():
            rows = np.flatnonzero(kinds == kind)
            old, new, changed[rows] = _update_images(buffer, layout, kind, tuples[rows])
            for image, part in ((before, old), (after, new)):
                image.starts[rows], image.lengths[rows] = part.starts, part.lengths
    updates = ChangeSet(layout.article, Operation.UPDATE, places, before, after, changed)
    effective = np.flatnonzero(changed.any(axis=1))
    return updates if len(effective) == len(places) else updates.rows(effective)


def _update_images(buffer: Buffer, layout: Layout, kind: int, tuples: Ints) -> tuple[Cells, Cells, Bools]:
    """Return before image, after image, and which columns changed, shape (rows, columns) each."""
    old = None
    if kind != ord("N"):
        old, tuples = _read_tuples(buffer, layout, tuples + 1)
    new, _ = _read_tuples(buffer, layout, tuples + 1)
    if kind == ord("O") and old is not None:
        changed = cells_differ(buffer, old, new)
    else:
        changed = new.lengths != NOT_IN_LOG
        old = _key_cells(layout, old, new)
        key = list(layout.article.key_positions)
        changed[:, key] = cells_differ(buffer, old.columns(key), new.columns(key))
    return old, new.or_else(old), changed


def _key_cells(layout: Layout, old: Cells | None, new: Cells) -> Cells:
    """Return the before image of an UPDATE whose old row is not in the log: the key alone, new where it did not
    change."""
    source = new if old is None else old
    lengths = np.full_like(source.lengths, NOT_IN_LOG)
    key = list(layout.article.key_positions)
    lengths[:, key] = source.lengths[:, key]
    return Cells(source.starts, lengths)


def _read_tuples(buffer: Buffer, layout: Layout, at: Ints) -> tuple[Cells, Ints]:
    """Read the tuples that start at `at` (at their column count). Returns the article's cells and where tuples end."""
    if (buffer.uint16(at) != layout.tuple_columns).any():
        raise ValueError(f"a tuple of {layout.article.source} has another number of columns than its relation")
    at = at + 2
    shape = (len(at), layout.tuple_columns)
    starts, lengths = np.empty(shape, dtype=np.int64, order="F"), np.empty(shape, dtype=np.int64, order="F")
    for column in range(layout.tuple_columns):
        kind, length = buffer.bytes[at], buffer.uint32(at + 1)
        is_text = kind == ord("t")
        if is_text.all():
            starts[:, column], lengths[:, column] = at + 5, length
            at = at + 5 + length
            continue
        starts[:, column] = at + np.where(is_text, 5, 1)
        lengths[:, column] = np.where(is_text, length, np.where(kind == ord("u"), NOT_IN_LOG, NULL))
        at = at + np.where(is_text, 5 + length, 1)
    return Cells(starts[:, layout.positions], lengths[:, layout.positions]), at


def _change_messages(
    buffer: Buffer, kinds: Bytes, starts: Ints, others: list[tuple[int, int, int]]
) -> tuple[Ints, Ints, Ints, Ints]:
    """Return for each changed row its message index, operation, table's oid, and where the tuple part starts; shape
    (rows,) each. `others` are rows too, without a tuple: message index, table and operation of each."""
    operation_of_kind = np.zeros(256, dtype=np.int64)
    for kind, operation in ((b"I", Operation.INSERT), (b"U", Operation.UPDATE), (b"D", Operation.DELETE)):
        operation_of_kind[kind[0]] = operation
    operations = operation_of_kind[kinds]
    rows = np.flatnonzero(operations)
    operations, object_ids, tuples = operations[rows], buffer.uint32(starts[rows] + 1), starts[rows] + 5
    if not others:
        return rows, operations, object_ids, tuples
    more = np.array(others, dtype=np.int64)
    rows = np.concatenate([rows, more[:, 0]])
    order = np.argsort(rows, kind="stable")
    operations = np.concatenate([operations, more[:, 2]])
    object_ids = np.concatenate([object_ids, more[:, 1]])
    tuples = np.concatenate([tuples, np.zeros(len(more), dtype=np.int64)])
    return rows[order], operations[order], object_ids[order], tuples[order]


def _layouts_of_rows(rows: Ints, object_ids: Ints, layouts: list[tuple[int, Layout]]) -> Ints:
    """Return the index of the layout that holds for each row, shape (rows,): the table's latest before it; -1 for a
    table that is no article."""
    known = np.array([layout.object_id for _, layout in layouts], dtype=np.int64)
    if not len(known):
        return np.full(len(rows), -1, dtype=np.int64)
    # Stable, and layouts are in the order of their announcement: `place` finds a table's first.
    order = np.argsort(known, kind="stable")
    place = np.minimum(np.searchsorted(known[order], object_ids), len(known) - 1)
    chosen = np.where(known[order][place] == object_ids, order[place], -1)
    for index, (since, layout) in enumerate(layouts):
        if np.count_nonzero(known == layout.object_id) > 1:
            chosen[(object_ids == layout.object_id) & (rows > since)] = index
    return chosen


def _commit(buffer: Buffer, start: np.int64) -> Commit:
    at = np.array([start + 2, start + 10, start + 18])
    lsn, end_lsn, time = buffer.uint64(at).tolist()
    return Commit(lsn, end_lsn, time + _POSTGRES_EPOCH_US)
