"""Positions in a binary log: a file's number and an offset in it."""

from __future__ import annotations

import re

from tranrepl.model.position import POSITION_BYTES, SEQNOS_PER_PLACE, Position
from tranrepl.publisher.mysql.events import OFFSET_BITS

FIRST_EVENT = 4
"""Where the first event of a file begins."""
_OFFSET = (1 << OFFSET_BITS) - 1


NO_END = Position(((1 << 63) - 1).to_bytes(POSITION_BYTES, "big"))
"""After each place there is."""


def position_of(place: int) -> Position:
    """Return a place in the log as neutral code has it."""
    return Position((place * SEQNOS_PER_PLACE).to_bytes(POSITION_BYTES, "big"))


def place_of(position: Position) -> int:
    return int.from_bytes(position.value, "big") // SEQNOS_PER_PLACE


def place_at(file: int, offset: int) -> int:
    return file << OFFSET_BITS | offset


def file_of(place: int) -> int:
    return place >> OFFSET_BITS


def offset_of(place: int) -> int:
    return place & _OFFSET


def file_number(name: str) -> int:
    """Return the number at the end of a file's name."""
    return int(name.rpartition(".")[2])


class BinlogPositions:
    """A group's `xact_seqno` is the place at which it begins; a position is one before which all is meant."""

    def text(self, position: Position) -> str:
        place = place_of(position)
        return f"{file_of(place):06}:{offset_of(place)}"

    def parse(self, text: str) -> Position:
        found = re.fullmatch(r"(?:[^:]*\.)?(\d{1,7}):(\d{1,11})", text)
        if found is None or int(found[2]) > _OFFSET:
            raise ValueError("allowed: a binary log file's number and an offset, as in 000002:395")
        return position_of(place_at(int(found[1]), int(found[2])))

    def watermark(self, position: Position) -> bytes:
        return (max(int.from_bytes(position.value, "big"), 1) - 1).to_bytes(POSITION_BYTES, "big")

    def share(self, start: Position, end: Position, at: bytes) -> float:
        first, last = (int.from_bytes(it.value, "big") for it in (start, end))
        return min(1.0, max(0.0, (int.from_bytes(at, "big") - first) / max(1, last - first)))
