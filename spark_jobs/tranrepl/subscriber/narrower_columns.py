"""Columns of a Subscriber's table that hold less than the Publisher's: values may still fit, or not."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from sqlalchemy import types

from tranrepl.model.catalogue import ColumnDescription
from tranrepl.model.source_types import Family, SourceType, source_type
from tranrepl.subscriber.value_conversion import ColumnType


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
    """What a column's type has room for; as much as there is unless told."""

    holds: Holds
    length: float = math.inf
    """Of characters, bytes or bits."""
    low: float = -math.inf
    high: float = math.inf
    scale: float = math.inf
    """Digits after the point; of seconds too."""
    digits: float = math.inf
    """Of a floating point number, in all."""
    exact: bool = False
    """`length` is that of every value."""


_OTHER = Room(Holds.OTHER)
_FRACTION = 6
_SINGLE, _DOUBLE = 6, 15
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


# PostgreSQL


def postgres_lost(source: ColumnDescription, destination: ColumnDescription) -> str | None:
    """Say what is lost between two columns of PostgreSQL."""
    if source.type_name == destination.type_name:
        return None
    return lost(_postgres_room(source), _postgres_room(destination))


_INTEGERS = {Family.SMALLINT: 2, Family.INTEGER: 4, Family.BIGINT: 8}
_MOMENTS = {
    Family.TIME: Holds.TIME,
    Family.TIMESTAMP: Holds.TIMESTAMP,
    Family.TIMESTAMP_WITH_ZONE: Holds.TIMESTAMP,
}
_DECLARED = re.compile(r"\((\d+)")


def _postgres_room(column: ColumnDescription) -> Room:
    declared = source_type(column.type_name)
    if declared.family is not Family.OTHER:
        return _room(declared)
    # A domain; its base comes without the length that it may have.
    base = source_type(column.base_type_name)
    bounded = base.family in _INTEGERS or base.family in (Family.REAL, Family.DOUBLE, Family.DATE)
    return _room(base) if bounded else _OTHER


def _room(declared: SourceType) -> Room:
    number = _DECLARED.search(declared.spelling)
    match declared.family:
        case Family.BOOLEAN:
            return Room(Holds.NUMBER, low=0, high=1, scale=0)
        case Family.SMALLINT | Family.INTEGER | Family.BIGINT:
            return _integer(_INTEGERS[declared.family])
        case Family.NUMERIC:
            return _decimal(declared.precision, declared.scale)
        case Family.REAL | Family.DOUBLE:
            return Room(Holds.FLOAT, digits=_SINGLE if declared.family is Family.REAL else _DOUBLE)
        case Family.TEXT | Family.CHARACTER:
            return Room(Holds.TEXT, length=declared.length or math.inf)
        case Family.BYTES:
            return Room(Holds.BYTES)
        case Family.BITS:
            exact = not declared.spelling.startswith("bit varying")
            return Room(Holds.BITS, length=int(number[1]) if number else 1 if exact else math.inf, exact=exact)
        case Family.DATE:
            return Room(Holds.DATE)
        case Family.TIME | Family.TIMESTAMP | Family.TIMESTAMP_WITH_ZONE:
            return Room(_MOMENTS[declared.family], scale=int(number[1]) if number else _FRACTION)
        case _:
            return _OTHER


def _integer(size: int, *, signed: bool = True) -> Room:
    values = 2 ** (8 * size)
    low = -(values // 2) if signed else 0
    return Room(Holds.NUMBER, low=low, high=low + values - 1, scale=0)


def _decimal(precision: int | None, scale: int | None) -> Room:
    if precision is None:
        return Room(Holds.NUMBER)
    largest = 10.0 ** (precision - (scale or 0))
    return Room(Holds.NUMBER, low=-largest, high=largest, scale=max(scale or 0, 0))


# Databases that SQLAlchemy reaches


def sql_lost(source: ColumnDescription, created: ColumnType, found: ColumnType) -> str | None:
    """Say what is lost between the column that setup would create there, and the one that is there."""
    if source_type(source.type_name).family is not Family.UUID:
        charset, wanted = (getattr(it.type, "charset", None) for it in (found, created))
        if wanted is not None and charset not in (None, wanted):
            return f"letters beyond {charset}"
        if found.only_ascii and not created.only_ascii:
            return "letters beyond ASCII"
    if created.spelling == found.spelling:
        return None
    return lost(_sql_room(created), _sql_room(found))


_INTEGER_BYTES = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "integer": 4, "bigint": 8}
_BYTES_OF_LARGE_OBJECTS = {"tiny": 255, "": 65_535, "medium": 16_777_215}
_LARGE_OBJECT = re.compile(r"(tiny||medium)(text|blob)\b")


def _sql_room(column: ColumnType) -> Room:
    room = next((room for kind, room in _SQL_ROOMS if isinstance(column.type, kind)), None)
    return _OTHER if room is None else room(column)


def _sql_integer(column: ColumnType) -> Room:
    size = _INTEGER_BYTES.get(re.split(r"\W", column.spelling)[0])
    return _OTHER if size is None else _integer(size, signed="unsigned" not in column.spelling)


def _sql_decimal(column: ColumnType) -> Room:
    kind: Any = column.type
    return _decimal(kind.precision, kind.scale)


def _longest(column: ColumnType) -> float:
    large = _LARGE_OBJECT.match(column.spelling)
    if large is not None:
        return _BYTES_OF_LARGE_OBJECTS[large[1]]
    length = getattr(column.type, "length", None)
    return length if isinstance(length, int) else math.inf


def _seconds(column: ColumnType) -> float:
    return math.inf if column.fraction_digits is None else column.fraction_digits


# The first that fits: some are kinds of those after them.
_SQL_ROOMS: tuple[tuple[type[types.TypeEngine[Any]], Callable[[ColumnType], Room]], ...] = (
    (types.Boolean, lambda _: Room(Holds.NUMBER, low=0, high=1, scale=0)),
    (types.Integer, _sql_integer),
    (types.Float, lambda it: Room(Holds.FLOAT, digits=_SINGLE if it.single_precision else _DOUBLE)),
    (types.Numeric, _sql_decimal),
    (types.LargeBinary, lambda it: Room(Holds.BYTES, length=_longest(it))),
    (types._Binary, lambda it: Room(Holds.BYTES, length=_longest(it))),
    (types.Enum, lambda _: _OTHER),
    (types.String, lambda it: Room(Holds.TEXT, length=_longest(it))),
    (types.DateTime, lambda it: Room(Holds.TIMESTAMP, scale=_seconds(it))),
    (types.Date, lambda _: Room(Holds.DATE)),
    (types.Time, lambda it: Room(Holds.TIME, scale=_seconds(it))),
)
