"""The stream of a binary log, as a server sends it to a replica.

Source: MariaDB and MySQL, `COM_BINLOG_DUMP`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pymysql

from tranrepl.connections import Connection
from tranrepl.errors import MustBeReinitializedError, ReplicationError, TransientError
from tranrepl.mysql.session import Session, connect, translate
from tranrepl.next_steps import REINITIALIZE
from tranrepl.publisher.changes import Bytes
from tranrepl.publisher.mysql.table_maps import Flavor

_COM_BINLOG_DUMP = 0x12
_NON_BLOCKING = 1
_CHUNK = 4 << 20
_HEADER = 4
_LARGEST = 0xFFFFFF
_ERROR, _END = 0xFF, 0xFE
_LOST = 1236
"""The file is gone, or the place is none in it."""
_BEFORE = {
    Flavor.MARIADB: ("SET @master_binlog_checksum = 'CRC32'", "SET @mariadb_slave_capability = 4"),
    Flavor.MYSQL: ("SET @source_binlog_checksum = 'CRC32'",),
}


@contextmanager
def dumping(connection: Connection, where: str, flavor: Flavor, file: str, offset: int) -> Iterator[BinlogDump]:
    """Begin to read the log from there, to its end as it is when that is reached."""
    with connect(connection) as session:
        yield BinlogDump(session, where, flavor, file, offset)


class BinlogDump:
    """The stream of events from a place on, in chunks."""

    def __init__(self, session: Session, where: str, flavor: Flavor, file: str, offset: int) -> None:
        self._driver = session.driver
        self._where = where
        for statement in (*_BEFORE[flavor], "SET SESSION net_write_timeout = 3600"):
            session.execute(statement)
        command = struct.pack("<IHI", offset, _NON_BLOCKING, 0) + file.encode()
        self._driver._execute_command(_COM_BINLOG_DUMP, command)  # type: ignore[attr-defined]

    def chunks(self) -> Iterator[tuple[Bytes, list[int]]]:
        """Yield bytes, and where each whole event in them begins. Raises ReplicationError."""
        socket = self._driver._sock  # type: ignore[attr-defined]
        rest = b""
        while True:
            buffer = bytearray(max(_CHUNK, 2 * len(rest)))
            buffer[: len(rest)] = rest
            filled, at, is_over, starts = len(rest), 0, False, list[int]()
            while not is_over and at < _CHUNK // 2 and filled < len(buffer):
                try:
                    count = socket.recv_into(memoryview(buffer)[filled:])
                except OSError as error:
                    raise translate(self._where, error) from error
                if count == 0:
                    raise TransientError(f"{self._where}: the server has ended the stream of its log")
                filled += count
                at, is_over = self._walk(buffer, at, filled, starts)
            if starts:
                yield np.frombuffer(buffer, dtype=np.uint8)[:at], starts
            if is_over:
                return
            rest = bytes(memoryview(buffer)[at:filled])

    def _walk(self, buffer: bytearray, at: int, filled: int, starts: list[int]) -> tuple[int, bool]:
        """Add where the whole events begin of the packets from `at` on; return where they end, and whether the stream
        is over."""
        size_of = struct.Struct("<I").unpack_from
        while at + _HEADER < filled:
            size = size_of(buffer, at)[0] & _LARGEST
            end = at + _HEADER + size
            if size == _LARGEST:
                end = self._join(buffer, at, filled) or filled + 1
            if end > filled:
                break
            status = buffer[at + _HEADER]
            if status == _END and size < 9:
                return at, True
            if status == _ERROR:
                raise self._error(bytes(buffer[at + _HEADER : end]))
            starts.append(at + _HEADER + 1)
            at = end
        return at, False

    def _join(self, buffer: bytearray, at: int, filled: int) -> int:
        """Move the pieces of a payload of many packets together; return where it ends then, 0 where it is not whole.
        The bytes that the pieces' headers took stay, after it."""
        pieces, here = [], at
        while here + _HEADER <= filled:
            size = int.from_bytes(buffer[here : here + 3], "little")
            if here + _HEADER + size > filled:
                return 0
            pieces.append((here + _HEADER, size))
            here += _HEADER + size
            if size < _LARGEST:
                payload = b"".join(bytes(memoryview(buffer)[start : start + size]) for start, size in pieces)
                # Behind the first header, with the rest of the last piece's end left over.
                begin = at + _HEADER
                buffer[begin : begin + len(payload)] = payload
                return here
        return 0

    def _error(self, packet: bytes) -> ReplicationError:
        number = int.from_bytes(packet[1:3], "little")
        text = packet[3:].decode(errors="replace").partition(" ")[2] if packet[3:4] == b"#" else packet[3:].decode()
        if number == _LOST:
            return MustBeReinitializedError(
                f"{self._where}: the log is not there any more from where it must be read: {text}", remedy=REINITIALIZE
            )
        return translate(self._where, pymysql.err.OperationalError(number, text))
