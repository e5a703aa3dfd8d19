"""The statements that compare a SQL Server table without moving its rows, and how they write its values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import types
from sqlalchemy.dialects import mssql

from tranrepl.model.comparison import WHOLE, Form, Pages
from tranrepl.model.source_types import Family
from tranrepl.subscriber.base.comparison_statements import ComparedColumn, WholeTable, counted_form, is_binary
from tranrepl.subscriber.base.target import SqlColumn
from tranrepl.subscriber.value_conversion import ColumnType

_MOST_VALUES = 1000
"""Rows that one VALUES has."""
_BITS = 64
_BIGINT_MIN = -(1 << 63)


@dataclass(frozen=True, slots=True)
class ServerWays:
    """What a server of this kind may have or not."""

    digest: str
    """The expression of a text's MD5 in hexadecimal, of its bytes in UTF-8."""
    has_checksum_agg: bool
    """Whether CHECKSUM_AGG is there, and is the exclusive or of its integers."""


@dataclass(frozen=True, slots=True)
class SqlServerSide(WholeTable):
    """In SQL Server."""

    ways: ServerWays

    def count(self, pages: Pages = WHOLE) -> str:
        del pages
        return f"SELECT COUNT_BIG(*), 0 FROM {self.table}"

    def checksum(self, pages: Pages = WHOLE) -> str:
        del pages
        return f"SELECT COUNT_BIG(*), {self._sum()} FROM {self._numbered()}"

    def buckets(self, buckets: int, pages: Pages = WHOLE) -> str:
        del pages
        numbered = self._numbered(f"{self.key_number()} & {buckets - 1} AS bucket")
        return f"SELECT bucket, COUNT_BIG(*), {self._sum()} FROM {numbered} GROUP BY bucket"

    def number(self, texts: Sequence[str]) -> str:
        joined = " + '|' + ".join(texts)
        return f"convert(bigint, substring(hashbytes('MD5', convert(varchar(max), {joined})), 1, 8))"

    def digest(self, text: str) -> str:
        return self.ways.digest.format(text)

    def listed(self, numbers: Sequence[int]) -> str:
        """Return a query of numbers: a list of as many would be more than the server's parser takes."""
        parts = [numbers[at : at + _MOST_VALUES] for at in range(0, len(numbers), _MOST_VALUES)]
        rows = [", ".join(f"(convert(bigint, {it}))" for it in part) for part in parts]
        return " union all ".join(f"select v from (values {it}) as w{at}(v)" for at, it in enumerate(rows))

    def _numbered(self, *more: str) -> str:
        """Return the table's rows, each with its number `n`, which is computed once: TOP keeps the server from putting
        the expression in its place."""
        selected = ", ".join([f"{self.row_number()} AS n", *more])
        return f"(SELECT TOP ({(1 << 63) - 1}) {selected} FROM {self.table}) AS numbered"

    def _sum(self) -> str:
        return _EXCLUSIVE_OR if self.ways.has_checksum_agg else _BITWISE


def _half(first: int) -> str:
    return f"convert(binary(4), checksum_agg(convert(int, substring(convert(binary(8), n), {first}, 4))))"


def _bit(at: int) -> str:
    mask = _BIGINT_MIN if at == _BITS - 1 else 1 << at
    value = f"convert(bigint, {mask})"
    return f"sum(case when n & {value} = 0 then 0 else 1 end) % 2 * {value}"


_EXCLUSIVE_OR = f"coalesce(convert(bigint, {_half(1)} + {_half(5)}), 0)"
_BITWISE = f"coalesce({' + '.join(map(_bit, range(_BITS)))}, 0)"


def form_of(family: Family, column: ColumnType) -> Form:
    """Return the form in which a column of this type at the Subscriber is compared with a published one."""
    if isinstance(column.type, types.Float):
        return Form.SINGLE if column.single_precision else Form.DOUBLE
    if is_binary(column.type):
        return Form.DIGEST
    text = Form.CHARACTER if column.fixed_length or family is Family.CHARACTER else Form.OUTPUT
    return counted_form(column.type) or text


def compared_column(column: SqlColumn, form: Form, name: str) -> ComparedColumn:
    """Return the column in this form; `name` is quoted."""
    match form:
        case Form.DIGEST:
            return ComparedColumn(_halves(f"hashbytes('MD5', convert(varbinary(max), {name}))"), name, form.plain)
        case Form.NUMBER:
            return _same(_number(column.type, name))
        case Form.DOUBLE | Form.SINGLE:
            return ComparedColumn(
                _bits_of_float(form, name), f"ltrim(rtrim(convert(varchar(40), {name}, 3)))", form.plain
            )
        case Form.TIMESTAMP:
            return _moment(column.type, name)
        case Form.DATE:
            return _same(f"convert(varchar(10), {name}, 23)")
        case Form.TIME:
            return _same(f"convert(varchar(8), {name}, 108) + {_fraction(name)}")
        case _:
            text = _text(column.type, name)
            return ComparedColumn(f"rtrim({text})" if form is Form.CHARACTER else text, text, form.plain)


def _same(text: str) -> ComparedColumn:
    return ComparedColumn(text, text, plain=True)


def _text(column: ColumnType, name: str) -> str:
    if isinstance(column.type, mssql.UNIQUEIDENTIFIER):
        return f"lower(convert(nvarchar(36), {name}))"
    return f"convert(nvarchar(max), {name})"


def _number(column: ColumnType, name: str) -> str:
    if isinstance(column.type, types.Integer | types.Boolean):
        return f"convert(varchar(20), convert(bigint, {name}))"
    scale = getattr(column.type, "scale", None) or 0
    if not scale:
        return f"convert(varchar(41), {name})"
    # Zeros at the end of the fraction become blanks, which are cut, as is a point that is last then.
    blanks = f"rtrim(replace(convert(varchar(41), convert(decimal(38, {scale}), {name})), '0', ' '))"
    without_point = f"case when right({blanks}, 1) = '.' then left({blanks}, len({blanks}) - 1) else {blanks} end"
    return f"replace({without_point}, ' ', '0')"


def _halves(digest: str) -> str:
    first, second = (f"convert(varchar(20), convert(bigint, substring({digest}, {at}, 8)))" for at in (1, 9))
    return f"{first} + ',' + {second}"


_INTEGERS: Mapping[Form, tuple[str, int]] = {Form.DOUBLE: ("bigint", 8), Form.SINGLE: ("int", 4)}


def _bits_of_float(form: Form, name: str) -> str:
    integer, size = _INTEGERS[form]
    bits = f"convert(varchar(20), convert({integer}, convert(binary({size}), {name})))"
    return f"case when {name} = 0 then '0' else {bits} end"


def _moment(column: ColumnType, name: str) -> ComparedColumn:
    if column.with_zone:
        in_utc = f"convert(datetime2(7), switchoffset({name}, '+00:00'))"
        text = f"convert(varchar(19), {in_utc}, 120) + {_fraction(in_utc)}"
        return ComparedColumn(text, f"{text} + '+00'", plain=True)
    fraction = _milliseconds(name) if column.moments is not None else _fraction(name)
    return _same(f"convert(varchar(19), {name}, 120) + {fraction}")


def _milliseconds(name: str) -> str:
    """Return the fraction of a second of what is counted in milliseconds: converted, it would have digits more."""
    return f"'.' + right('00' + convert(varchar(3), datepart(millisecond, {name})), 3) + '000'"


def _fraction(name: str) -> str:
    """Return six digits of a second's fraction, and what is left of it where there is more."""
    left = f"datepart(nanosecond, {name}) % 1000"
    more = f"case when {left} = 0 then '' else convert(varchar(3), {left}) end"
    return f"'.' + right('00000' + convert(varchar(6), datepart(microsecond, {name})), 6) + {more}"
