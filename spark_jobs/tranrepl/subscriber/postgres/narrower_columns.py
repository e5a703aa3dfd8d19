"""Columns of a PostgreSQL Subscriber's tables that hold less than the Publisher's."""

from __future__ import annotations

import math
import re

from tranrepl.model.catalogue import ColumnDescription
from tranrepl.model.source_types import Family, SourceType, source_type
from tranrepl.subscriber.narrower_columns import (
    DOUBLE_DIGITS,
    FRACTION_DIGITS,
    OTHER,
    SINGLE_DIGITS,
    Holds,
    Room,
    decimal_room,
    integer_room,
    lost,
)


def lost_values(source: ColumnDescription, destination: ColumnDescription) -> str | None:
    """Return what the destination has no room for; None where it has room for all."""
    if source.type_name == destination.type_name:
        return None
    return lost(_room_of(source), _room_of(destination))


_INTEGERS = {Family.SMALLINT: 2, Family.INTEGER: 4, Family.BIGINT: 8}
_MOMENTS = {
    Family.TIME: Holds.TIME,
    Family.TIMESTAMP: Holds.TIMESTAMP,
    Family.TIMESTAMP_WITH_ZONE: Holds.TIMESTAMP,
}
_DECLARED = re.compile(r"\((\d+)")


def _room_of(column: ColumnDescription) -> Room:
    declared = source_type(column.type_name)
    if declared.family is not Family.OTHER:
        return _room(declared)
    # A domain; its base comes without the length that it may have.
    base = source_type(column.base_type_name)
    bounded = base.family in _INTEGERS or base.family in (Family.REAL, Family.DOUBLE, Family.DATE)
    return _room(base) if bounded else OTHER


def _room(declared: SourceType) -> Room:
    number = _DECLARED.search(declared.spelling)
    match declared.family:
        case Family.BOOLEAN:
            return Room(Holds.NUMBER, low=0, high=1, scale=0)
        case Family.SMALLINT | Family.INTEGER | Family.BIGINT:
            return integer_room(_INTEGERS[declared.family])
        case Family.NUMERIC:
            return decimal_room(declared.precision, declared.scale)
        case Family.REAL | Family.DOUBLE:
            return Room(Holds.FLOAT, digits=SINGLE_DIGITS if declared.family is Family.REAL else DOUBLE_DIGITS)
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
            return Room(_MOMENTS[declared.family], scale=int(number[1]) if number else FRACTION_DIGITS)
        case _:
            return OTHER
