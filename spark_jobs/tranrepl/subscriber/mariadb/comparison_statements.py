"""How a MariaDB or MySQL Subscriber writes its values to compare them."""

from __future__ import annotations

from functools import partial
from typing import Any

import sqlalchemy as sa
from pymysql.converters import escape_item
from sqlalchemy import types

from tranrepl.model.comparison import Form
from tranrepl.model.whole_table import ComparedColumn
from tranrepl.mysql.comparison_statements import TEXTS, WholeMariaDbTable, floating, without_zeros
from tranrepl.subscriber.base.comparison_statements import ComparisonWays, form_of
from tranrepl.subscriber.base.target import SqlColumn

_LOCK_SECONDS = 10
"""Behind a statement that alters a table and waits for another of these sessions, one would wait for a day."""


def _hold(session: sa.Connection) -> None:
    session.exec_driver_sql(f"SET lock_wait_timeout = {_LOCK_SECONDS}")
    session.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    session.exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")


def compared_column(column: SqlColumn, form: Form, name: str) -> ComparedColumn:
    """Return the column in this form; `name` is quoted."""
    if form is Form.HEXADECIMAL:
        hexadecimal = f"LOWER(HEX({name}))"
        return ComparedColumn(hexadecimal, f"CONCAT('\\\\x', {hexadecimal})")
    kind = column.type.type
    if form is Form.NUMBER and (isinstance(kind, types.Integer) or getattr(kind, "zerofill", False)):
        # As they are, bits are bytes, and a number with ZEROFILL begins with zeros.
        name = f"({name} + 0)"
    return ComparedColumn(_text(column, form, name), f"CAST({name} AS CHAR)", form.plain)


def _text(column: SqlColumn, form: Form, name: str) -> str:
    match form:
        case Form.FLOATING:
            return floating(name)
        case Form.NUMBER:
            return _number(column.type.type, name)
        case _:
            return TEXTS.get(form, "{}").format(name)


def _number(kind: types.TypeEngine[Any], name: str) -> str:
    text = f"CAST({name} AS CHAR)"
    if isinstance(kind, types.Numeric) and (getattr(kind, "scale", None) or 0) > 0:
        return without_zeros(text)
    return text


WAYS = ComparisonWays(
    hold=_hold,
    form=form_of,
    compared=compared_column,
    table=WholeMariaDbTable,
    literal=partial(escape_item, charset="utf8mb4"),
    begin="START TRANSACTION",
)
