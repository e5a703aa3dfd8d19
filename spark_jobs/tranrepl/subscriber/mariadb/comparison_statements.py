"""The statements that compare a MariaDB or MySQL table without moving its rows, and how they write its values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import types

from tranrepl.model.comparison import WHOLE, Form, Pages
from tranrepl.model.source_types import Family
from tranrepl.subscriber.generic.target import SqlColumn


@dataclass(frozen=True, slots=True)
class MariaDbColumn:
    """`text` is the form in which the value is compared, `shown` what people and statements know it by."""

    text: str
    shown: str
    plain: bool = False


@dataclass(frozen=True, slots=True)
class MariaDbSide:
    """In MariaDB and MySQL, where a table is read as a whole."""

    table: str
    columns: tuple[MariaDbColumn, ...]
    key: tuple[int, ...]

    def count(self, pages: Pages = WHOLE) -> str:
        del pages
        return f"SELECT COUNT(*), 0 FROM {self.table}"

    def checksum(self, pages: Pages = WHOLE) -> str:
        del pages
        return f"SELECT COUNT(*), CAST(BIT_XOR({self._number(range(len(self.columns)))}) AS SIGNED) FROM {self.table}"

    def buckets(self, buckets: int, pages: Pages = WHOLE) -> str:
        del pages
        number = self._number(range(len(self.columns)))
        return (
            f"SELECT {self._number(self.key)} & {buckets - 1} AS bucket, COUNT(*), "
            f"CAST(BIT_XOR({number}) AS SIGNED) FROM {self.table} GROUP BY bucket"
        )

    def numbers(self, buckets: int, chosen: Sequence[int]) -> str:
        key, row = self._number(self.key), self._number(range(len(self.columns)))
        return (
            f"SELECT CAST({key} AS SIGNED), CAST({row} AS SIGNED) FROM {self.table} "
            f"WHERE {key} & {buckets - 1} IN ({', '.join(map(str, chosen))})"
        )

    def rows(self, keys: Sequence[int]) -> str:
        key = f"CAST({self._number(self.key)} AS SIGNED)"
        shown = [self.columns[at].shown for at in self.key]
        digests = [f"MD5(CONVERT({column.text} USING utf8mb4))" for column in self.columns]
        selected = ", ".join([key, *shown, *digests])
        return f"SELECT {selected} FROM {self.table} WHERE {key} IN ({', '.join(map(str, keys))})"

    def _number(self, positions: Sequence[int]) -> str:
        texts = ", ".join(_marked(self.columns[at]) for at in positions)
        return f"CAST(CONV(LEFT(MD5(CONCAT_WS('|', {texts})), 16), 16, 10) AS UNSIGNED)"


def _marked(column: MariaDbColumn) -> str:
    text = column.text if column.plain else f"MD5(CONVERT({column.text} USING utf8mb4))"
    return f"COALESCE({text}, '~')"


def form_of(family: Family, kind: types.TypeEngine[Any]) -> Form:
    """Return the form in which a column of this type at the Subscriber is compared with a published one."""
    for type_, form in _FORMS:
        if isinstance(kind, type_):
            return form
    return Form.CHARACTER if family is Family.CHARACTER else Form.OUTPUT


# In this order: a float is a number too.
_FORMS: tuple[tuple[type[Any], Form], ...] = (
    (types.LargeBinary, Form.HEXADECIMAL),
    (types._Binary, Form.HEXADECIMAL),
    (types.Float, Form.FLOATING),
    (types.Integer, Form.NUMBER),
    (types.Boolean, Form.NUMBER),
    (types.Numeric, Form.NUMBER),
    (types.DateTime, Form.TIMESTAMP),
    (types.Date, Form.DATE),
    (types.Time, Form.TIME),
)


def compared_column(column: SqlColumn, form: Form, name: str) -> MariaDbColumn:
    """Return the column in this form; `name` is quoted."""
    if form is Form.HEXADECIMAL:
        hexadecimal = f"LOWER(HEX({name}))"
        return MariaDbColumn(hexadecimal, f"CONCAT('\\\\x', {hexadecimal})")
    return MariaDbColumn(_text(column, form, name), f"CAST({name} AS CHAR)", form.plain)


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
