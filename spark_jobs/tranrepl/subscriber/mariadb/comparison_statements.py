"""The statements that compare a MariaDB or MySQL table without moving its rows, and how they write its values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import sqlalchemy as sa
from pymysql.converters import escape_item
from sqlalchemy import types

from tranrepl.model.comparison import Form
from tranrepl.subscriber.base.comparison_statements import ComparedColumn, ComparisonWays, WholeNumbersTable, form_of
from tranrepl.subscriber.base.target import SqlColumn

_LOCK_SECONDS = 10
"""Behind a statement that alters a table and waits for another of these sessions, one would wait for a day."""


def _hold(session: sa.Connection) -> None:
    session.exec_driver_sql(f"SET lock_wait_timeout = {_LOCK_SECONDS}")
    session.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    session.exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")


@dataclass(frozen=True, slots=True)
class MariaDbSide(WholeNumbersTable):
    """In MariaDB and MySQL."""

    def number(self, texts: Sequence[str]) -> str:
        digits = f"LEFT(MD5(CONCAT_WS('|', {', '.join(texts)})), 16)"
        return f"CAST(CAST(CONV({digits}, 16, 10) AS UNSIGNED) AS SIGNED)"

    def digest(self, text: str) -> str:
        return f"MD5(CONVERT({text} USING utf8mb4))"

    def exclusive_or(self, number: str) -> str:
        return f"CAST(BIT_XOR({number}) AS SIGNED)"


def compared_column(column: SqlColumn, form: Form, name: str) -> ComparedColumn:
    """Return the column in this form; `name` is quoted."""
    if form is Form.HEXADECIMAL:
        hexadecimal = f"LOWER(HEX({name}))"
        return ComparedColumn(hexadecimal, f"CONCAT('\\\\x', {hexadecimal})")
    return ComparedColumn(_text(column, form, name), f"CAST({name} AS CHAR)", form.plain)


def _text(column: SqlColumn, form: Form, name: str) -> str:
    match form:
        case Form.FLOATING:
            return _floating(name)
        case Form.NUMBER:
            return _number(column.type.type, name)
        case _:
            return _TEXTS.get(form, "{}").format(name)


_TEXTS: Mapping[Form, str] = {
    Form.CHARACTER: "RTRIM({})",
    Form.TIMESTAMP: "DATE_FORMAT({}, '%Y-%m-%d %H:%i:%s.%f')",
    Form.DATE: "DATE_FORMAT({}, '%Y-%m-%d')",
    Form.TIME: "TIME_FORMAT({}, '%H:%i:%s.%f')",
}


def _number(kind: types.TypeEngine[Any], name: str) -> str:
    text = f"CAST({name} AS CHAR)"
    if isinstance(kind, types.Numeric) and (getattr(kind, "scale", None) or 0) > 0:
        return f"TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {text}))"
    return text


def _floating(name: str) -> str:
    digits = f"REGEXP_REPLACE(REGEXP_REPLACE(CAST({name} AS CHAR), 'e.*$', ''), '[^0-9]', '')"
    return (
        f"CASE WHEN {name} = 0 THEN '0' ELSE CONCAT(SIGN({name}), 'd', "
        f"TRIM(TRAILING '0' FROM TRIM(LEADING '0' FROM {digits})), 'm', "
        f"CAST(ROUND(LOG10(ABS({name})) * 10) AS SIGNED)) END"
    )


WAYS = ComparisonWays(
    hold=_hold,
    form=form_of,
    compared=compared_column,
    table=MariaDbSide,
    literal=partial(escape_item, charset="utf8mb4"),
    begin="START TRANSACTION",
)
