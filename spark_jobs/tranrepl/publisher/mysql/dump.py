"""The stream of a binary log, as a server sends it to a replica.

Source: MariaDB and MySQL, `COM_BINLOG_DUMP`.
"""

from __future__ import annotations

import secrets
import ssl
import struct
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pymysql

from tranrepl.connections import Connection
from tranrepl.errors import MustBeReinitializedError, ReplicationError, TransientError
from tranrepl.model.arrays import Bytes, Ints
from tranrepl.mysql.session import Session, connect, translate
from tranrepl.publisher.mysql.events import EventBlock, LogCursor
from tranrepl.publisher.mysql.groups import torn_group
from tranrepl.publisher.mysql.packets import END, ERROR, HEADER, event_packets, joined
from tranrepl.publisher.mysql.positions import file_of, offset_of
from tranrepl.publisher.mysql.server import ServerLog
from tranrepl.publisher.mysql.table_maps import Flavor
from tranrepl.remedies import REINITIALIZE

_COM_BINLOG_DUMP = 0x12
_NON_BLOCKING = 1
_CHUNK = 4 << 20
_LOST = 1236
"""The file is gone, or the place is none in it; or it ends within an event (`_TRUNCATED`)."""
_TRUNCATED = "truncated in the middle of event"
_WAITS = (0.05, 0.5, 5.0)
"""Seconds before the rest of a stream is asked for that has ended too early."""
HEARTBEAT_SECONDS = 5.0
"""So long after the last event, the server of a log that is followed sends one that says that it is there."""
_BEFORE = {
    Flavor.MARIADB: ("SET @master_binlog_checksum = 'CRC32'", "SET @mariadb_slave_capability = 4"),
    Flavor.MYSQL: ("SET @source_binlog_checksum = 'CRC32'",),
}
_HEARTBEAT = "SET @master_heartbeat_period = %s, @source_heartbeat_period = %s"


@contextmanager
def dumping(
    connection: Connection, where: str, flavor: Flavor, file: str, offset: int, *, follows: bool = False
) -> Iterator[BinlogDump]:
    """Begin to read the log from there, to its end as it is when that is reached; or to follow it."""
    with connect(connection) as session:
        yield BinlogDump(session, where, flavor, file, offset, follows=follows)


def blocks(log: ServerLog, first: int, until: int) -> Generator[EventBlock]:
    """Yield the log's events from a place on, up to another one or somewhat further.

    A server may end the stream before: MySQL shows an end of its log that it has not synchronized yet, and does not
    send; and a session that is killed ends as at the log's end. The rest is asked for. Raises TransientError where it
    does not come.
    """
    place, waits = first, iter(_WAITS)
    while place < until:
        goes_on = True
        with dumping(log.connection, log.where, log.flavor, log.file(file_of(place)), offset_of(place)) as dump:
            cursor = LogCursor(file_of(place), offset_of(place))
            for data, starts in dump.chunks():
                block = cursor.block(data, starts)
                yield block
                if cursor.place >= until:
                    return
                goes_on = cursor.place == place or block.can_be_continued
        seconds = next(waits, None)
        if seconds is None or not goes_on:
            raise TransientError(f"{log.where}: the server has ended the stream of its log before the log's end")
        place = cursor.place
        time.sleep(seconds)


class BinlogDump:
    """The stream of events from a place on, in chunks."""

    def __init__(
        self, session: Session, where: str, flavor: Flavor, file: str, offset: int, *, follows: bool = False
    ) -> None:
        self._driver = session.driver
        self._where = where
        self._follows = follows
        self._rest = b""
        self._failure: ReplicationError | None = None
        for statement in (*_BEFORE[flavor], "SET SESSION net_write_timeout = 3600"):
            session.execute(statement)
        if follows:
            session.execute(_HEARTBEAT, 2 * [int(HEARTBEAT_SECONDS * 1_000_000_000)])
        # Of two that follow under one number, the server ends the first; one without a number cannot follow.
        flags, number = (0, 1 << 31 | secrets.randbits(31)) if follows else (_NON_BLOCKING, 0)
        command = struct.pack("<IHI", offset, flags, number) + file.encode()
        self._driver._execute_command(_COM_BINLOG_DUMP, command)  # type: ignore[attr-defined]
        if follows:
            self._socket.setblocking(False)

    @property
    def _socket(self) -> Any:
        return self._driver._sock  # type: ignore[attr-defined]

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when something arrives."""
        return int(self._socket.fileno())

    def chunks(self) -> Iterator[tuple[Bytes, Ints]]:
        """Yield bytes, and where each whole event in them begins; of a log that is followed those that have arrived, as
        often as it is asked. Raises ReplicationError."""
        is_over = is_waiting = False
        while not (is_over or is_waiting):
            buffer = bytearray(max(_CHUNK, 2 * len(self._rest)))
            filled, at, starts = len(self._rest), 0, list[Ints]()
            buffer[:filled] = self._rest
            while not is_over and at < _CHUNK // 2 and filled < len(buffer):
                try:
                    count = self._socket.recv_into(memoryview(buffer)[filled:])
                except (BlockingIOError, ssl.SSLWantReadError):
                    is_waiting = True
                    break
                except OSError as error:
                    raise translate(self._where, error) from error
                if count:
                    filled += count
                    at, is_over = self._walk(buffer, at, filled, starts)
                if not count or (is_over and self._follows and self._failure is None):
                    raise TransientError(f"{self._where}: the server has ended the stream of its log")
            self._rest = bytes(memoryview(buffer)[at:filled])
            found = np.concatenate([np.zeros(0, dtype=np.int64), *starts])
            if len(found):
                yield np.frombuffer(buffer, dtype=np.uint8)[:at], found
        # Not before what came before it: whose log it is, is proven by that.
        if self._failure is not None:
            raise self._failure

    def _walk(self, buffer: bytearray, at: int, filled: int, starts: list[Ints]) -> tuple[int, bool]:
        """Add where the whole events begin of the packets from `at` on; return where they end, and whether the stream
        is over."""
        data = np.frombuffer(buffer, dtype=np.uint8)
        while True:
            begins, end = event_packets(data, at, filled)
            for number in np.flatnonzero(data[begins + HEADER]).tolist():
                begin = int(begins[number])
                status, size = buffer[begin + HEADER], int.from_bytes(buffer[begin : begin + 3], "little")
                if status == ERROR:
                    self._failure = self._error(bytes(buffer[begin + HEADER : begin + HEADER + size]))
                if status == ERROR or (status == END and size < 9):
                    starts.append(begins[:number] + HEADER + 1)
                    return begin, True
            starts.append(begins + HEADER + 1)
            at = joined(buffer, end, filled)
            if not at:
                return end, False
            starts.append(np.array([end + HEADER + 1]))

    def _error(self, packet: bytes) -> ReplicationError:
        number = int.from_bytes(packet[1:3], "little")
        text = packet[3:].decode(errors="replace").partition(" ")[2] if packet[3:4] == b"#" else packet[3:].decode()
        if number == _LOST and _TRUNCATED in text:
            return torn_group(self._where)
        if number == _LOST:
            return MustBeReinitializedError(
                f"{self._where}: the log is not there any more from where it must be read: {text}", remedy=REINITIALIZE
            )
        return translate(self._where, pymysql.err.OperationalError(number, text))
