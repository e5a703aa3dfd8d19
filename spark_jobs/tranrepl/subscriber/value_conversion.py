"""PostgreSQL's text forms as values of another database: exactly, or not at all."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from enum import Enum, auto
from typing import Any

import numpy as np
from sqlalchemy import types
from sqlalchemy.types import TypeEngine

from tranrepl.model.source_types import Family, SourceType

Value = str | int | float | bytes | Decimal | date | time | datetime
Convert = Callable[[str], Value]

_TIMESTAMP = re.compile(r"(\d+-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d+)?)([+-]\d\d(?::\d\d){0,2})?")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?(e[+-]?[0-9]+)?")
"""How databases write numbers: other labels of an enum type, say, would be read back otherwise."""
_DOUBLE_DIGITS = 15
"""Significant digits that any decimal keeps in an 8-byte float."""
UUID_FORM = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
"""A text of its own, which comes back in small letters; servers take other forms too, and change them."""
_TEXTS = (Family.TEXT, Family.CHARACTER)

_STRING, _FLOAT = types.String(), types.Float()


class UnfitValueError(ValueError):
    """A value that the target column cannot hold as it is."""


class Temporal(Enum):
    """How dates and times are bound."""

    OBJECTS = auto()
    TEXT = auto()
    """ISO 8601: for a driver that knows milliseconds only."""


class Decimals(Enum):
    """What a NUMERIC column keeps."""

    EXACT = auto()
    BINARY = auto()
    """An 8-byte float: decimals of up to 15 digits."""


@dataclass(frozen=True, slots=True)
class Binding:
    """How the driver of a database takes values. `text`, `moment` (of Temporal.TEXT) and `floating` are the types that
    such values are bound as."""

    temporal: Temporal = Temporal.OBJECTS
    decimals: Decimals = Decimals.EXACT
    text: TypeEngine[Any] = _STRING
    moment: TypeEngine[Any] = _STRING
    floating: TypeEngine[Any] = _FLOAT


@dataclass(frozen=True, slots=True)
class TextStorage:
    """How a column stores text, where its declared length does not count characters: in `unit` bytes of `encoding`, a
    codec's name."""

    encoding: str
    unit: int = 1
    longest: int = 1
    """How many units a character of the basic plane takes at most."""

    @property
    def all_letters(self) -> bool:
        return self.encoding.startswith("utf")


@dataclass(frozen=True, slots=True)
class Moments:
    """The moments that a column of dates and times holds, where digits of a second do not say it."""

    first: datetime
    last: datetime
    holds: Callable[[datetime], bool]
    """Whether it is one of the column's steps."""
    timespec: str
    """How a moment is written: what `datetime.isoformat` takes."""


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A destination column: its type as SQLAlchemy reads it, and what that type leaves out."""

    type: TypeEngine[Any]
    spelling: str
    """The type as messages name it: `decimal(10,2)`."""
    fraction_digits: int | None = None
    """Digits of a second's fraction; None where any number is kept."""
    with_zone: bool = False
    """Whether a timestamp has a zone, where SQLAlchemy does not say so."""
    single_precision: bool = False
    signed: bool = True
    """Whether an integer may be negative, where the spelling does not say it."""
    fixed_length: bool = False
    """CHAR and BINARY: values are padded, or lose their padding."""
    storage: TextStorage | None = None
    """None where the length counts characters, and every letter has a place."""
    moments: Moments | None = None
    form: re.Pattern[str] | None = None
    """The only texts that it keeps as they are; None: all."""
    loses: str | None = None
    """What it keeps of no value, in words."""


PLAIN_TYPES: Mapping[Family, TypeEngine[Any]] = {
    Family.BOOLEAN: types.Boolean(),
    Family.SMALLINT: types.SmallInteger(),
    Family.INTEGER: types.Integer(),
    Family.BIGINT: types.BigInteger(),
    Family.REAL: types.Double(),
    Family.DOUBLE: types.Double(),
    Family.DATE: types.Date(),
    Family.TIME: types.Time(),
    Family.TIMESTAMP: types.DateTime(),
    Family.TIMESTAMP_WITH_ZONE: types.DateTime(),
}
"""The types of every database for values that have a type of their own."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """`bind` is the type that the value is bound as."""

    bind: TypeEngine[Any]
    convert: Convert


def conversion(source: SourceType, target: ColumnType, binding: Binding) -> Conversion:
    """Return how values of `source`, in text form, become values for `target`.

    The function raises UnfitValueError for a value that the column would not hold as it is.
    """
    kind = target.type
    if isinstance(kind, types.LargeBinary | types._Binary):
        return Conversion(types.LargeBinary(), lambda text: _bytes(text, source, target))
    if isinstance(kind, types.Boolean):
        return Conversion(types.BigInteger(), lambda text: _bit(text, source, target))
    if isinstance(kind, types.Integer):
        return Conversion(types.BigInteger(), lambda text: _integer(text, source, target))
    if isinstance(kind, types.Float):
        return Conversion(binding.floating, lambda text: _float(text, source, target))
    if isinstance(kind, types.Numeric):
        return _decimal_conversion(source, target, binding)
    if isinstance(kind, types.DateTime):
        moments = types.DateTime(timezone=kind.timezone)
        return _temporal(binding, moments, lambda text: _datetime(text, source, target), _timespec(target))
    if isinstance(kind, types.Date):
        return _temporal(binding, types.Date(), lambda text: _date(text, source, target))
    if isinstance(kind, types.Time):
        return _temporal(binding, types.Time(), lambda text: _time(text, source, target))
    return Conversion(binding.text, lambda text: _text(text, source, target))


def _unfit(text: str, target: ColumnType) -> UnfitValueError:
    shown = text if len(text) <= 60 else f"{text[:60]}…"
    return UnfitValueError(f"{shown!r} does not fit {target.spelling}")


def _require_kept(text: str, read: str, source: SourceType, target: ColumnType) -> None:
    """Raise UnfitValueError for a text that is read back otherwise from a column of numbers, dates or times, but for
    zeros that the type adds to a fraction."""
    if source.family not in _TEXTS:
        return
    written = text.rstrip(" ") if source.family is Family.CHARACTER else text
    if not read.startswith(written) or read.removeprefix(written).strip(".0") or not written[-1:].isdigit():
        raise UnfitValueError(f"{_unfit(text, target)}: it would be read back as {read!r}")


def _bytes(text: str, source: SourceType, target: ColumnType) -> bytes:
    if source.family is Family.BYTES:
        value = bytes.fromhex(text.removeprefix("\\x"))
    elif source.family in (Family.TEXT, Family.CHARACTER):
        value = text.encode()
    else:
        raise UnfitValueError(f"a value of type {source.spelling} does not fit into {target.spelling}")
    length = getattr(target.type, "length", None)
    if isinstance(length, int) and (len(value) > length or (target.fixed_length and len(value) < length)):
        raise _unfit(text, target)
    return value


def _integer(text: str, source: SourceType, target: ColumnType) -> int:
    if source.family in (Family.BOOLEAN, Family.OTHER) and text in ("t", "f"):
        return int(text == "t")
    number = _number(text, source, target)
    if number != number.to_integral_value() or not -(2**63) <= number < 2**64:
        raise _unfit(text, target)
    _require_kept(text, str(int(number)), source, target)
    return int(number)


def _bit(text: str, source: SourceType, target: ColumnType) -> int:
    value = _integer(text, source, target)
    if value not in (0, 1):
        raise _unfit(text, target)
    return value


def _number(text: str, source: SourceType, target: ColumnType) -> Decimal:
    """Parse a finite number."""
    if source.family is Family.BITS:
        raise UnfitValueError(f"a value of type {source.spelling} does not fit into {target.spelling}")
    if source.family is Family.MONEY:
        text = text.replace("$", "").replace(",", "")
    if source.family is Family.OTHER and _NUMBER.fullmatch(text) is None:
        raise _unfit(text, target)
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise _unfit(text, target) from None
    if not number.is_finite():
        raise _unfit(text, target)
    return number


def _float(text: str, source: SourceType, target: ColumnType) -> float:
    number = _number(text, source, target)
    scale = getattr(target.type, "scale", None)
    if scale is not None and _fraction_digits(number) > scale:
        raise _unfit(text, target)
    if source.family is Family.REAL and target.single_precision:
        # The text names a 4-byte float by the fewest digits; the 8-byte one of these digits may be out of range.
        return float(np.float32(text))
    value = float(number)
    inexact = source.family not in (Family.REAL, Family.DOUBLE) and _significant(number) > _DOUBLE_DIGITS
    if not math.isfinite(value) or inexact or (target.single_precision and float(np.float32(value)) != value):
        raise _unfit(text, target)
    value = -0.0 if text == "-0" else value
    _require_kept(text, repr(value) if "." in text else repr(value).removesuffix(".0"), source, target)
    return value


def _significant(number: Decimal) -> int:
    return len(number.normalize().as_tuple().digits)


def _decimal_conversion(source: SourceType, target: ColumnType, binding: Binding) -> Conversion:
    if binding.decimals is Decimals.EXACT:
        return Conversion(target.type, lambda text: _decimal(text, source, target))
    return Conversion(types.Float(), lambda text: _binary_decimal(text, source, target))


def _decimal(text: str, source: SourceType, target: ColumnType) -> Decimal:
    number = _number(text, source, target)
    precision, scale = getattr(target.type, "precision", None), getattr(target.type, "scale", None)
    if precision is None:
        _require_kept(text, f"{number.normalize():f}", source, target)
        return number
    scale = scale or 0
    _, digits, exponent = number.as_tuple()
    written = len(digits) + int(exponent)
    if number and (_fraction_digits(number) > scale or written > precision - scale):
        raise _unfit(text, target)
    _require_kept(text, f"{number or abs(number):.{scale}f}", source, target)
    return number


def _fraction_digits(number: Decimal) -> int:
    """Return how many digits after the point are no zeros at its end; below zero where digits before it are."""
    _, digits, exponent = number.as_tuple()
    text = "".join(map(str, digits))
    return -int(exponent) - (len(text) - len(text.rstrip("0"))) if number else 0


def _binary_decimal(text: str, source: SourceType, target: ColumnType) -> float | int:
    number = _decimal(text, source, target)
    if _significant(number) > _DOUBLE_DIGITS or abs(number.adjusted()) > 300:
        raise _unfit(text, target)
    return float(number)


def _temporal(
    binding: Binding, bind: TypeEngine[Any], parse: Callable[[str], date | time | datetime], timespec: str = "auto"
) -> Conversion:
    if binding.temporal is Temporal.OBJECTS:
        return Conversion(bind, parse)
    return Conversion(binding.moment, lambda text: _isoformat(parse(text), timespec))


def _timespec(target: ColumnType) -> str:
    return "auto" if target.moments is None else target.moments.timespec


def _isoformat(value: date | time | datetime, timespec: str) -> str:
    return value.isoformat(timespec=timespec) if isinstance(value, datetime) else value.isoformat()


def _datetime(text: str, source: SourceType, target: ColumnType) -> datetime:
    """Parse a time in UTC; without a zone where the column has none."""
    value = _moment(text, target)
    _require_kept(text, value.isoformat(" ", "microseconds"), source, target)
    return value


def _moment(text: str, target: ColumnType) -> datetime:
    match = _TIMESTAMP.fullmatch(text if " " in text else f"{text} 00:00:00")
    if match is None:
        raise _unfit(text, target)
    try:
        value = datetime.fromisoformat(f"{match[1]} {match[2]}{match[3] or ''}")
    except ValueError:
        raise _unfit(text, target) from None
    if value.tzinfo is not None:
        value = value.astimezone(UTC)
    _check_moment(value, text, target)
    zoned = target.with_zone or getattr(target.type, "timezone", False)
    return value if zoned else value.replace(tzinfo=None)


def _check_moment(value: datetime, text: str, target: ColumnType) -> None:
    held = target.moments
    if held is None:
        _check_fraction(value.microsecond, text, target)
    elif not (held.first <= value.replace(tzinfo=None) <= held.last and held.holds(value)):
        raise _unfit(text, target)


def _check_fraction(microsecond: int, text: str, target: ColumnType) -> None:
    if target.fraction_digits is not None and microsecond % 10 ** max(6 - target.fraction_digits, 0):
        raise _unfit(text, target)


def _date(text: str, source: SourceType, target: ColumnType) -> date:
    value = _moment(text, target)
    if (value.hour, value.minute, value.second, value.microsecond) != (0, 0, 0, 0):
        raise _unfit(text, target)
    _require_kept(text, value.date().isoformat(), source, target)
    return value.date()


def _time(text: str, source: SourceType, target: ColumnType) -> time:
    try:
        value = time.fromisoformat(text)
    except ValueError:
        raise _unfit(text, target) from None
    if value.tzinfo is not None or text.startswith("24"):
        raise _unfit(text, target)
    _check_fraction(value.microsecond, text, target)
    _require_kept(text, value.isoformat("microseconds"), source, target)
    return value


def _text(text: str, source: SourceType, target: ColumnType) -> str:
    if target.fixed_length:
        if source.family is Family.CHARACTER:
            text = text.rstrip(" ")
        elif text.endswith(" "):
            raise _unfit(text, target)
    if target.form is not None:
        fits = target.form.fullmatch(text) is not None
    else:
        length = target.type.length if isinstance(target.type, types.String) else None
        stored = _stored_length(text, target)
        fits = length is None or stored <= length
    if not fits:
        raise _unfit(text, target)
    return text


def _stored_length(text: str, target: ColumnType) -> int:
    """Return what the declared length counts. Raises UnfitValueError for letters that the column has no place for."""
    if target.storage is None:
        return len(text)
    try:
        return len(text.encode(target.storage.encoding)) // target.storage.unit
    except UnicodeEncodeError:
        raise _unfit(text, target) from None
