"""A SQLite Subscriber's end of a comparison. SQLite has no digests and no exclusive or: functions of ours, which the
driver calls, stand in for them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from hashlib import md5
from typing import Any

import sqlalchemy as sa

from tranrepl.model.comparison import Form
from tranrepl.model.whole_table import ComparedColumn, WholeNumbersTable
from tranrepl.subscriber.base.comparison_statements import ComparisonWays, form_of
from tranrepl.subscriber.base.target import SqlColumn

_NO_FRACTION = "000000"


def add_functions(driver: Any) -> None:
    """Give a driver's session the functions that the statements call."""
    driver.create_function("tranrepl_digest", 1, _digest, deterministic=True)
    driver.create_function("tranrepl_number", 1, _number, deterministic=True)
    driver.create_function("tranrepl_decimal", 1, _decimal, deterministic=True)
    driver.create_function("tranrepl_floating", 1, _floating, deterministic=True)
    driver.create_function("tranrepl_moment", 1, _moment, deterministic=True)
    driver.create_aggregate("tranrepl_xor", 1, _ExclusiveOr)


class _ExclusiveOr:
    def __init__(self) -> None:
        self._number = 0

    def step(self, number: int) -> None:
        self._number ^= number

    def finalize(self) -> int:
        return self._number


def _digest(text: str | None) -> str | None:
    return None if text is None else md5(text.encode(), usedforsecurity=False).hexdigest()


def _number(text: str) -> int:
    return int.from_bytes(md5(text.encode(), usedforsecurity=False).digest()[:8], "big", signed=True)


def _decimal(value: object) -> str | None:
    if isinstance(value, float):
        return f"{Decimal(repr(value)).normalize():f}" if value else "0"
    return None if value is None else str(value)


def _floating(value: object) -> str | None:
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None if value is None else str(value)
    if value == 0:
        return "0"
    digits = re.sub(r"e.*$|[^0-9e]", "", repr(float(value))).strip("0")
    return f"{1 if value > 0 else -1}d{digits}m{round(math.log10(abs(value)) * 10)}"


def _moment(value: object) -> str | None:
    """Return a time with six digits of its seconds' fraction, however it was written."""
    if value is None:
        return None
    whole, _, fraction = str(value).partition(".")
    return f"{whole}.{fraction}{_NO_FRACTION[len(fraction) :]}"


class _SqliteSide(WholeNumbersTable):
    def number(self, texts: Sequence[str]) -> str:
        joined = " || '|' || ".join(texts)
        return f"tranrepl_number({joined})"

    def digest(self, text: str) -> str:
        return f"tranrepl_digest({text})"

    def exclusive_or(self, number: str) -> str:
        return f"COALESCE(tranrepl_xor({number}), 0)"


def _hold(session: sa.Connection) -> None:
    # The transaction sees what is there when it first reads.
    session.exec_driver_sql("SELECT COUNT(*) FROM sqlite_schema").all()


def _compared(column: SqlColumn, form: Form, name: str) -> ComparedColumn:
    """Return the column in this form; `name` is quoted."""
    del column
    match form:
        case Form.HEXADECIMAL:
            # hex() makes an empty text of NULL.
            digits = f"CASE WHEN {name} IS NOT NULL THEN lower(hex({name})) END"
            return ComparedColumn(digits, f"'\\x' || {digits}")
        case Form.FLOATING:
            text = f"tranrepl_floating({name})"
        case Form.NUMBER:
            text = f"tranrepl_decimal({name})"
        case Form.TIMESTAMP | Form.TIME:
            text = f"tranrepl_moment({name})"
        case Form.CHARACTER:
            text = f"rtrim({name})"
        case _:
            text = f"CAST({name} AS TEXT)"
    return ComparedColumn(text, f"CAST({name} AS TEXT)", form.plain)


def _literal(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bytes():
            return f"X'{value.hex()}'"
        case bool() | int():
            return str(int(value))
        case float():
            return repr(value)
        case date():
            return f"'{value.isoformat()}'"
        case _:
            return "'" + str(value).replace("'", "''") + "'"


WAYS = ComparisonWays(_hold, form_of, _compared, _SqliteSide, _literal, begin="BEGIN")
