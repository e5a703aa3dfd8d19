"""Whether a column of a table that is there can take what is published, and whether it may not: values may not fit
where it holds less than the Publisher's."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import sqlalchemy as sa
from sqlalchemy import types

from tranrepl.errors import ConfigurationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import ColumnDescription
from tranrepl.model.commands import Method, Propagation
from tranrepl.model.source_types import Family, source_type
from tranrepl.settings.publication import Article
from tranrepl.subscriber.base.catalogue import Destination
from tranrepl.subscriber.base.database import SqlDatabase
from tranrepl.subscriber.base.destination import (
    column_texts,
    created_type,
)
from tranrepl.subscriber.missing_columns import no_column
from tranrepl.subscriber.subscription import SubscriptionKey
from tranrepl.subscriber.value_conversion import ColumnType

_TEXTS = (Family.TEXT, Family.CHARACTER, Family.OTHER)


def column_problems(
    key: SubscriptionKey,
    article: Article,
    known: RegisteredArticle | None,
    database: SqlDatabase,
    found: Destination,
    column: ColumnDescription,
) -> Iterator[ConfigurationError]:
    """Yield what keeps the Subscriber's column from taking the published one, with its remedy. `known` is the article
    as it is delivered; None where nothing is."""
    at = f"article {article.source}: Subscriber {key.subscription}"
    sets_values = any(map(_sets_values, (article.ins_cmd, article.upd_cmd)))
    if column.name not in found.columns:
        texts = column_texts(database, article.destination_table, {column.name: created_type(database, column)})
        able, there = database.capabilities, list(found.columns)
        yield no_column(key.subscription, article, known, column, there, texts, comparison=able.comparison)
    elif sets_values and (refused := database.refused_column(found.columns[column.name], column)):
        yield ConfigurationError(
            f"{at}: column {column.name!r} of {article.destination_table} {refused}",
            remedy="give it another type, leave it out of the article, or let custom procedures apply the changes",
        )
    elif not found.settable(column.name):
        yield ConfigurationError(
            f"{at}: column {column.name!r} of {article.destination_table} is generated",
            remedy="a published column must be an ordinary column at the Subscriber",
        )
    elif sets_values and found.is_identity(column.name) and not database.inserts_identities:
        yield ConfigurationError(
            f"{at}: column {column.name!r} of {article.destination_table} is an identity, to which neither INSERT nor "
            "UPDATE may give the Publisher's value",
            remedy="a published column must be an ordinary column at the Subscriber; or let custom procedures "
            "apply both",
        )


def column_warnings(
    at: str, database: SqlDatabase, dialect: sa.Dialect, found: Destination, column: ColumnDescription
) -> Iterator[str]:
    """Yield a warning where a column holds less than the one that setup would create."""
    there = found.columns.get(column.name)
    if there is None:
        return
    created = described = None
    if database.holds_what_is_declared:
        created = database.described_type(created_type(database, column), dialect)
        described = database.described_type(there["type"], dialect)
    for it in narrower_warnings(column, created, described, not_null=not there["nullable"]):
        yield f"{at}: {it}"
    is_text_key = column.key_ordinal is not None and source_type(column.type_name).family in _TEXTS
    taken_for_one = database.key_warning(there["type"]) if is_text_key and not column.ignores_case else None
    if taken_for_one is not None:
        yield f"{at}: key column {column.name!r} {taken_for_one}"


def _sets_values(propagation: Propagation) -> bool:
    """Return whether an INSERT or UPDATE statement of ours sets the values."""
    return propagation.method is not Method.NONE and propagation.procedure is None


def narrower_warnings(
    column: ColumnDescription, created: ColumnType | None, found: ColumnType | None, *, not_null: bool
) -> Iterator[str]:
    """Yield which values do not fit the column that is there, and would fit the one that setup would create. Nothing is
    said of a type that is None."""
    if created is not None and found is not None and _is_narrower(column, created, found):
        yield (
            f"column {column.name!r} is {found.spelling}, {column.type_name} at the Publisher: not every value will fit"
        )
    if not_null and not column.not_null:
        yield f"column {column.name!r} is NOT NULL, and is not so at the Publisher: NULL will not fit"


def _is_narrower(column: ColumnDescription, created: ColumnType, found: ColumnType) -> bool:
    if source_type(column.type_name).family is not Family.UUID and _lacks_letters(created, found):
        return True
    if created.spelling == found.spelling:
        return False
    return found.loses is not None or not _fits(_room(created), _room(found))


def _lacks_letters(created: ColumnType, found: ColumnType) -> bool:
    charset, wanted = (getattr(it.type, "charset", None) for it in (found, created))
    if wanted is not None and charset not in (None, wanted):
        return True
    return found.storage is not None and not found.storage.all_letters and isinstance(created.type, types.String)


class _Holds(Enum):
    TEXT = auto()
    BYTES = auto()
    NUMBER = auto()
    FLOAT = auto()
    DATE = auto()
    TIME = auto()
    TIMESTAMP = auto()
    OTHER = auto()
    """Nothing is said of it."""


@dataclass(frozen=True, slots=True)
class _Room:
    """What a column's type has room for; by default, any value."""

    holds: _Holds
    length: float = math.inf
    """How many characters or bytes."""
    low: float = -math.inf
    high: float = math.inf
    scale: float = math.inf
    """Digits after the point; of seconds too."""
    digits: float = math.inf
    """Digits of a floating point number, in all."""


_OTHER = _Room(_Holds.OTHER)
_SINGLE_DIGITS, _DOUBLE_DIGITS = 6, 15
"""Decimal digits that every number of so many keeps."""
_TAKES_SOME = {
    _Holds.TEXT: {_Holds.NUMBER, _Holds.FLOAT, _Holds.DATE, _Holds.TIME, _Holds.TIMESTAMP},
    _Holds.TIMESTAMP: {_Holds.DATE, _Holds.TIME},
}
"""What takes some values of another kind only."""


def _fits(source: _Room, destination: _Room) -> bool:
    """Return whether all values of the source fit; also where that is unknown."""
    if destination.holds in _TAKES_SOME.get(source.holds, ()):
        return False
    match source.holds, destination.holds:
        case _Holds.NUMBER, _Holds.FLOAT:
            whole = len(str(int(source.high))) if math.isfinite(source.high) else math.inf
            return whole + source.scale <= destination.digits
        case _Holds.FLOAT, _Holds.NUMBER:
            return destination.high == math.inf
        case one, other if one is not other:
            return True
    return (
        source.length <= destination.length
        and destination.low <= source.low
        and source.high <= destination.high
        and source.scale <= destination.scale
        and source.digits <= destination.digits
    )


def _room(column: ColumnType) -> _Room:
    room = next((room for kind, room in _ROOMS if isinstance(column.type, kind)), None)
    return _OTHER if room is None else room(column)


_INTEGER_BYTES = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "integer": 4, "bigint": 8}
_BYTES_OF_LARGE_OBJECTS = {"tiny": 255, "": 65_535, "medium": 16_777_215}
_LARGE_OBJECT = re.compile(r"(tiny||medium)(text|blob)\b")


def _integer(column: ColumnType) -> _Room:
    size = _INTEGER_BYTES.get(re.split(r"\W", column.spelling)[0])
    if size is None:
        return _OTHER
    values = 2 ** (8 * size)
    low = -(values // 2) if column.signed and "unsigned" not in column.spelling else 0
    return _Room(_Holds.NUMBER, low=low, high=low + values - 1, scale=0)


def _decimal(column: ColumnType) -> _Room:
    kind: Any = column.type
    if kind.precision is None:
        return _Room(_Holds.NUMBER)
    scale = kind.scale or 0
    largest = 10.0 ** (kind.precision - scale)
    return _Room(_Holds.NUMBER, low=-largest, high=largest, scale=max(scale, 0))


def _length(column: ColumnType) -> float:
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
_ROOMS: tuple[tuple[type[types.TypeEngine[Any]], Callable[[ColumnType], _Room]], ...] = (
    (types.Boolean, lambda _: _Room(_Holds.NUMBER, low=0, high=1, scale=0)),
    (types.Integer, _integer),
    (types.Float, lambda it: _Room(_Holds.FLOAT, digits=_SINGLE_DIGITS if it.single_precision else _DOUBLE_DIGITS)),
    (types.Numeric, _decimal),
    (types.LargeBinary, lambda it: _Room(_Holds.BYTES, length=_length(it))),
    (types._Binary, lambda it: _Room(_Holds.BYTES, length=_length(it))),
    (types.Enum, lambda _: _OTHER),
    (types.String, lambda it: _Room(_Holds.TEXT, length=_length(it))),
    (types.DateTime, lambda it: _Room(_Holds.TIMESTAMP, scale=_seconds(it))),
    (types.Date, lambda _: _Room(_Holds.DATE)),
    (types.Time, lambda it: _Room(_Holds.TIME, scale=_seconds(it))),
)
