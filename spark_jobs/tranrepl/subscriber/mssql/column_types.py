"""SQL Server's column types as values are fitted to them: what each holds, and what it would change in silence; and
values as T-SQL constants, which is how pymssql sends them.

Sources: "Backslash (Line Continuation)": within a constant, a backslash before a line feed, or before a carriage return
with one, is dropped together with it. "Constants": a number without an exponent is a decimal.
"""

from __future__ import annotations

import codecs
import re
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import types
from sqlalchemy.dialects import mssql
from sqlalchemy.types import TypeEngine

from tranrepl.subscriber.base.database import spelled
from tranrepl.subscriber.value_conversion import UUID_FORM, ColumnType, Moments, TextStorage

_UTF_8_PAGE = 65001
_MULTIBYTE_PAGES = frozenset({932, 936, 949, 950})
UTF_16 = TextStorage("utf-16-le", 2)
"""`nvarchar(n)` has room for n pairs of bytes: a character beyond the basic plane takes two of them."""
_UTF_8 = TextStorage("utf-8", 1, 3)
_UNKNOWN = TextStorage("ascii")
_HUNDREDTHS = 2
"""Digits of a second that `datetime` keeps; of the third, only some values."""
_LAST = datetime(9999, 12, 31, 23, 59, 59, 999_999)

_DATETIME = Moments(
    datetime(1753, 1, 1),
    _LAST,
    # Source: "datetime (Transact-SQL)", values are rounded to .000, .003 or .007 seconds.
    lambda it: it.microsecond % 1000 == 0 and it.microsecond // 1000 % 10 in (0, 3, 7),
    "milliseconds",
)
_SMALLDATETIME = Moments(
    datetime(1900, 1, 1), datetime(2079, 6, 6, 23, 59), lambda it: (it.second, it.microsecond) == (0, 0), "seconds"
)
_XML_LOSES = "white space between elements, and how quotes and entities were written,"


def described_type(reflected: TypeEngine[Any], dialect: sa.Dialect) -> ColumnType:
    """Return a destination column's type, as SQLAlchemy reads it from the catalogue."""
    spelling = _spelled(reflected, dialect)
    match reflected:
        case mssql.MONEY():
            return ColumnType(sa.DECIMAL(19, 4), spelling)
        case mssql.SMALLMONEY():
            return ColumnType(sa.DECIMAL(10, 4), spelling)
        case mssql.SMALLDATETIME():
            loses = "seconds, and years before 1900 or after 2079"
            return ColumnType(reflected, spelling, 0, moments=_SMALLDATETIME, loses=loses)
        case sa.DATETIME():
            return ColumnType(reflected, spelling, _HUNDREDTHS, moments=_DATETIME, loses="years before 1753")
        case mssql.XML():
            return ColumnType(reflected, spelling, loses=_XML_LOSES)
        case mssql.UNIQUEIDENTIFIER():
            return ColumnType(reflected, spelling, form=re.compile(UUID_FORM))
        case mssql.TINYINT():
            return ColumnType(reflected, spelling, signed=False)
        case _:
            return ColumnType(
                reflected,
                spelling,
                fraction_digits=_fraction_digits(reflected),
                with_zone=isinstance(reflected, mssql.DATETIMEOFFSET),
                single_precision=isinstance(reflected, sa.REAL),
                fixed_length=isinstance(reflected, sa.CHAR | sa.NCHAR | sa.BINARY),
                storage=_storage(reflected),
            )


def _storage(reflected: TypeEngine[Any]) -> TextStorage | None:
    if isinstance(reflected, sa.NCHAR | sa.NVARCHAR | sa.UnicodeText | sa.Unicode):
        return UTF_16
    if not isinstance(reflected, sa.CHAR | sa.VARCHAR | sa.TEXT):
        return None
    # What `destinations` says beside SQLAlchemy's type.
    page: int | None = getattr(reflected, "code_page", None)
    return _UTF_8 if page == _UTF_8_PAGE else _code_page(page)


def _code_page(page: int | None) -> TextStorage:
    """Return a code page as Python knows it; of one that it does not know, what all have."""
    try:
        name = codecs.lookup(f"cp{page}").name
    except LookupError:
        return _UNKNOWN
    return TextStorage(name, longest=2 if page in _MULTIBYTE_PAGES else 1)


def _spelled(reflected: TypeEngine[Any], dialect: sa.Dialect) -> str:
    name = spelled(reflected, dialect)
    return "int" if name == "integer" else name


def _fraction_digits(reflected: TypeEngine[Any]) -> int | None:
    if isinstance(reflected, mssql.DATETIME2 | mssql.DATETIMEOFFSET | mssql.TIME):
        # Without a number it keeps seven digits, more than there are.
        precision: int | None = reflected.precision
        return precision
    return None


_CONTINUED_LINE = re.compile(r"\\(\r?\n)")
_KEPT = r"\\\\\1\1"
"""What is read as a backslash and an end of a line: the second backslash goes, with the first end of a line."""


class Text(types.TypeDecorator[str]):
    """Text whose ends of lines stay, for a server that continues lines after a backslash."""

    impl = types.String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        del dialect
        return value if value is None or "\\" not in value else _CONTINUED_LINE.sub(_KEPT, value)


class Moment(types.TypeDecorator[str]):
    """A date or time as a constant of ASCII, `'…'` and not `N'…'`, which Babelfish takes for no `datetimeoffset`."""

    impl = types.String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> Any:
        # The driver writes bytes so, where all of them are ASCII.
        del dialect
        return None if value is None else value.encode("ascii")


class FloatingPoint(types.TypeDecorator[float]):
    """A number that the server reads as a float, whatever it is: from a decimal it would be converted."""

    impl = types.Float
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: sa.Dialect) -> float | None:
        del dialect
        return None if value is None else _WithExponent(value)


class _WithExponent(float):
    """Written by the driver as Python writes it (`repr`)."""

    def __repr__(self) -> str:
        text: Any = float.__repr__(self)
        return text if "e" in text else f"{text}e0"
