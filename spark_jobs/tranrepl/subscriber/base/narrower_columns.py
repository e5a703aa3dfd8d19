"""Columns of tables that hold less than the Publisher's, where SQLAlchemy reaches the database."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from sqlalchemy import types

from tranrepl.model.catalogue import ColumnDescription
from tranrepl.model.source_types import Family, source_type
from tranrepl.subscriber.narrower_columns import (
    DOUBLE_DIGITS,
    OTHER,
    SINGLE_DIGITS,
    Holds,
    Room,
    decimal_room,
    integer_room,
    lost,
)
from tranrepl.subscriber.value_conversion import ColumnType


def lost_values(source: ColumnDescription, created: ColumnType, found: ColumnType) -> str | None:
    """Return what the column that is there has no room for, and the one that setup would create has; None where it has
    room for all."""
    if source_type(source.type_name).family is not Family.UUID:
        charset, wanted = (getattr(it.type, "charset", None) for it in (found, created))
        if wanted is not None and charset not in (None, wanted):
            return f"letters beyond {charset}"
        storage = found.storage
        if storage is not None and not storage.all_letters and isinstance(created.type, types.String):
            return f"letters beyond {storage.encoding}"
    if created.spelling == found.spelling:
        return None
    return lost(_room(created), _room(found)) or found.loses


_INTEGER_BYTES = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "integer": 4, "bigint": 8}
_BYTES_OF_LARGE_OBJECTS = {"tiny": 255, "": 65_535, "medium": 16_777_215}
_LARGE_OBJECT = re.compile(r"(tiny||medium)(text|blob)\b")


def _room(column: ColumnType) -> Room:
    room = next((room for kind, room in _ROOMS if isinstance(column.type, kind)), None)
    return OTHER if room is None else room(column)


def _integer(column: ColumnType) -> Room:
    size = _INTEGER_BYTES.get(re.split(r"\W", column.spelling)[0])
    return OTHER if size is None else integer_room(size, signed=column.signed and "unsigned" not in column.spelling)


def _decimal(column: ColumnType) -> Room:
    kind: Any = column.type
    return decimal_room(kind.precision, kind.scale)


def _longest(column: ColumnType) -> float:
    large = _LARGE_OBJECT.match(column.spelling)
    if large is not None:
        return _BYTES_OF_LARGE_OBJECTS[large[1]]
    length = getattr(column.type, "length", None)
    if not isinstance(length, int):
        return math.inf
    return length if column.storage is None else length // column.storage.longest


def _seconds(column: ColumnType) -> float:
    return math.inf if column.fraction_digits is None else column.fraction_digits


# The first that fits: some are kinds of those after them.
_ROOMS: tuple[tuple[type[types.TypeEngine[Any]], Callable[[ColumnType], Room]], ...] = (
    (types.Boolean, lambda _: Room(Holds.NUMBER, low=0, high=1, scale=0)),
    (types.Integer, _integer),
    (types.Float, lambda it: Room(Holds.FLOAT, digits=SINGLE_DIGITS if it.single_precision else DOUBLE_DIGITS)),
    (types.Numeric, _decimal),
    (types.LargeBinary, lambda it: Room(Holds.BYTES, length=_longest(it))),
    (types._Binary, lambda it: Room(Holds.BYTES, length=_longest(it))),
    (types.Enum, lambda _: OTHER),
    (types.String, lambda it: Room(Holds.TEXT, length=_longest(it))),
    (types.DateTime, lambda it: Room(Holds.TIMESTAMP, scale=_seconds(it))),
    (types.Date, lambda _: Room(Holds.DATE)),
    (types.Time, lambda it: Room(Holds.TIME, scale=_seconds(it))),
)
