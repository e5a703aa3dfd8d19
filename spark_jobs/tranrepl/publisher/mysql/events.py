"""Events of a binary log: many at a time, as they lie in a buffer, and what single ones say."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from enum import IntEnum
from functools import partial

import numpy as np
import pyarrow as pa

from tranrepl.errors import DataError
from tranrepl.model.arrays import Bools, Bytes, Ints
from tranrepl.publisher.mysql.row_places import LogBytes
from tranrepl.publisher.mysql.table_maps import Flavor, Reader
from tranrepl.remedies import REINITIALIZE

HEADER_BYTES = 19
_CHECKSUM_BYTES = 4
_ARTIFICIAL = 0x20
_LOW = 0xFFFFFFFF
_PLACE = 13
"""Where an event says its place, which is where it ends."""
_PACKET_BYTES = 5
"""What lies before an event in the stream: a packet's header and status."""
_CHECKSUM_OF_ALL = 0x2144DF1C
"""CRC32 of any bytes with their own CRC32 behind them."""
_TO_THE_NEXT = b"\x00\x80\xfd\xfb\xab"
"""Behind them, these bring the register of CRC32 to where it begins: the next such bytes leave it where the first have.
So one pass over many events that have these between them tells whether all have their checksums; one for each event
costs more than to decode it."""
OFFSET_BITS = 37
"""A place in the log is a number: the file's, above so many bits of the offset in it."""


class EventType(IntEnum):
    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    RAND = 13
    USER_VAR = 14
    FORMAT_DESCRIPTION = 15
    XID = 16
    TABLE_MAP = 19
    WRITE_V1 = 23
    UPDATE_V1 = 24
    DELETE_V1 = 25
    HEARTBEAT = 27
    ROWS_QUERY = 29
    WRITE = 30
    UPDATE = 31
    DELETE = 32
    GTID_OF_MYSQL = 33
    ANONYMOUS_GTID = 34
    PREVIOUS_GTIDS = 35
    XA_PREPARE = 38
    TRANSACTION_PAYLOAD = 40
    TAGGED_GTID = 42
    ANNOTATE_ROWS = 160
    CHECKPOINT = 161
    GTID = 162
    GTID_LIST = 163
    START_ENCRYPTION = 164
    QUERY_COMPRESSED = 165
    WRITE_COMPRESSED = 166
    UPDATE_COMPRESSED = 167
    DELETE_COMPRESSED = 168


GTIDS = (EventType.GTID, EventType.GTID_OF_MYSQL, EventType.ANONYMOUS_GTID, EventType.TAGGED_GTID)
COMPRESSED = {
    EventType.QUERY_COMPRESSED: EventType.QUERY,
    EventType.WRITE_COMPRESSED: EventType.WRITE_V1,
    EventType.UPDATE_COMPRESSED: EventType.UPDATE_V1,
    EventType.DELETE_COMPRESSED: EventType.DELETE_V1,
}
"""What an event is once it is inflated."""
_KNOWN = np.zeros(256, dtype=np.bool_)
_KNOWN[[int(it) for it in EventType]] = True


@dataclass(frozen=True, slots=True)
class EventBlock:
    """Events that lie in one buffer, in the log's order. The arrays have shape (events,)."""

    data: LogBytes
    starts: Ints
    ends: Ints
    """Without the checksum."""
    types: Ints
    places: Ints
    """Where each ends in the log."""
    flavor: Flavor

    @property
    def can_be_continued(self) -> bool:
        """Return whether a server can be asked for what follows: newer servers say the places of a group's first and
        last events only, and none takes one beyond 4 GiB."""
        said = self.data.numbers(self.starts[-1:] + _PLACE, "<u4")[0]
        return bool(said) and int(self.places[-1]) % (1 << OFFSET_BITS) <= _LOW

    def chosen(self, which: slice) -> EventBlock:
        return EventBlock(
            self.data, self.starts[which], self.ends[which], self.types[which], self.places[which], self.flavor
        )

    def are(self, *kinds: EventType) -> Bools:
        """Return which events are of these types. A look into a table is several times as fast as numpy's `isin`."""
        is_wanted = np.zeros(256, dtype=np.bool_)
        is_wanted[list(kinds)] = True
        found: Bools = is_wanted[self.types]
        return found

    def event(self, index: int) -> bytes:
        """Return one event, without its checksum."""
        return self.data.bytes[self.starts[index] : self.ends[index]].tobytes()

    def body(self, index: int) -> bytes:
        return self.event(index)[HEADER_BYTES:]

    def times(self, indexes: Ints) -> Ints:
        """Return the headers' times, in µs since 1970 UTC."""
        return self.data.numbers(self.starts[indexes], "<u4") * 1_000_000


class LogCursor:
    """Follows files and offsets while events arrive, as a server sends them from a place on."""

    def __init__(self, file: int, offset: int, *, checksums: bool = True) -> None:
        self.file = file
        self.offset = offset
        self.flavor = Flavor.MARIADB
        self._checksums = checksums

    @property
    def place(self) -> int:
        return self.file << OFFSET_BITS | self.offset

    def block(self, data: Bytes, starts: Ints) -> EventBlock:
        """Return the events that begin at these offsets. Raises DataError for one of a kind that is not known, and
        where places in the log do not fit."""
        log = LogBytes(data)
        types = log.numbers(starts + 4, "u1")
        if not _KNOWN[types].all():
            kind = types[~_KNOWN[types]][0]
            raise DataError(f"the binary log has an event of type {kind}, which cannot be read, after {self.text()}")
        sizes = log.numbers(starts + 9, "<u4")
        ends, places = starts + sizes, np.zeros(len(starts), dtype=np.int64)
        begin = 0
        for at in np.flatnonzero((types == EventType.FORMAT_DESCRIPTION) | (types == EventType.ROTATE)).tolist():
            self._pass(log, slice(begin, at), starts, sizes, types, places, ends)
            self._turn(log, at, starts, sizes, types, ends)
            places[at] = self.place
            begin = at + 1
        self._pass(log, slice(begin, len(starts)), starts, sizes, types, places, ends)
        return EventBlock(log, starts, ends, types, places, self.flavor)

    def text(self) -> str:
        return f"file {self.file:06}, offset {self.offset}"

    def _pass(
        self, log: LogBytes, part: slice, starts: Ints, sizes: Ints, types: Ints, places: Ints, ends: Ints
    ) -> None:
        """Count the events of one file."""
        if part.start == part.stop:
            return
        is_of_file = self._is_of_file(log, starts[part], types[part])
        if self._checksums and not _have_checksums(log, starts[part], ends[part]):
            wrong = next(at for at in range(part.start, part.stop) if not _has_checksum(log, starts[at], ends[at]))
            before = slice(part.start, wrong)
            self._pass(log, before, starts, sizes, types, places, ends)
            # Those behind the last one that says its place.
            of_file = is_of_file[: wrong - part.start]
            says = np.flatnonzero(of_file & (log.numbers(starts[before] + _PLACE, "<u4") != 0))
            behind = int(says[-1]) + 1 if len(says) else 0
            self.offset += int(sizes[before][behind:][of_file[behind:]].sum())
            raise self._damaged()
        said = log.numbers(starts[part] + _PLACE, "<u4")
        known = is_of_file & (said != 0)
        # Four bytes have no room for what is beyond 4 GiB; a server leaves out events that were not asked for, and
        # newer ones say the places of a group's first and last events only.
        low = np.concatenate([[self.offset & _LOW], said[known]])
        high = (self.offset & ~_LOW) + np.cumsum(np.diff(low) < 0) * (_LOW + 1)
        offsets = np.full(len(said), self.offset, dtype=np.int64)
        offsets[known] = high + low[1:]
        read = self.offset + np.cumsum(np.where(is_of_file, sizes[part], 0))
        if (offsets[known] < read[known]).any():
            raise DataError(f"the binary log's places do not fit after {self.text()}")
        offsets = np.maximum.accumulate(offsets)
        places[part] = self.file << OFFSET_BITS | offsets
        if self._checksums:
            ends[part] -= _CHECKSUM_BYTES
        self.offset = int(offsets[-1])

    def _damaged(self) -> DataError:
        return DataError(
            f"the event of the binary log at {self.text()} is damaged: it does not have its checksum",
            remedy="at the server, `mariadb-binlog` or `mysqlbinlog` with --verify-binlog-checksum tells whether its "
            f"file is. If so, FLUSH BINARY LOGS there, and {REINITIALIZE}",
        )

    def _is_of_file(self, log: LogBytes, starts: Ints, types: Ints) -> Bools:
        flags = log.numbers(starts + 17, "<u2")
        counts: Bools = (flags & _ARTIFICIAL == 0) & (types != EventType.HEARTBEAT)
        return counts

    def _turn(self, log: LogBytes, at: int, starts: Ints, sizes: Ints, types: Ints, ends: Ints) -> None:
        """Take in what a file begins or ends with."""
        start, size = int(starts[at]), int(sizes[at])
        event = log.bytes[start : start + size].tobytes()
        if (event[-5] == 1 if types[at] == EventType.FORMAT_DESCRIPTION else self._checksums) and not _has_checksum(
            log, starts[at], start + size
        ):
            raise self._damaged()
        said = int.from_bytes(event[13:17], "little")
        if types[at] == EventType.FORMAT_DESCRIPTION:
            ends[at] -= _CHECKSUM_BYTES
            self._checksums = event[-5] == 1
            self.flavor = Flavor.MARIADB if b"MariaDB" in event[21:71] else Flavor.MYSQL
            # It comes first whatever the place that reading begins at, and then is of no file.
            if said and self.offset == said - size:
                self.offset = said
            return
        if self._checksums:
            ends[at] -= _CHECKSUM_BYTES
        body = event[HEADER_BYTES : int(ends[at]) - start]
        self.file = int(body[8:].rpartition(b".")[2])
        self.offset = int.from_bytes(body[:8], "little")


def _have_checksums(log: LogBytes, starts: Ints, ends: Ints) -> bool:
    """Return whether all of these events have their checksums. What lies between two of them is overwritten."""
    follows = starts[1:] - ends[:-1] == _PACKET_BYTES
    log.put(ends[:-1][follows], _TO_THE_NEXT)
    cuts = np.flatnonzero(~follows)
    firsts, lasts = starts[np.concatenate([[0], cuts + 1])], ends[np.concatenate([cuts, [len(ends) - 1]])]
    return all(map(partial(_has_checksum, log), firsts.tolist(), lasts.tolist()))


def _has_checksum(log: LogBytes, start: int, end: int) -> bool:
    return zlib.crc32(log.bytes.data[start:end]) == _CHECKSUM_OF_ALL


@dataclass(frozen=True, slots=True)
class Query:
    """A statement in the log. `database` is the session's own, whatever the statement names."""

    database: str
    text: bytes


def read_query(body: bytes) -> Query:
    reader = Reader(body, 8)
    name = reader.number(1)
    reader.take(2)
    reader.take(reader.number(2))
    database = reader.take(name + 1)[:-1].decode()
    return Query(database, body[reader.at :])


def query_of(block: EventBlock, at: int) -> Query:
    """Return the statement of a QUERY event, inflated where it is compressed."""
    event = block.event(at)
    return read_query((inflated(event) if event[4] in COMPRESSED else event)[HEADER_BYTES:])


def inflated(event: bytes) -> bytes:
    """Return a compressed event as the one that it is without compression. Raises DataError."""
    kind = COMPRESSED[EventType(event[4])]
    body = event[HEADER_BYTES:]
    if kind is EventType.QUERY:
        before = len(body) - len(read_query(body).text)
    else:
        columns = Reader(body, 8)
        count = (columns.packed() + 7) // 8
        before = columns.at + count * (2 if kind is EventType.UPDATE_V1 else 1)
    packed = body[before:]
    if not packed or packed[0] & 0xF0 != 0x80:
        raise DataError("a compressed event of the binary log is compressed in a way that is not known")
    try:
        rest = zlib.decompress(packed[1 + (packed[0] & 7) :])
    except zlib.error as error:
        raise DataError("a compressed event of the binary log cannot be inflated") from error
    return event[:4] + bytes([kind]) + event[5:HEADER_BYTES] + body[:before] + rest


def payload_events(body: bytes) -> list[bytes]:
    """Return the events of a TRANSACTION_PAYLOAD event: they have no checksums. Raises DataError."""
    reader, fields = Reader(body), dict[int, int]()
    while kind := reader.packed():
        value = reader.text()
        fields[kind] = Reader(value).packed()
    # Compression 0 is zstd, 255 none.
    data = body[reader.at :]
    if fields.get(2, 255) == 0:
        data = pa.Codec("zstd").decompress(data, fields[3], asbytes=True)
    elif fields.get(2, 255) != 255:
        raise DataError(f"the binary log compresses transactions in a way that is not known ({fields[2]})")
    events, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at + 9 : at + 13], "little")
        events.append(data[at : at + size])
        at += size
    return events


_XA = re.compile(
    rb"\s*XA\s+(START|BEGIN|END|PREPARE|COMMIT|ROLLBACK)\s+(.*?)\s*(?:ONE PHASE)?\s*$", re.IGNORECASE | re.DOTALL
)


def read_xa(text: bytes) -> tuple[str, bytes] | None:
    """Return what an XA statement does, and its transaction as the log writes it; None for another statement."""
    found = _XA.match(text)
    return None if found is None else (found[1].decode().upper(), found[2])


def tagged_commit_time(body: bytes) -> int:
    """Return the commit time of a GTID event with a tag, in µs since 1970 UTC: the original one, on a replica."""
    reader = Reader(body)
    for _ in range(3):
        _variable(reader)
    time = 0
    while not reader.is_over:
        match _variable(reader):
            case 1:
                for _ in range(16):
                    _variable(reader)
            case 3:
                reader.take(_variable(reader))
            case 6:
                time = _variable(reader)
            case 7:
                return _variable(reader)
            case _:
                _variable(reader)
    return time


def _variable(reader: Reader) -> int:
    """Return an integer whose first byte has as many ones at its low end as bytes follow it."""
    first = reader.number(1)
    more = 0
    while more < 8 and first >> more & 1:
        more += 1
    rest = reader.number(more)
    return rest << max(0, 7 - more) | first >> min(more + 1, 8)
