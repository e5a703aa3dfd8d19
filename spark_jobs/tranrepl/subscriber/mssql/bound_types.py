"""Values as T-SQL constants, which is how pymssql sends them: what the server would read otherwise than it is written.

Sources: "Backslash (Line Continuation)": within a constant, a backslash before a line feed, or before a carriage return
with one, is dropped together with it. "Constants": a number without an exponent is a decimal.
"""

from __future__ import annotations

import re
from typing import Any

import sqlalchemy as sa
from sqlalchemy import types

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
