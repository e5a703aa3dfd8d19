"""The statements that compare a MariaDB or MySQL table without moving its rows, and how they write its values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import types

from tranrepl.model.comparison import WHOLE, Form, Pages
from tranrepl.model.source_types import Family
from tranrepl.subscriber.base.comparison_statements import ComparedColumn, WholeTable, counted_form, is_binary
from tranrepl.subscriber.base.target import SqlColumn


@dataclass(frozen=True, slots=True)
class MariaDbSide(WholeTable):
    """In MariaDB and MySQL."""

    def checksum(self, pages: Pages = WHOLE) -> str:
        del pages
        return f"SELECT COUNT(*), {_exclusive_or(self.row_number())} FROM {self.table}"

    def buckets(self, buckets: int, pages: Pages = WHOLE) -> str:
        del pages
        return (
            f"SELECT {self.key_number()} & {buckets - 1} AS bucket, COUNT(*), {_exclusive_or(self.row_number())} "
            f"FROM {self.table} GROUP BY bucket"
        )

    def number(self, texts: Sequence[str]) -> str:
        digits = f"LEFT(MD5(CONCAT_WS('|', {', '.join(texts)})), 16)"
        return f"CAST(CAST(CONV({digits}, 16, 10) AS UNSIGNED) AS SIGNED)"

    def digest(self, text: str) -> str:
        return f"MD5(CONVERT({text} USING utf8mb4))"

    def listed(self, numbers: Sequence[int]) -> str:
        return ", ".join(map(str, numbers))


def _exclusive_or(number: str) -> str:
    return f"CAST(BIT_XOR({number}) AS SIGNED)"


def form_of(family: Family, kind: types.TypeEngine[Any]) -> Form:
    """Return the form in which a column of this type at the Subscriber is compared with a published one."""
    if isinstance(kind, types.Float):
        return Form.FLOATING
    if is_binary(kind):
        return Form.HEXADECIMAL
    return counted_form(kind) or (Form.CHARACTER if family is Family.CHARACTER else Form.OUTPUT)


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
