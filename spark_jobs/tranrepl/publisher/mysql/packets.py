"""Packets of MariaDB's and MySQL's protocol where they are too many to make a Python object of each."""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import Any

import pymysql

Texts = list[bytearray | None]
HEADER = 4
LARGEST = 0xFFFFFF
"""Bytes of a packet; the payload goes on in the next one then."""
ERROR, END = 0xFF, 0xFE
_NULL = 0xFB
_MOST_OF_END = 9
"""A packet with that first byte and so many others is a text."""
_LENGTHS = {0xFC: 2, 0xFD: 3, 0xFE: 8}
"""By a text's first byte, how many more tell its length; of a shorter text, the first one does."""
_COM_QUERY = 3
_BLOCK = 1 << 20


def joined(buffer: bytearray, at: int, filled: int) -> int:
    """Move the pieces of a payload of many packets together; return where it ends then, 0 where it is not whole.
    The bytes that the pieces' headers took stay, after it."""
    pieces, here = [], at
    while here + HEADER <= filled:
        size = int.from_bytes(buffer[here : here + 3], "little")
        if here + HEADER + size > filled:
            return 0
        pieces.append((here + HEADER, size))
        here += HEADER + size
        if size < LARGEST:
            payload = b"".join(bytes(memoryview(buffer)[start : start + size]) for start, size in pieces)
            # Behind the first header, with the rest of the last piece's end left over.
            begin = at + HEADER
            buffer[begin : begin + len(payload)] = payload
            return here
    return 0


def texts(driver: pymysql.Connection[Any], statement: str) -> Generator[Texts]:
    """Execute a query of one column, a text; yield its values in UTF-8, some at a time. Raises the driver's errors."""
    driver._execute_command(_COM_QUERY, statement)  # type: ignore[attr-defined]
    for _ in ("the number of columns", "the column", "the end of columns"):
        driver._read_packet()  # type: ignore[no-untyped-call]
    buffer, last = bytearray(), b""
    try:
        while not last:
            found, last = _read(driver, buffer)
            if found:
                yield found
    except GeneratorExit:
        # Else the session would take what is left for the answer to the next query.
        while not last:
            _, last = _read(driver, buffer)
        raise
    if last[0] == ERROR:
        pymysql.err.raise_mysql_exception(last)


def _read(driver: pymysql.Connection[Any], buffer: bytearray) -> tuple[Texts, bytes]:
    """Read on; return texts, and the packet that ends the answer where that has come."""
    block: bytes = driver._rfile.read1(_BLOCK)  # type: ignore[attr-defined]
    if not block:
        raise pymysql.err.InterfaceError(0, "the server has ended the session")
    buffer += block
    header_of, found, at, filled = struct.Struct("<I").unpack_from, Texts(), 0, len(buffer)
    add = found.append
    while at + HEADER < filled:
        size = header_of(buffer, at)[0] & LARGEST
        begin = at + HEADER
        end = begin + size if size < LARGEST else joined(buffer, at, filled) or filled + 1
        if end > filled:
            break
        first = buffer[begin]
        if first < _NULL:
            add(buffer[begin + 1 : begin + 1 + first])
        elif first == ERROR or (first == END and size < _MOST_OF_END):
            return found, bytes(buffer[begin:end])
        elif first == _NULL:
            add(None)
        else:
            start = begin + 1 + _LENGTHS[first]
            add(buffer[start : start + int.from_bytes(buffer[begin + 1 : start], "little")])
        at = end
    del buffer[:at]
    return found, b""
