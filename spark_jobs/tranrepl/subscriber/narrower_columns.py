"""Columns of a Subscriber's table that hold less than the Publisher's: values may still fit, or not."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from tranrepl.model.catalogue import ColumnDescription


class Holds(Enum):
    TEXT = auto()
    BYTES = auto()
    BITS = auto()
    NUMBER = auto()
    FLOAT = auto()
    DATE = auto()
    TIME = auto()
    TIMESTAMP = auto()
    OTHER = auto()
    """Nothing is said of it."""


@dataclass(frozen=True, slots=True)
class Room:
    """What a column's type has room for; by default, any value."""

    holds: Holds
    length: float = math.inf
    """How many characters, bytes or bits."""
    low: float = -math.inf
    high: float = math.inf
    scale: float = math.inf
    """Digits after the point; of seconds too."""
    digits: float = math.inf
    """Digits of a floating point number, in all."""
    exact: bool = False
    """`length` is that of every value."""


OTHER = Room(Holds.OTHER)
FRACTION_DIGITS = 6
SINGLE_DIGITS, DOUBLE_DIGITS = 6, 15
"""Decimal digits that every number of so many keeps."""


def warning(column: ColumnDescription, found: str, what: str) -> str:
    """Describe a narrower column, as in "column 'name' is varchar(10), varchar(50) at the Publisher: longer texts will
    not fit"."""
    return f"column {column.name!r} is {found}, {column.type_name} at the Publisher: {what} will not fit"


def null_warning(column: ColumnDescription) -> str:
    return f"column {column.name!r} is NOT NULL, and is not so at the Publisher: NULL will not fit"


def lost(source: Room, destination: Room) -> str | None:
    """Say what the source holds and the destination does not; None where that is nothing, or unknown."""
    compare = _COMPARED.get((source.holds, destination.holds))
    return None if compare is None else compare(source, destination)


def _texts(source: Room, destination: Room) -> str | None:
    return "longer texts" if source.length > destination.length else None


def _values(source: Room, destination: Room) -> str | None:
    return "longer values" if source.length > destination.length else None


def _bits(source: Room, destination: Room) -> str | None:
    same = source.exact and source.length == destination.length
    fits = same if destination.exact else source.length <= destination.length
    return None if fits else "bit strings of another length"


def _numbers(source: Room, destination: Room) -> str | None:
    if source.low < destination.low or source.high > destination.high:
        return "larger numbers"
    return "fractions" if source.scale > destination.scale else None


def _floating_numbers(source: Room, destination: Room) -> str | None:
    del source
    return None if destination.high == math.inf else "larger numbers or fractions"


def _digits(source: Room, destination: Room) -> str | None:
    whole = len(str(int(source.high))) if math.isfinite(source.high) else math.inf
    digits = source.digits if source.holds is Holds.FLOAT else whole + source.scale
    return "all digits" if digits > destination.digits else None


def _fractions(source: Room, destination: Room) -> str | None:
    return "fractions of a second" if source.scale > destination.scale else None


def _always(what: str) -> Callable[[Room, Room], str]:
    return lambda *_: what


_COMPARED: Mapping[tuple[Holds, Holds], Callable[[Room, Room], str | None]] = {
    (Holds.TEXT, Holds.TEXT): _texts,
    (Holds.BYTES, Holds.BYTES): _values,
    (Holds.BITS, Holds.BITS): _bits,
    (Holds.NUMBER, Holds.NUMBER): _numbers,
    (Holds.FLOAT, Holds.NUMBER): _floating_numbers,
    (Holds.NUMBER, Holds.FLOAT): _digits,
    (Holds.FLOAT, Holds.FLOAT): _digits,
    (Holds.TIME, Holds.TIME): _fractions,
    (Holds.TIMESTAMP, Holds.TIMESTAMP): _fractions,
    (Holds.TIMESTAMP, Holds.DATE): _always("times of day"),
    (Holds.TIMESTAMP, Holds.TIME): _always("days"),
    **{(Holds.TEXT, it): _always("texts that are no numbers") for it in (Holds.NUMBER, Holds.FLOAT)},
    **{
        (Holds.TEXT, it): _always("texts that are no dates or times")
        for it in (Holds.DATE, Holds.TIME, Holds.TIMESTAMP)
    },
}


def integer_room(size: int, *, signed: bool = True) -> Room:
    """Return the room of an integer of so many bytes."""
    values = 2 ** (8 * size)
    low = -(values // 2) if signed else 0
    return Room(Holds.NUMBER, low=low, high=low + values - 1, scale=0)


def decimal_room(precision: int | None, scale: int | None) -> Room:
    """Return the room of a decimal number; without a precision it has no bounds."""
    if precision is None:
        return Room(Holds.NUMBER)
    largest = 10.0 ** (precision - (scale or 0))
    return Room(Holds.NUMBER, low=-largest, high=largest, scale=max(scale or 0, 0))
