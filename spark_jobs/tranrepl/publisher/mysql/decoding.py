"""Changes of rows events: from places in a buffer of the log to cells of the published columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tranrepl.errors import DataError
from tranrepl.model.arrays import Bools, Bytes, Ints
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import Operation
from tranrepl.model.names import TableName
from tranrepl.model.position import FIRST_POSITION, SEQNOS_PER_PLACE
from tranrepl.publisher.changes import Buffer, Cells, Changes, ChangeSet, RefusedChange, Transactions, cells_differ
from tranrepl.publisher.mysql.charsets import Charsets
from tranrepl.publisher.mysql.column_types import is_of_type
from tranrepl.publisher.mysql.events import GTIDS, HEADER_BYTES, EventBlock, EventType, tagged_commit_time
from tranrepl.publisher.mysql.row_places import ImageLayout, Images, row_starts
from tranrepl.publisher.mysql.table_maps import Flavor, LoggedTable, read_table_map
from tranrepl.publisher.mysql.value_text import column_texts
from tranrepl.remedies import REINITIALIZE

OPERATIONS = {
    EventType.WRITE_V1: Operation.INSERT,
    EventType.WRITE: Operation.INSERT,
    EventType.UPDATE_V1: Operation.UPDATE,
    EventType.UPDATE: Operation.UPDATE,
    EventType.DELETE_V1: Operation.DELETE,
    EventType.DELETE: Operation.DELETE,
}
_WITH_EXTRA_DATA = (EventType.WRITE, EventType.UPDATE, EventType.DELETE)
_FULL_IMAGES = (
    "SET GLOBAL binlog_row_image = FULL, and in the server's configuration; sessions that are open keep theirs, so "
    "connect them again; then `tranrepl reinitialize FILE`"
)
_FULL_METADATA = (
    "SET GLOBAL binlog_row_metadata = FULL, and in the server's configuration; then `tranrepl reinitialize FILE`: what "
    "was logged before cannot be read"
)

_MOST_BYTES = (1 << 31) - 16
"""Arrow's places of texts are of four bytes, with a sign."""
_REGISTER = "`tranrepl setup FILE` registers the table as it is now, then `tranrepl reinitialize FILE`"


@dataclass(frozen=True)
class _PublishedTable:
    """A table as the log describes it, and the article whose columns of it travel."""

    table: LoggedTable
    article: RegisteredArticle
    layout: ImageLayout
    wanted: tuple[int, ...]
    """The published columns among the table's."""
    others: dict[bytes, _PublishedTable | None] = field(default_factory=dict, compare=False)

    def of_columns(self, present: bytes) -> _PublishedTable | None:
        """Return the table of rows that have the columns of these bits; None where they lack a published one. MariaDB
        11 leaves generated columns out of what is updated and deleted."""
        if present not in self.others:
            bits = int.from_bytes(present, "little")
            chosen = [at for at in range(len(self.table.columns)) if bits >> at & 1]
            table = replace(self.table, columns=tuple(self.table.columns[at] for at in chosen))
            fits = set(chosen).issuperset(self.wanted)
            wanted = tuple(chosen.index(at) for at in self.wanted if fits)
            self.others[present] = (
                replace(self, table=table, layout=ImageLayout(table), wanted=wanted, others={}) if fits else None
            )
        return self.others[present]


@dataclass(frozen=True)
class _UnfitTable:
    """A table that the log describes otherwise than its article."""

    article: RegisteredArticle
    error: DataError


@dataclass(slots=True)
class Decoder:
    """Makes changes of plain groups (`groups`), for articles by the names of their tables."""

    articles: Mapping[TableName, RegisteredArticle]
    charsets: Charsets
    messages: RegisteredArticle | None = None
    """The table of messages of ours. Of it only INSERTs count, and none ends the reading."""
    has_unread_messages: bool = False
    _tables: dict[bytes, int] = field(default_factory=dict)
    """By what a TABLE_MAP event says after its table's number: an index of `_published`."""
    _published: list[_PublishedTable | _UnfitTable | None] = field(default_factory=list)

    def changes(self, block: EventBlock) -> Changes:
        """Return what the block's groups changed, all of them whole. A place is an offset in the block. Raises
        RefusedChange, DataError."""
        is_rows = block.are(*OPERATIONS)
        events, tables = self._tables_of_rows(block, is_rows)
        cells = _CellBuffer(block, self.charsets)
        sets: list[ChangeSet] = []
        for number in np.unique(tables).tolist():
            published = self._published[number]
            if isinstance(published, _UnfitTable):
                self._refuse(block, published, block.starts[events[tables == number]])
                continue
            if published is None:
                continue
            of_table = events[tables == number]
            if published.article is self.messages:
                sets += self._messages(block, cells, published, of_table)
                continue
            types = block.types[of_table]
            for kind in np.unique(types).tolist():
                sets += self._sets(block, cells, published, EventType(kind), of_table[types == kind])
        buffer = cells.buffer()
        return Changes(buffer, [_with_changed(buffer, it) for it in sets], transactions(block))

    def has_published(self, block: EventBlock) -> bool:
        """Return whether the block describes a table that is published, or that of messages."""
        numbers = self._numbers_of(block, np.flatnonzero(block.types == EventType.TABLE_MAP))
        return any(self._published[it] is not None for it in np.unique(numbers).tolist())

    def _refuse(self, block: EventBlock, unfit: _UnfitTable, places: Ints, *, lacks_columns: bool = False) -> None:
        """Raise RefusedChange for the first row of a table that does not fit, since its article was reinitialized."""
        of, begins_after = transactions(block), unfit.article.begins_after
        begun = of.seqno[of.of(places)] >= int.from_bytes(begins_after.value, "big")
        if begins_after == FIRST_POSITION or begun.any():
            first = places if begins_after == FIRST_POSITION else places[begun]
            raise RefusedChange(int(first[0]), unfit.error, lacks_old_row=lacks_columns)

    def _messages(
        self, block: EventBlock, cells: _CellBuffer, published: _PublishedTable, events: Ints
    ) -> Iterator[ChangeSet]:
        """Yield messages of ours. Only an INSERT is one, and what is not whole is none."""
        for at in events.tolist():
            kind = EventType(int(block.types[at]))
            if OPERATIONS[kind] is Operation.INSERT:
                try:
                    yield from list(self._sets(block, cells, published, kind, np.array([at])))
                except (DataError, RefusedChange):
                    self.has_unread_messages = True

    def _tables_of_rows(self, block: EventBlock, is_rows: Bools) -> tuple[Ints, Ints]:
        """Return the rows events, and which table each is of: that of the last TABLE_MAP before it with its number."""
        events = np.flatnonzero(is_rows | (block.types == EventType.TABLE_MAP))
        is_map = block.types[events] == EventType.TABLE_MAP
        maps = np.full(len(events), -1, dtype=np.int64)
        maps[is_map] = self._numbers_of(block, events[is_map])
        at = block.starts[events] + HEADER_BYTES
        ids = block.data.numbers(at, "<u4") | block.data.numbers(at + 4, "<u2") << 32
        order = np.argsort(ids, kind="stable")
        last = np.maximum.accumulate(np.where(is_map[order], np.arange(len(order)), -1))
        found = np.empty(len(events), dtype=np.int64)
        found[order] = np.where(last >= 0, maps[order][last], -1)
        same = np.zeros(len(events), dtype=np.bool_)
        same[order] = (last >= 0) & (ids[order] == ids[order][last])
        rows = ~is_map
        if not same[rows].all():
            raise DataError("the binary log has rows of a table that it does not describe")
        return events[rows], found[rows]

    def _numbers_of(self, block: EventBlock, maps: Ints) -> Ints:
        """Return which table each of these TABLE_MAP events describes: most say the same as the first with their
        number."""
        starts = block.starts[maps] + HEADER_BYTES
        lengths = block.ends[maps] - starts
        numbers = np.full(len(maps), -1, dtype=np.int64)
        for first in np.unique(block.data.numbers(starts, "<u4"), return_index=True)[1].tolist():
            same = np.flatnonzero((lengths == lengths[first]) & (numbers < 0))
            said = block.data.bytes[starts[first] : starts[first] + lengths[first]].tobytes()
            numbers[same[block.data.are(starts[same], said)]] = self._number_of(block, int(maps[first]))
        for at in np.flatnonzero(numbers < 0).tolist():
            numbers[at] = self._number_of(block, int(maps[at]))
        return numbers

    def _number_of(self, block: EventBlock, at: int) -> int:
        body = block.data.bytes[block.starts[at] + HEADER_BYTES + 6 : block.ends[at]].tobytes()
        number = self._tables.get(body)
        if number is None:
            number = self._tables[body] = len(self._published)
            self._published.append(self._publish(body, block.flavor))
        return number

    def _publish(self, body: bytes, flavor: Flavor) -> _PublishedTable | _UnfitTable | None:
        """Return the table with its article; None where it has none, an error where its rows cannot be read."""
        article = self.articles.get(_name(body))
        if article is None:
            return None
        try:
            table = read_table_map(body, flavor)
            return _PublishedTable(table, article, ImageLayout(table), _wanted(table, article))
        except DataError as error:
            if article is not self.messages:
                return _UnfitTable(article, error)
            self.has_unread_messages = True
            return None

    def _sets(
        self, block: EventBlock, cells: _CellBuffer, published: _PublishedTable, kind: EventType, events: Ints
    ) -> Iterator[ChangeSet]:
        """Yield the changes of rows events of one kind, by the columns that their rows have. Raises RefusedChange where
        published ones are left out."""
        at = block.starts[events] + HEADER_BYTES + 8
        if kind in _WITH_EXTRA_DATA:
            at = at + block.data.number(at, 2)
        count, images = len(published.table.columns), 2 if OPERATIONS[kind] is Operation.UPDATE else 1
        at = at + (1 if count < 251 else 3)
        width = published.layout.null_bytes
        full = ((1 << count) - 1).to_bytes(width, "little")
        every = np.frombuffer(full * images, dtype=np.uint8)
        present = block.data.bytes[at[:, None] + np.arange(width * images)] & every
        left = ~(present == every).all(axis=1)
        at = at + width * images
        if not left.all():
            yield self._set(block, cells, published, kind, events[~left], at[~left])
        while left.any():
            said = present[int(np.argmax(left))]
            same = left & (present == said).all(axis=1)
            columns = said[:width].tobytes()
            of = published.of_columns(columns) if said.tobytes() == columns * images else None
            if of is None:
                unfit = _UnfitTable(published.article, _lacks_columns(published))
                self._refuse(block, unfit, block.starts[events[same]], lacks_columns=True)
            else:
                yield self._set(block, cells, of, kind, events[same], at[same])
            left &= ~same

    def _set(
        self,
        block: EventBlock,
        cells: _CellBuffer,
        published: _PublishedTable,
        kind: EventType,
        events: Ints,
        begins: Ints,
    ) -> ChangeSet:
        operation, layout, data = OPERATIONS[kind], published.layout, block.data
        images = 2 if operation is Operation.UPDATE else 1

        def skip(at: Ints) -> Ints:
            for _ in range(images):
                at = layout.skip(data, at)
            return at

        starts = row_starts(begins, block.ends[events], skip, f"table {published.table.name}")
        first = layout.images(data, starts, published.wanted)
        second = layout.images(data, first.ends, published.wanted) if images == 2 else None
        found = cells.cells(published, first)
        if operation is Operation.INSERT:
            return ChangeSet(published.article, operation, starts, after=found)
        after = None if second is None else cells.cells(published, second, (first, found))
        return ChangeSet(published.article, operation, starts, found, after)


class _CellBuffer:
    """The log's bytes, and behind them the texts that were made of values."""

    def __init__(self, block: EventBlock, charsets: Charsets) -> None:
        self._data = block.data
        self._pieces: list[Bytes] = [block.data.bytes]
        self._length = len(block.data.bytes)
        self._charsets = charsets

    def cells(self, published: _PublishedTable, images: Images, old: tuple[Images, Cells] | None = None) -> Cells:
        """Return the cells of images. `old`: those of the same rows before. A column that no row has changed has its
        cells where they are."""
        starts, lengths = images.starts, images.lengths
        found = Cells(*(np.zeros(starts.shape, dtype=np.int64, order="F") for _ in range(2)))
        for place, (number, column) in enumerate(zip(published.wanted, published.article.columns, strict=True)):
            if old is not None and images.are_same(self._data, old[0], place):
                found.starts[:, place] = old[1].starts[:, place]
                found.lengths[:, place] = old[1].lengths[:, place]
                continue
            texts = column_texts(
                self._data,
                published.table.columns[number],
                column.type_name,
                starts[:, place],
                lengths[:, place],
                self._charsets,
            )
            found.lengths[:, place] = texts.lengths
            if texts.made is None:
                found.starts[:, place] = texts.starts
            else:
                found.starts[:, place] = texts.starts + self._length
                self._pieces.append(texts.made)
                self._length += len(texts.made)
        if self._length > _MOST_BYTES:
            raise DataError(
                f"table {published.table.name}: what a transaction changed takes more than {_MOST_BYTES >> 20:,} MB as "
                "text, which is more than can be read",
                remedy=f"change that many rows in several transactions; now {REINITIALIZE}",
                article=str(published.article.source),
            )
        return found

    def buffer(self) -> Buffer:
        return Buffer(*self._pieces)


def _name(body: bytes) -> TableName:
    """Return the table's name, without reading the rest."""
    at = 3 + body[2]
    return TableName(body[3:at].decode(), body[at + 2 : at + 2 + body[at + 1]].decode())


def _wanted(table: LoggedTable, article: RegisteredArticle) -> tuple[int, ...]:
    if not table.has_names:
        raise DataError(
            f"table {table.name}: the binary log does not name its columns",
            remedy=_FULL_METADATA,
            article=str(article.source),
        )
    numbers = {it.name: at for at, it in enumerate(table.columns)}
    gone = [it.name for it in article.columns if it.name not in numbers]
    if gone:
        raise DataError(
            f"table {table.name} was altered: column {gone[0]} is not in the log any more",
            remedy=_REGISTER,
            article=str(article.source),
        )
    altered = [it.name for it in article.columns if not is_of_type(table.columns[numbers[it.name]], it.type_name)]
    if altered:
        raise DataError(
            f"table {table.name} was altered: column {altered[0]} is not in the log as it is registered",
            remedy=_REGISTER,
            article=str(article.source),
        )
    return tuple(numbers[it.name] for it in article.columns)


def _lacks_columns(published: _PublishedTable) -> DataError:
    return DataError(
        f"table {published.table.name}: a change is in the binary log without all its columns",
        remedy=_FULL_IMAGES,
        article=str(published.article.source),
    )


def _with_changed(buffer: Buffer, of: ChangeSet) -> ChangeSet:
    """Return an UPDATE with the columns that changed, without the rows of which none did; anything else as it is."""
    if of.before is None or of.after is None:
        return of
    columns = [slice(at, at + 1) for at in range(of.before.starts.shape[1])]
    changed = [cells_differ(buffer, of.before.columns(it), of.after.columns(it)) for it in columns]
    together = np.concatenate(changed, axis=1) if changed else np.zeros((len(of.places), 0), dtype=np.bool_)
    found = ChangeSet(of.article, of.operation, of.places, of.before, of.after, together)
    is_changed: Bools = np.any(together, axis=1)
    return found if is_changed.all() else found.rows(is_changed)


_TIME_AT = HEADER_BYTES + 42
_HAS_ORIGINAL_TIME = 1 << 55


def transactions(block: EventBlock) -> Transactions:
    """Return the block's groups: a group's `xact_seqno` is the place at which it begins."""
    begins = np.flatnonzero(block.are(*GTIDS))
    starts = block.starts[begins]
    place = block.places[begins] - block.data.numbers(starts + 9, "<u4")
    if block.flavor is Flavor.MARIADB:
        times = block.times(begins)
    else:
        at = starts + _TIME_AT
        times = block.data.numbers(at, "<i8") & ((1 << 56) - 1)
        original = block.data.numbers(np.minimum(at + 7, block.data.length), "<i8") & ((1 << 56) - 1)
        times = np.where(times & _HAS_ORIGINAL_TIME, original, times) & (_HAS_ORIGINAL_TIME - 1)
        tagged = np.flatnonzero(block.types[begins] == EventType.TAGGED_GTID)
        times[tagged] = [tagged_commit_time(block.body(at)) for at in begins[tagged].tolist()]
    return Transactions(
        starts,
        np.concatenate([[0], place * SEQNOS_PER_PLACE]),
        np.concatenate([[0], times]),
        np.concatenate([[False], np.ones(len(begins), dtype=np.bool_)]),
    )
