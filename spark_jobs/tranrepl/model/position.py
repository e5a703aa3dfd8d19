"""Positions in a Publisher's log: bytes of a fixed width that sort in commit order.

What lies between two positions only their Publisher knows (`Positions`). Here they are compared,
stored and shown as bytes, and no number is made of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Protocol

from pydantic import PlainSerializer, PlainValidator

POSITION_BYTES = 8
SEQNOS_PER_PLACE = 8
"""So many values of `xact_seqno` in a row mean one place: a transaction's own is a multiple of it, and the others are
watermarks that say the same and are not alike (`equivalent_watermark`). A Publisher whose log has no such room makes
it."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place between two transactions of a Publisher's log. Raises ValueError for bytes of another width."""

    value: bytes

    def __post_init__(self) -> None:
        if len(self.value) != POSITION_BYTES:
            raise ValueError(f"a position has {POSITION_BYTES} bytes, not {len(self.value)}")

    def __str__(self) -> str:
        return f"0x{self.value.hex()}"


FIRST_POSITION = Position(bytes(POSITION_BYTES))
"""The position before every transaction."""


def _validated(value: object) -> Position:
    return value if isinstance(value, Position) else _parsed(str(value))


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Position:
    return Position(bytes.fromhex(text))


StoredPosition = Annotated[
    Position, PlainValidator(_validated), PlainSerializer(lambda it: it.value.hex(), return_type=str, when_used="json")
]
"""A position in a model that is written as JSON: hexadecimal there."""


def seqnos_of_one_place(xact_seqno: bytes) -> tuple[bytes, bytes]:
    """Return the first and the last `xact_seqno` that mean the same place in the log."""
    number = int.from_bytes(xact_seqno, "big")
    first = number - number % SEQNOS_PER_PLACE
    return _seqno(first), _seqno(first + SEQNOS_PER_PLACE - 1)


def equivalent_watermark(watermark: bytes) -> bytes:
    """Return another watermark that says the same."""
    first, last = seqnos_of_one_place(watermark)
    return first if watermark == last else seqno_after(watermark)


def seqno_after(xact_seqno: bytes) -> bytes:
    """Return the value that sorts next after it: what is less than that is at it or before."""
    return _seqno(int.from_bytes(xact_seqno, "big") + 1)


def seqno_before(xact_seqno: bytes) -> bytes:
    """Return the value that sorts next before it: a Subscriber there has every transaction before this one."""
    return _seqno(int.from_bytes(xact_seqno, "big") - 1)


def _seqno(number: int) -> bytes:
    return number.to_bytes(POSITION_BYTES, "big")


class Positions(Protocol):
    """A transaction's `xact_seqno` is the position of its commit, a multiple of `model.position.SEQNOS_PER_PLACE`."""

    def text(self, position: Position) -> str:
        """Return the position as the Publisher's own tools write it."""
        ...

    def parse(self, text: str) -> Position:
        """Return the position that the text stands for. Raises ValueError, which says what is allowed."""
        ...

    def watermark(self, position: Position) -> bytes:
        """Return the `xact_seqno` of one that has all that the log holds before the position, and nothing after it."""
        ...

    def share(self, start: Position, end: Position, at: bytes) -> float:
        """Return how much of the log between two positions lies before an `xact_seqno`, from 0 to 1."""
        ...
