"""A part of a binary log, read from a server's stream in whole groups."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from tranrepl.errors import ConfigurationError, DataError, MustBeReinitializedError, ReplicationError
from tranrepl.model.arrays import Ints
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import XACT_SEQNO_BYTES, Operation
from tranrepl.model.names import TableName
from tranrepl.model.position import SEQNOS_PER_PLACE, Position
from tranrepl.model.schema_change import SchemaChange
from tranrepl.mysql.session import connect
from tranrepl.publisher.changes import Buffer, Changes, ChangeSet, PlacedSchemaChange, RefusedChange, Transactions
from tranrepl.publisher.log_range import Limits, LogPart, LogReadError, NeedsArticleId, Refusal, RowFilters, TooLong
from tranrepl.publisher.mysql.decoding import Decoder, transactions
from tranrepl.publisher.mysql.dump import blocks
from tranrepl.publisher.mysql.events import (
    GTIDS,
    HEADER_BYTES,
    EventBlock,
    EventType,
    Query,
    query_of,
    read_query,
)
from tranrepl.publisher.mysql.groups import (
    Groups,
    PreparedTransactions,
    Xid,
    find_groups,
    is_prepared,
    is_undone,
    statements_of,
    torn_group,
)
from tranrepl.publisher.mysql.message_table import MESSAGES, message_article
from tranrepl.publisher.mysql.messages import FoundInRows, MessageReading, begun_with
from tranrepl.publisher.mysql.positions import FIRST_EVENT, BinlogPositions, file_of, place_at, place_of, position_of
from tranrepl.publisher.mysql.row_filters import MySqlRowFilters
from tranrepl.publisher.mysql.row_places import LogBytes
from tranrepl.publisher.mysql.schema_changes import Followed, followed
from tranrepl.publisher.mysql.server import ServerLog
from tranrepl.publisher.mysql.statements import Effect, hides_rows, meaning, meanings
from tranrepl.remedies import REINITIALIZE

_HELD_BYTES = 16 << 20
"""A plain group that is larger is passed on in parts, before its end has come."""
_MOST_BYTES = 1 << 30
"""Another one that is larger is refused: cells are places in a buffer of two gigabytes."""
_MAY_END = (
    EventType.XID,
    EventType.QUERY,
    EventType.XA_PREPARE,
    EventType.TRANSACTION_PAYLOAD,
    EventType.QUERY_COMPRESSED,
)
_MAY_PREPARE = (EventType.XA_PREPARE, EventType.TRANSACTION_PAYLOAD)
"""What ends the group of an XA transaction's rows."""
_BEFORE_STATEMENT = (EventType.INTVAR, EventType.RAND, EventType.USER_VAR)
"""What a statement is logged with that changes rows."""


@dataclass(frozen=True)
class BinlogRange:
    """From a place in the log to another one, both between two groups."""

    log: ServerLog
    articles: Sequence[RegisteredArticle]
    start: Position
    up_to: Position
    limits: Limits
    messages: MessageReading

    @property
    def where(self) -> str:
        return self.log.where

    @property
    def positions(self) -> BinlogPositions:
        return BinlogPositions()

    @cached_property
    def by_table(self) -> Mapping[TableName, RegisteredArticle]:
        return {it.source: it for it in self.articles}

    @property
    def others_notice(self) -> str:
        """Return what to say of a row among the messages that is none of ours."""
        return (
            f"{self.where}: the binary log holds a row of table {MESSAGES} that tranrepl has not written: it is "
            "ignored. Nobody else needs a right on that table"
        )

    def side_by_side(self) -> list[BinlogRange]:
        # No statement lists where groups begin.
        return [self]

    def between(self, start: Position, up_to: Position) -> BinlogRange:
        messages, schema = self.messages, self.messages.schema
        if schema is not None and start != self.start:
            messages = replace(messages, schema=replace(schema, begins_with=()))
        return replace(self, start=start, up_to=up_to, messages=messages)

    @contextmanager
    def row_filters(self) -> Iterator[RowFilters | None]:
        if all(it.filter is None for it in self.articles):
            yield None
            return
        with connect(self.log.connection) as session:
            yield MySqlRowFilters(session, self.where, self.articles)

    def find_too_long(self) -> TooLong | None:
        return None

    def old_rows_remedy(self, article: RegisteredArticle) -> str:
        return f"SET GLOBAL binlog_row_image = FULL; {REINITIALIZE} ({article.source})"

    def changes(self) -> Iterator[LogPart]:
        try:
            yield from self._parts()
        except ReplicationError as error:
            raise LogReadError(error) from error

    def _parts(self) -> Iterator[LogPart]:
        if self.up_to <= self.start:
            return
        reading = Reading(self)
        with closing(blocks(self.log, place_of(self.start), place_of(self.up_to))) as read:
            for block in read:
                part = reading.part(block)
                if part is not None:
                    yield part
                if reading.is_over:
                    return
        if reading.has_passed_on:
            raise torn_group(self.where)


def _has_end(block: EventBlock) -> bool:
    """Return whether a group may end in a block that goes on with one: its savepoints are no ends."""
    if block.are(EventType.XID).any():
        return True
    may_end = block.are(*_MAY_END)
    may_end[statements_of(block)] = block.are(*GTIDS).any()
    return bool(may_end.any())


class GroupsToCome:
    """Blocks of a log, until each group in them has its end."""

    def __init__(self) -> None:
        self.open: list[EventBlock] = []
        """Events from the beginning of a group whose end has not come."""

    @property
    def bytes(self) -> int:
        return sum(it.data.length for it in self.open)

    def add(self, block: EventBlock) -> tuple[EventBlock, Groups] | None:
        """Take in a block; return what comes before a group that is open, and its groups. None where none ends in the
        block."""
        is_within = sum(len(it.types) for it in self.open) > 1
        self.open.append(block)
        if not (_has_end(block) if is_within else block.are(*_MAY_END).any()):
            return None
        whole = joined(self.open)
        groups = find_groups(whole)
        open_from = len(whole.starts) if groups.open_from is None else groups.open_from
        self.open = [] if groups.open_from is None else [compact(whole.chosen(slice(open_from, None)))]
        return whole.chosen(slice(open_from)), groups


class Reading:
    """One reading of a range, from block to block."""

    def __init__(self, of: BinlogRange) -> None:
        self._range = of
        self._message_article = message_article()
        self._decoder = Decoder(
            {**of.by_table, MESSAGES: self._message_article}, of.log.charsets, self._message_article
        )
        self._readers = of.messages.readers()
        self._prepared = PreparedTransactions(find=partial(prepared_before, of.log))
        self._to_come = GroupsToCome()
        self._transactions = 0
        self._bytes = 0
        self._has_begun = False
        self.has_passed_on = False
        """A part of the group that is open was."""
        self._is_whole = False
        """The group that is open waits for its end."""
        self.is_over = False
        self.is_limited = False

    def part(self, block: EventBlock) -> LogPart | None:
        """Take in a block; the part that its whole groups are, None where no group ends in it."""
        found = self._to_come.add(block)
        if found is not None and len(found[1].begins):
            return self.of_groups(*found)
        if self._to_come.bytes > _HELD_BYTES and not self._is_whole:
            return self._beginning()
        if self._to_come.bytes > _MOST_BYTES:
            raise DataError(
                f"{self._range.where}: a transaction is larger than {_MOST_BYTES >> 20:,} MB in the log, which is more "
                "than can be read of one that is compressed, has a savepoint or is prepared (XA)",
                remedy=f"change that many rows in several transactions; now {REINITIALIZE}",
            )
        return None

    def _beginning(self) -> LogPart | None:
        """Pass on what there is of the group that is open; None where that is not plain, or not in the range."""
        started = time.perf_counter()
        whole = joined(self._to_come.open)
        groups = find_groups(whole)
        if groups.open_from is None:
            return None
        whole = whole.chosen(slice(groups.open_from, None))
        is_plain = groups.is_plain and not len(groups.statements) and not is_prepared(whole, 0)
        if not is_plain or _begin_places(whole, np.array([0]))[0] >= place_of(self._range.up_to):
            self._is_whole = True
            return None
        try:
            changes = self._decoder.changes(whole)
        except RefusedChange as refused:
            self.is_over = True
            return LogPart(None, unreadable=refused)
        # A message of ours is alone in its transaction.
        sets = [it for it in changes.sets if it.article is not self._message_article]
        changes = self._of_the_rest(self._begun(replace(changes, sets=sets)), is_open=True)
        size = self._to_come.bytes
        self._to_come.open = [_heads(whole)]
        self.has_passed_on = True
        self._bytes += size
        return LogPart(changes, message_bytes=size, decode_seconds=time.perf_counter() - started)

    def _begun(self, changes: Changes) -> Changes:
        schema, self._has_begun = None if self._has_begun else self._range.messages.schema, True
        return begun_with(changes, schema)

    def _of_the_rest(self, changes: Changes, *, is_open: bool = False) -> Changes:
        """Return changes whose first transaction goes on, where some of it was passed on. `is_open`: so does the
        last."""
        of = changes.transactions
        if is_open:
            of = replace(of, whole=np.zeros(len(of.whole), dtype=np.bool_))
        if self.has_passed_on:
            of = Transactions(of.begins[1:], of.seqno[1:], of.time[1:], np.concatenate([[False], of.whole[2:]]))
        return replace(changes, transactions=of)

    def of_groups(self, block: EventBlock, groups: Groups) -> LogPart | None:
        """Return the part that a block of whole groups is; None where it has none."""
        groups = self._within(block, groups)
        if not len(groups.begins):
            return None
        if self.has_passed_on and is_undone(block, int(groups.ends[0])):
            raise DataError(
                f"{self._range.where}: a transaction of more than {_HELD_BYTES >> 20} MB in the log was rolled back, "
                "and is there because it has changed a table without transactions",
                remedy=f"change such tables in transactions of their own; now {REINITIALIZE}",
            )
        part = self._part(block, groups)
        self.has_passed_on = self._is_whole = False
        return part

    def is_of_others(self, block: EventBlock, groups: Groups) -> bool:
        """Return whether a block of whole groups has nothing but rows of tables that are not published."""
        return groups.is_plain and not len(groups.statements) and not self._decoder.has_published(block)

    def _within(self, block: EventBlock, groups: Groups) -> Groups:
        """Return the groups before the range's end, and up to where a limit is reached."""
        of, limits = self._range, self._range.limits
        begins, ends = _begin_places(block, groups.begins), groups.ends
        count = int(np.searchsorted(begins, place_of(of.up_to)))
        sizes = block.ends[ends] - block.starts[groups.begins]
        reached = self._bytes + np.cumsum(sizes) >= limits.message_bytes
        reached |= self._transactions + np.arange(1, len(begins) + 1) >= limits.transactions
        if limits.last_xact_seqno is not None:
            reached |= begins * SEQNOS_PER_PLACE >= int.from_bytes(limits.last_xact_seqno, "big")
        first = int(np.flatnonzero(reached)[0]) + 1 if reached.any() else len(begins)
        self.is_limited = bool(reached.any()) and first <= count
        count = first if self.is_limited else count
        self.is_over = self.is_limited or count < len(begins)
        return _first(groups, count)

    def _part(self, block: EventBlock, groups: Groups) -> LogPart:
        started = time.perf_counter()
        groups, stop = self._readable(block, groups)
        self.is_over = self.is_over or stop is not None
        refusal = stop if isinstance(stop, Refusal) else None
        needs_definitions = isinstance(stop, NeedsArticleId)
        count = len(groups.begins)
        if not count:
            return LogPart(None, refusal=refusal, needs_definitions=needs_definitions, limit_reached=needs_definitions)
        first, last = int(groups.begins[0]), int(groups.ends[-1])
        plain = block.chosen(slice(first, last + 1)) if groups.is_plain else self._prepared.plain(block, groups)
        unreadable = None
        try:
            found = self._read(plain)
        except RefusedChange as refused:
            unreadable = refused
            found = FoundInRows(Changes(Buffer(np.zeros(0, dtype=np.uint8)), [], transactions(plain)))
        if found.redefinition is not None:
            self.is_over, refusal, stop = True, None, None
            groups = _first(groups, len(found.changes.transactions.begins))
            count = len(groups.begins)
            if not count:
                return LogPart(None, needs_definitions=True, redefinition=found.redefinition, limit_reached=True)
            last = int(groups.ends[-1])
        changed = stop if isinstance(stop, Followed) else Followed()
        changes = self._of_the_rest(self._begun(_with_last(found.changes, changed.changes)))
        size = int(block.ends[last] - block.starts[first])
        self._transactions += count
        self._bytes += size
        begin = int(_begin_places(block, groups.begins[-1:])[0])
        return LogPart(
            changes,
            last_commit=(begin * SEQNOS_PER_PLACE).to_bytes(XACT_SEQNO_BYTES, "big"),
            end=position_of(int(block.places[last])),
            transactions=count,
            message_bytes=size,
            decode_seconds=time.perf_counter() - started,
            # What follows a schema change is read by other definitions.
            limit_reached=found.redefinition is not None
            or needs_definitions
            or isinstance(stop, Followed)
            or (refusal is None and self.is_limited),
            refusal=refusal,
            unreadable=unreadable,
            definitions=changed.definitions,
            notices=[*found.notices, *changed.notices],
            unsigned=self._range.others_notice if found.has_others else None,
            needs_definitions=found.redefinition is not None or needs_definitions,
            redefinition=found.redefinition,
        )

    def _read(self, plain: EventBlock) -> FoundInRows:
        """Return what the groups changed, and what messages among them say. Raises RefusedChange."""
        changes = self._decoder.changes(plain)
        rows = [it for it in changes.sets if it.article is self._message_article]
        sets = [it for it in changes.sets if it.article is not self._message_article]
        changes = replace(changes, sets=[*sets, *self._truncations(plain)])
        found = self._range.messages.read(changes, rows, self._readers)
        found.has_others |= self._decoder.has_unread_messages
        return found

    def _readable(self, block: EventBlock, groups: Groups) -> tuple[Groups, Refusal | Followed | NeedsArticleId | None]:
        """Return the groups before the first statement after which nothing can be read, and why; or up to the one
        that articles follow."""
        if not len(groups.begins):
            return groups, None
        others = np.flatnonzero(block.are(EventType.QUERY_COMPRESSED, *_BEFORE_STATEMENT))
        for at in np.sort(np.concatenate([groups.statements, others])).tolist():
            group = int(np.searchsorted(groups.begins, at)) - 1
            if group < 0 or at > groups.ends[-1]:
                continue
            if block.types[at] in _BEFORE_STATEMENT:
                return _first(groups, group), Refusal(self._rows_unknown().report)
            query = query_of(block, at)
            try:
                stands_alone = bool(at == groups.ends[group])
                changed = self._followed(query, int(block.places[at]), stands_alone=stands_alone)
                problem = self._problem(query, stands_alone=stands_alone) if changed is None else None
            except NeedsArticleId as needed:
                return _first(groups, group), needed
            except ConfigurationError as refused:
                changed, problem = None, refused
            if problem is not None:
                return _first(groups, group), Refusal(problem.report)
            if changed is not None and (changed.changes or changed.definitions):
                return _first(groups, group + 1), changed
        return groups, None

    def _followed(self, query: Query, end: int, *, stands_alone: bool) -> Followed | None:
        """Return what articles become of whose tables a statement changes the definitions; None where it does
        something else, rows of another definition follow in its group (CREATE OR REPLACE TABLE … SELECT), or schema
        changes are not replicated. Raises NeedsArticleId, ReplicationError."""
        schema, by_table = self._range.messages.schema, self._range.by_table
        if schema is None or not schema.follows or hides_rows(query, stands_alone=True):
            return None
        found = list(meanings(query, by_table.keys()))
        if not found or any(it.effect not in (Effect.ALTERED, Effect.INDEXED) for it in found):
            return None
        articles = [by_table[it.table] for it in found]
        news = [it for it in articles if place_of(it.source_definition.holds_from) < end]
        if not news:
            return Followed()
        if not stands_alone:
            return None
        return followed(self._range.log, query, end, news, schema.article_ids)

    def _rows_unknown(self) -> ReplicationError:
        return ConfigurationError(
            f"{self._range.where}: a transaction is in the binary log as statements, whose rows are not known",
            remedy="SET GLOBAL binlog_format = ROW, and in the server's configuration; sessions may not set it "
            f"otherwise; then {REINITIALIZE}",
        )

    def _problem(self, query: Query, *, stands_alone: bool) -> ReplicationError | None:
        if hides_rows(query, stands_alone=stands_alone):
            return self._rows_unknown()
        found = meaning(query, self._range.by_table.keys())
        if found is None or found.effect in (Effect.EMPTIED, Effect.INDEXED):
            return None
        happened = (
            f"table {found.table} was altered"
            if found.effect is Effect.ALTERED
            else f"a statement that is not understood names table {found.table}"
        )
        return ConfigurationError(
            f"{self._range.where}: {happened}: {_shown(query)}. Everything committed before that is stored; "
            "nothing after it is read.",
            remedy="it is not replicated: make the Subscriber's table fit, run "
            f"`tranrepl setup FILE`, then {REINITIALIZE}",
            article=str(found.table),
        )

    def _truncations(self, plain: EventBlock) -> Iterator[ChangeSet]:
        for at in statements_of(plain).tolist():
            found = meaning(read_query(plain.body(at)), self._range.by_table.keys())
            if found is not None and found.effect is Effect.EMPTIED:
                yield ChangeSet(self._range.by_table[found.table], Operation.TRUNCATE, plain.starts[at : at + 1])


def _with_last(changes: Changes, last: Sequence[SchemaChange]) -> Changes:
    """Return changes with schema changes of the last transaction, which changes nothing else."""
    if not last:
        return changes
    place = int(changes.transactions.begins[-1])
    placed = [PlacedSchemaChange(place + at, it) for at, it in enumerate(last)]
    return replace(changes, schema_changes=placed)


def _shown(query: Query) -> str:
    text = " ".join(query.text.decode(errors="replace").split())
    return text if len(text) <= 80 else f"{text[:80]}…"


def _begin_places(block: EventBlock, begins: Ints) -> Ints:
    return block.places[begins] - block.data.numbers(block.starts[begins] + 9, "<u4")


def _first(groups: Groups, count: int) -> Groups:
    return replace(groups, begins=groups.begins[:count], ends=groups.ends[:count])


def _heads(block: EventBlock) -> EventBlock:
    """Return what begins a group, and the last description of each of its tables, in a block of their own."""
    maps = np.flatnonzero(block.types == EventType.TABLE_MAP)[::-1]
    _, last = np.unique(block.data.numbers(block.starts[maps] + HEADER_BYTES, "<i8"), return_index=True)
    chosen = np.sort(np.concatenate([[0], maps[last]]))
    starts, ends = block.starts[chosen], block.ends[chosen]
    data = LogBytes(*(block.data.bytes[at:to] for at, to in zip(starts.tolist(), ends.tolist(), strict=True)))
    to = np.cumsum(ends - starts)
    return EventBlock(data, to - (ends - starts), to, block.types[chosen], block.places[chosen], block.flavor)


def joined(blocks: Sequence[EventBlock]) -> EventBlock:
    """Return the blocks as one."""
    if len(blocks) == 1:
        return blocks[0]
    shifts = np.cumsum([0, *(it.data.length for it in blocks)])[:-1].tolist()
    return EventBlock(
        LogBytes(*(it.data.bytes[: it.data.length] for it in blocks)),
        np.concatenate([it.starts + shift for it, shift in zip(blocks, shifts, strict=True)]),
        np.concatenate([it.ends + shift for it, shift in zip(blocks, shifts, strict=True)]),
        np.concatenate([it.types for it in blocks]),
        np.concatenate([it.places for it in blocks]),
        blocks[-1].flavor,
    )


def compact(block: EventBlock) -> EventBlock:
    """Return the block without the bytes before its first event."""
    first = int(block.starts[0])
    data = block.data.bytes[first : block.data.length]
    return EventBlock(LogBytes(data), block.starts - first, block.ends - first, block.types, block.places, block.flavor)


def prepared_before(log: ServerLog, xid: Xid, before: int) -> list[bytes] | None:
    """Return the events of an XA transaction that was prepared before a place, which may be files ago; None where the
    server does not keep that log any more."""
    for file in range(file_of(before), 0, -1):
        try:
            found = _prepared_in(log, file, xid, before)
        except MustBeReinitializedError:
            return None
        if found is not None:
            return found
    return None


def _prepared_in(log: ServerLog, file: int, xid: Xid, before: int) -> list[bytes] | None:
    prepared, to_come = PreparedTransactions(), GroupsToCome()
    with closing(blocks(log, place_at(file, FIRST_EVENT), min(before, place_at(file + 1, 0)))) as read:
        for block in read:
            found = to_come.add(block)
            if found is not None:
                whole, groups = found
                wanted = whole.are(*_MAY_PREPARE)[groups.ends] & (whole.places[groups.ends] < before)
                if wanted.any():
                    prepared.plain(whole, replace(groups, begins=groups.begins[wanted], ends=groups.ends[wanted]))
    return prepared.events.get(xid)
