"""Groups of a binary log: what is committed, or done by one statement, together.

Groups never interleave, and lie in the order of their commits. Most are plain: a GTID, TABLE_MAP and rows events, an
end. Those that are not become so: what is compressed is inflated, what a savepoint undid is left out, and the rows of
a prepared XA transaction move to where that is committed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from tranrepl.errors import DataError
from tranrepl.model.arrays import Bools, Ints
from tranrepl.publisher.mysql.events import (
    COMPRESSED,
    GTIDS,
    HEADER_BYTES,
    EventBlock,
    EventType,
    inflated,
    payload_events,
    read_query,
    read_xa,
)
from tranrepl.publisher.mysql.row_places import LogBytes
from tranrepl.publisher.mysql.table_maps import Flavor, Reader
from tranrepl.remedies import REINITIALIZE

_SAVEPOINT = re.compile(
    rb"\s*(SAVEPOINT|ROLLBACK\s+(?:WORK\s+)?TO(?:\s+SAVEPOINT)?)\s+(.+?)\s*$", re.IGNORECASE | re.DOTALL
)
_STANDALONE = 1
"""Flag of MariaDB's GTID event: one statement follows, and ends the group."""
_PREPARED = 64
_COMMIT, _ROLLBACK, _BEGIN = b"COMMIT", b"ROLLBACK", b"BEGIN"

Xid = tuple[int, bytes, bytes]


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of a block, by the indexes of their first and last events, shape (groups,)."""

    begins: Ints
    ends: Ints
    open_from: int | None
    """The first event of a group whose end is not in the block; None where there is none."""
    is_plain: bool
    statements: Ints
    """Indexes of QUERY events that are neither BEGIN, COMMIT nor ROLLBACK."""


def torn_group(where: str) -> DataError:
    """Return the error of a log in which a group has no end: MariaDB leaves there what it was writing when it died."""
    return DataError(
        f"{where}: the binary log has the beginning of a transaction and not its end: the server died while it wrote "
        "it, and has undone it since",
        remedy=REINITIALIZE,
    )


def find_groups(block: EventBlock) -> Groups:
    """Find the groups of a block that begins between two of them. Raises DataError."""
    types = block.types
    is_gtid = block.are(*GTIDS)
    begins = np.flatnonzero(is_gtid)
    queries = np.flatnonzero(types == EventType.QUERY)
    texts, lengths = _query_texts(block, queries)
    begun, committed = _is(block, texts, lengths, _BEGIN), _is(block, texts, lengths, _COMMIT)
    undone = _is(block, texts, lengths, _ROLLBACK)
    statements = queries[~(begun | committed | undone)]
    is_end = block.are(EventType.XID, EventType.XA_PREPARE, EventType.TRANSACTION_PAYLOAD)
    is_end[queries[committed | undone]] = True
    alone = _ends_group(block, statements, is_gtid)
    is_end[statements[alone]] = True
    # A compressed statement after a GTID that says it stands alone is an end as well.
    packed = np.flatnonzero(types == EventType.QUERY_COMPRESSED)
    is_end[packed[_ends_group(block, packed, is_gtid)]] = True
    ends = np.flatnonzero(is_end)
    end_of = np.searchsorted(ends, begins)
    is_whole = end_of < len(ends)
    found = ends[end_of[is_whole]]
    is_torn = len(begins) > len(found) + 1 or (found[:-1] >= begins[1 : len(found)]).any()
    if is_torn:
        raise torn_group("Publisher")
    open_from = None if is_whole.all() else int(begins[len(found)])
    in_groups = block.are(*COMPRESSED, EventType.TRANSACTION_PAYLOAD, EventType.XA_PREPARE)
    is_xa = _begins_with(block, statements, b"XA ")
    is_plain = not (in_groups.any() or undone.any() or (~alone).any() or is_xa.any())
    return Groups(begins[is_whole], found, open_from, is_plain, statements)


def statements_of(block: EventBlock) -> Ints:
    """Return the indexes of QUERY events that are neither BEGIN, COMMIT nor ROLLBACK: MySQL begins each group with
    one."""
    queries = np.flatnonzero(block.types == EventType.QUERY)
    texts, lengths = _query_texts(block, queries)
    is_word = [_is(block, texts, lengths, word) for word in (_BEGIN, _COMMIT, _ROLLBACK)]
    found: Ints = queries[~np.any(is_word, axis=0)]
    return found


def is_prepared(block: EventBlock, begin: int) -> bool:
    """Return whether MariaDB's event at the beginning of a group says that it prepares an XA transaction."""
    flags = block.data.bytes[block.starts[begin] + HEADER_BYTES + 12]
    return block.flavor is Flavor.MARIADB and bool(flags & _PREPARED)


def is_undone(block: EventBlock, end: int) -> bool:
    """Return whether a group's last event rolls it back."""
    return bool(block.types[end] == EventType.QUERY) and read_query(block.body(end)).text == _ROLLBACK


def _query_texts(block: EventBlock, at: Ints) -> tuple[Ints, Ints]:
    """Return where the statements of QUERY events begin, and their lengths."""
    body = block.starts[at] + HEADER_BYTES
    texts = body + 14 + block.data.number(body + 8, 1) + block.data.number(body + 11, 2)
    return texts, block.ends[at] - texts


def _is(block: EventBlock, texts: Ints, lengths: Ints, word: bytes) -> Bools:
    found: Bools = (lengths == len(word)) & block.data.are(np.minimum(texts, block.data.length), word)
    return found


def _begins_with(block: EventBlock, at: Ints, word: bytes) -> Bools:
    texts, lengths = _query_texts(block, at)
    return _is(block, texts, np.where(lengths >= len(word), len(word), -1), word)


def _ends_group(block: EventBlock, at: Ints, is_gtid: Bools) -> Bools:
    """Return which statements end their group: those that follow its GTID, where that or they say so."""
    follows: Bools = (at > 0) & is_gtid[at - 1]
    if block.flavor is Flavor.MYSQL:
        return follows & ~_begins_with(block, at, b"XA START")
    flags = block.data.bytes[block.starts[at - 1] + HEADER_BYTES + 12]
    return follows & (flags & _STANDALONE > 0)


@dataclass(slots=True)
class PreparedTransactions:
    """Events of XA transactions that are prepared, until it is known what becomes of them."""

    events: dict[Xid, list[bytes]] = field(default_factory=dict)
    find: Callable[[Xid, int], list[bytes] | None] = lambda _, __: None
    """Looks for one that was prepared before a place, and before the log is read."""
    _place: int = 0

    def plain(self, block: EventBlock, groups: Groups) -> EventBlock:
        """Return the same groups, each a plain one. Raises DataError."""
        events: list[bytes] = []
        places: list[int] = []
        for begin, end in zip(groups.begins.tolist(), groups.ends.tolist(), strict=True):
            self._place = int(block.places[begin])
            of_group = self._plain_group(list(_inflated(block, begin, end)))
            events += of_group
            places += [int(block.places[begin]), *[int(block.places[end])] * (len(of_group) - 1)]
        sizes = np.fromiter(map(len, events), dtype=np.int64, count=len(events))
        ends = np.cumsum(sizes)
        data = LogBytes(np.frombuffer(b"".join(events), dtype=np.uint8))
        starts = ends - sizes
        types = data.numbers(starts + 4, "u1")
        return EventBlock(data, starts, ends, types, np.array(places, dtype=np.int64), block.flavor)

    def _plain_group(self, events: list[bytes]) -> list[bytes]:
        kept: list[bytes] = []
        savepoints: dict[bytes, int] = {}
        for event in events:
            kind = event[4]
            if kind == EventType.XA_PREPARE:
                one_phase, xid = _prepared(event)
                if not one_phase:
                    self.events[xid] = kept[1:]
                    del kept[1:]
            elif kind != EventType.QUERY:
                kept.append(event)
                continue
            else:
                self._take_query(event, kept, savepoints)
        return kept

    def _take_query(self, event: bytes, kept: list[bytes], savepoints: dict[bytes, int]) -> None:
        text = read_query(event[HEADER_BYTES:]).text
        if text == _ROLLBACK:
            del kept[1:]
        elif (point := _SAVEPOINT.match(text)) is not None:
            name = point[2].strip(b"`").lower()
            if point[1].upper() == b"SAVEPOINT":
                savepoints[name] = len(kept)
            elif name in savepoints:
                del kept[savepoints[name] :]
            else:
                raise DataError("the binary log goes back to a savepoint that it does not have")
        elif (xa := read_xa(text)) is not None:
            self._take_xa(*xa, kept)
        else:
            kept.append(event)

    def _take_xa(self, does: str, xid_text: bytes, kept: list[bytes]) -> None:
        if does not in ("COMMIT", "ROLLBACK"):
            return
        xid = _xid(xid_text)
        if does == "ROLLBACK":
            self.events.pop(xid, None)
            return
        rows = self.events.pop(xid) if xid in self.events else self.find(xid, self._place)
        if rows is None:
            raise DataError(
                f"XA transaction {xid_text.decode(errors='replace')} was prepared in a part of the log that was "
                "purged: the rows that it has committed are not known",
                remedy=REINITIALIZE,
            )
        kept += rows


def _inflated(block: EventBlock, begin: int, end: int) -> Iterator[bytes]:
    for at in range(begin, end + 1):
        event, kind = block.event(at), EventType(int(block.types[at]))
        if kind in COMPRESSED:
            yield inflated(event)
        elif kind is EventType.TRANSACTION_PAYLOAD:
            yield from payload_events(event[HEADER_BYTES:])
        else:
            yield event


def _prepared(event: bytes) -> tuple[bool, Xid]:
    reader = Reader(event, HEADER_BYTES)
    one_phase, number = reader.number(1), reader.number(4)
    lengths = reader.number(4), reader.number(4)
    return bool(one_phase), (number, reader.take(lengths[0]), reader.take(lengths[1]))


def _xid(text: bytes) -> Xid:
    """Return a transaction's name from the form that the log has: X'gtrid',X'bqual',format."""
    gtrid, bqual, number = text.split(b",")
    return int(number), bytes.fromhex(gtrid.strip()[2:-1].decode()), bytes.fromhex(bqual.strip()[2:-1].decode())
