"""Packets of MariaDB's and MySQL's protocol where they are too many to make a Python object of each."""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import Any

import numpy as np
import pymysql

from tranrepl.model.arrays import Bytes, Ints

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
_EVENT_SIZE_AT = 14
"""In a packet of an event, behind its header and status."""
_LEAST_EVENT = 19
"""Its header alone. Zeros would look like events everywhere."""
_LANE_BYTES, _WINDOW, _LEAST_LANES = 16 << 10, 512, 16
"""A buffer is walked through from places so far apart, each found in so many bytes, if there are so many of them."""


def event_packets(data: Bytes, at: int, filled: int) -> tuple[Ints, int]:
    """Return where the whole packets of one event each begin that follow one another from `at` on, and where they end:
    before one that is not whole, or of the largest size."""
    found = _side_by_side(data, at, filled) if filled - at >= _LEAST_LANES * _LANE_BYTES else None
    first = np.array([at]) if found is None else found
    header_of, last, at = struct.Struct("<I").unpack_from, list[int](), int(first[-1])
    while at + HEADER < filled:
        size = header_of(data.data, at)[0] & LARGEST
        if size == LARGEST or at + HEADER + size > filled:
            break
        last.append(at)
        at += HEADER + size
    return np.concatenate([first[:-1], np.array(last, dtype=np.int64)]), at


def _side_by_side(data: Bytes, at: int, filled: int) -> Ints | None:
    """Return where packets begin, up to one near the end, walking from many of them at once; None where too few are
    found, or one is not right.

    Where a packet begins in the middle is guessed: its size fits that of the event in it. The guess is right if the
    packets from the guess before, or from `at`, lead to it.
    """
    lanes = (filled - at) // _LANE_BYTES - 1
    sizes, event_sizes = (
        np.ndarray((lanes, _WINDOW), "<u4", data.data, at + _LANE_BYTES + offset, (_LANE_BYTES, 1))
        for offset in (0, _EVENT_SIZE_AT)
    )
    is_start = (sizes & LARGEST == event_sizes + 1) & (event_sizes >= _LEAST_EVENT)
    found = is_start.any(axis=1)
    guesses = at + _LANE_BYTES * (1 + np.flatnonzero(found)) + is_start[found].argmax(axis=1)
    if len(guesses) < _LEAST_LANES:
        return None
    words = np.ndarray((len(data) - 3,), "<u4", data.data, strides=(1,))
    here, ends, steps = np.concatenate([[at], guesses[:-1]]), guesses, list[Ints]()
    while (goes_on := here < ends).any():
        steps.append(here)
        here = np.where(goes_on, here + HEADER + (words[here] & LARGEST), here)
        if (here > ends).any():
            return None
    passed = np.stack(steps, axis=1)
    return np.append(passed[passed < ends[:, None]], guesses[-1])


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
