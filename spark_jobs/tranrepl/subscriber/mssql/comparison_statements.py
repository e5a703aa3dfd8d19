"""A SQL Server Subscriber's end of a comparison: the statements that compare a table without moving its rows, and the
sessions that hold its snapshot."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import types
from sqlalchemy.dialects import mssql
from sqlalchemy.exc import DBAPIError

from tranrepl.errors import ConfigurationError
from tranrepl.model.comparison import WHOLE, Form, Pages
from tranrepl.model.source_types import Family
from tranrepl.model.whole_table import ComparedColumn, WholeTable
from tranrepl.subscriber.base.comparison_statements import ComparisonWays, counted_form, is_binary
from tranrepl.subscriber.base.target import SqlColumn
from tranrepl.subscriber.mssql.driver import literal
from tranrepl.subscriber.mssql.sql_text import quoted
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


_SAMPLE = "a|~ \u00fc \u20ac \U0001f600"
_BYTES = "convert(varbinary(max), convert(varchar(max), {} collate Latin1_General_100_BIN2_UTF8))"
_DIGESTS = (
    f"lower(convert(varchar(32), hashbytes('MD5', {_BYTES}), 2))",
    # Babelfish's: it has no collation of that name, and keeps all of its texts in UTF-8.
    "md5(convert(varchar(max), {}))",
)
_IS_EXCLUSIVE_OR = "select checksum_agg(v) from (values (1), (3), (-8)) as samples(v)"
_SAMPLE_EXCLUSIVE_OR = 1 ^ 3 ^ -8
_SNAPSHOTS = sa.text("select snapshot_isolation_state from sys.databases where name = db_name()")
_FIRST_READ = "select count(*) from msreplication_subscriptions where 1 = 0"


def comparison_ways(session: sa.Connection, where: str) -> ComparisonWays:
    """Return how this server compares. Raises ConfigurationError where it cannot."""
    _require_snapshots(session, where)
    server = _server_ways(session, where)
    return ComparisonWays(
        hold=_hold,
        form=form_of,
        compared=compared_column,
        table=lambda table, columns, key: SqlServerSide(table, columns, key, server),
        literal=literal,
        begin="SET XACT_ABORT ON; BEGIN TRANSACTION",
    )


def _require_snapshots(session: sa.Connection, where: str) -> None:
    if not session.scalar(_SNAPSHOTS):
        name = quoted(session.engine.url.database or "master")
        raise ConfigurationError(
            f"{where}: the database allows no snapshot isolation, in which its rows are compared while others write",
            remedy=f"alter database {name} set allow_snapshot_isolation on",
        )


def _server_ways(session: sa.Connection, where: str) -> ServerWays:
    """Ask the server what it has. Raises ConfigurationError where it has no UTF-8."""
    sample = f"N'{_SAMPLE}'"
    digest = hashlib.md5(_SAMPLE.encode(), usedforsecurity=False).hexdigest()
    for expression in _DIGESTS:
        if _asked(session, f"select {expression.format(sample)}") == digest:
            return ServerWays(expression, _asked(session, _IS_EXCLUSIVE_OR) == _SAMPLE_EXCLUSIVE_OR)
    raise ConfigurationError(
        f"{where}: the server has no texts in UTF-8, in which they are compared",
        remedy="SQL Server 2019 or later has them",
    )


def _asked(session: sa.Connection, statement: str) -> object:
    """Return the answer; None from a server that does not know what is asked."""
    try:
        answer: object = session.exec_driver_sql(statement).scalar()
    except DBAPIError:
        answer = None
    session.rollback()
    return answer


def _hold(session: sa.Connection) -> None:
    # The snapshot is of the first read's moment, not of the transaction's beginning.
    session.execution_options(isolation_level="SNAPSHOT")
    session.exec_driver_sql(_FIRST_READ)
