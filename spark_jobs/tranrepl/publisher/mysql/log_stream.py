"""A binary log as it is written: followed by one session, to which the server sends each event at once.

The server knows nothing of what is registered: to go on is to follow from there again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tranrepl.errors import ReplicationError
from tranrepl.model.position import Position
from tranrepl.publisher.log_range import LogPart, RowFilters
from tranrepl.publisher.log_stream import StreamEndedError
from tranrepl.publisher.mysql.continuity import PassedOver
from tranrepl.publisher.mysql.dump import HEARTBEAT_SECONDS, BinlogDump, dumping
from tranrepl.publisher.mysql.events import GTIDS, EventBlock, LogCursor
from tranrepl.publisher.mysql.groups import find_groups
from tranrepl.publisher.mysql.log_range import BinlogRange, GroupsToCome, Reading, joined
from tranrepl.publisher.mysql.positions import file_of, offset_of, place_of, position_of

_SILENT_SECONDS = 4 * HEARTBEAT_SECONDS
"""A server that has said nothing for so long is not there any more."""
_AT_ONCE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class BinlogStream:
    """From where a range of the log begins, on and on."""

    log: BinlogRange

    @contextmanager
    def open(self) -> Iterator[OpenBinlogStream]:
        place, server = place_of(self.log.start), self.log.log
        file, offset = server.file(file_of(place)), offset_of(place)
        with (
            self.log.row_filters() as filters,
            dumping(server.connection, self.log.where, server.flavor, file, offset, follows=True) as dump,
        ):
            cursor = LogCursor(file_of(place), offset)
            passed = PassedOver(cursor.file)
            yield OpenBinlogStream(self.log, filters, dump, cursor, Reading(self.log), passed, place)


@dataclass(slots=True)
class OpenBinlogStream:
    log: BinlogRange
    filters: RowFilters | None
    dump: BinlogDump
    cursor: LogCursor
    reading: Reading
    passed: PassedOver
    confirmed: int
    """All before this place is registered."""
    arrived_at: float | None = None
    _arrived: list[EventBlock] = field(default_factory=list)
    """Whole groups that were not taken."""
    _to_come: GroupsToCome = field(default_factory=GroupsToCome)
    _behind: EventBlock | None = None
    """What lies behind the groups that were taken, until they are registered."""
    _heard_at: float = field(default_factory=time.monotonic)

    @property
    def arrived_bytes(self) -> int:
        return self._to_come.bytes + sum(it.data.length for it in self._arrived)

    @property
    def read_to(self) -> Position | None:
        if self._arrived or self._to_come.open or self.cursor.place <= self.confirmed:
            return None
        return position_of(self.cursor.place)

    def fileno(self) -> int:
        return self.dump.fileno()

    def receive(self) -> None:
        now = time.monotonic()
        try:
            for data, starts in self.dump.chunks():
                self._heard_at = now
                self._add(self.cursor.block(data, starts))
                if self.arrived_bytes >= _AT_ONCE_BYTES:
                    return
        except ReplicationError as error:
            # The draining that follows says what it is.
            raise StreamEndedError(error.message) from error
        if now - self._heard_at >= _SILENT_SECONDS:
            raise StreamEndedError(f"the server has said nothing for {_SILENT_SECONDS} s")

    def _add(self, block: EventBlock) -> None:
        is_first = self.arrived_at is None
        if not self._to_come.open and not block.are(*GTIDS).any():
            whole, is_passed = block, is_first
        else:
            found = self._to_come.add(block)
            if found is None or not len(found[0].starts):
                return
            whole, groups = found
            is_passed = is_first and (not len(groups.begins) or self.reading.is_of_others(whole, groups))
        if is_passed:
            self.passed.add(whole)
            return
        # What lies between groups, too: a proof is made of the log in its order.
        self._arrived.append(whole)
        self.arrived_at = self.arrived_at or time.monotonic()

    def take(self) -> LogPart | None:
        whole = joined(self._arrived)
        self._arrived, self.arrived_at = [], None
        try:
            groups = find_groups(whole)
            end = int(groups.ends[-1]) + 1
            self.passed.add(whole.chosen(slice(end)))
            self._behind = whole.chosen(slice(end, None))
            return self.reading.of_groups(whole, groups)
        except ReplicationError:
            return None

    def proof(self, registered: str | None, last: bytes | None) -> str | None:
        return None if registered is None else self.passed.proof(registered, last)

    def confirm(self, position: Position) -> None:
        self.confirmed = place_of(position)
        if self._behind is not None and len(self._behind.starts):
            self.passed.add(self._behind)
        self._behind = None
