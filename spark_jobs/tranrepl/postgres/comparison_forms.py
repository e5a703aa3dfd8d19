"""How PostgreSQL writes a column's values to compare them: the same at both ends exactly where the values are.

Between PostgreSQL and PostgreSQL that is the Publisher's text form, or the value itself where a hash function of its
type tells apart what the text form does. A column of another type at the Subscriber is compared in that type: the
Publisher's text is cast to it, as the delivery does. For another database, each type of the Subscriber has a form that
both can write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from psycopg import sql

from tranrepl.model.article import PublishedColumn
from tranrepl.model.catalogue import ColumnDescription
from tranrepl.model.comparison import ColumnForm, Form
from tranrepl.model.source_types import Family, source_type
from tranrepl.postgres.comparison_statements import PostgresColumn
from tranrepl.postgres.composed_sql import type_sql

_DAYS = (
    "CASE WHEN isfinite({0}) THEN {0} - '2000-01-01'::date WHEN {0} > '2000-01-01'::date THEN 2147483647 "
    "WHEN {0} IS NOT NULL THEN '-2147483648'::int END"
)

# Not numeric without a scale (1.0 and 1.00), not floating point (0 and -0), no types whose values have oids in them.
_HASHED_AS_THEY_ARE = (
    (re.compile(r"text|character varying(\(\d+\))?"), "hashtextextended", '{} COLLATE "C"'),
    (re.compile(r"character\(\d+\)"), "hashbpcharextended", '{} COLLATE "C"'),
    (re.compile(r"smallint"), "hashint2extended", "{}"),
    (re.compile(r"integer"), "hashint4extended", "{}"),
    (re.compile(r"bigint"), "hashint8extended", "{}"),
    (re.compile(r"boolean"), "hashint4extended", "{}::int"),
    (re.compile(r"numeric\(\d+,\d+\)"), "hash_numeric_extended", "{}"),
    (re.compile(r"uuid"), "uuid_hash_extended", "{}"),
    # The hash function of its own is new in PostgreSQL 18, and timestamps end long before dates do.
    (re.compile(r"date"), "hashint4extended", _DAYS),
    # In the session's time zone, which is UTC.
    (re.compile(r"timestamp(\(\d\))? with(out)? time zone"), "timestamp_hash_extended", "{}::timestamp"),
    (re.compile(r"time(\(\d\))? without time zone"), "time_hash_extended", "{}"),
)


def publisher_column(column: PublishedColumn, form: ColumnForm) -> PostgresColumn:
    """Return the published column as a PostgreSQL Publisher writes it."""
    name = sql.Identifier(column.name)
    if form.form is Form.NATIVE:
        return _native_publisher_column(column, form.type_name)
    family = source_type(column.type_name).family
    return PostgresColumn(name, _FORMS[form.form](family, name), output(name), plain=form.form.plain)


def _native_publisher_column(column: PublishedColumn, type_name: str) -> PostgresColumn:
    name = sql.Identifier(column.name)
    if column.type_name == type_name:
        return _as_it_is(name, type_name)
    text = output(name)
    converted = output(sql.SQL("({})::{}").format(text, type_sql(type_name)))
    if column.type_name == "date" and type_name.startswith("timestamp"):
        # Timestamps end long before dates do.
        converted = sql.SQL("CASE WHEN {} < '294277-01-01'::date THEN {} ELSE {} END").format(name, converted, text)
    return _by_text(converted, text)


def subscriber_column(column: PublishedColumn, type_name: str, form: ColumnForm) -> PostgresColumn:
    """Return the published column as a PostgreSQL Subscriber writes it, which has it in this type. The form is another
    one than the native where the Publisher is another database."""
    name = sql.Identifier(column.name)
    if form.form is not Form.NATIVE:
        family, value = source_type(type_name).family, sql.Composed([name])
        if form.form is Form.FLOATING:
            # The shortest digits of 4 bytes are PostgreSQL's own.
            value = sql.SQL("{}::float8").format(name)
        return PostgresColumn(name, _FORMS[form.form](family, value), output(name), plain=form.form.plain)
    if column.type_name == type_name:
        return _as_it_is(name, type_name)
    return _by_text(output(name), output(name))


def _as_it_is(name: sql.Identifier, type_name: str) -> PostgresColumn:
    text = output(name)
    for types, function, value in _HASHED_AS_THEY_ARE:
        if types.fullmatch(type_name):
            return PostgresColumn(sql.SQL(value).format(name), text, text, function)
    return _by_text(text, text)


def output(value: sql.Composable) -> sql.Composed:
    """Return the text form that the type's output function writes, as the log has it. A cast to text would write `true`
    for `t`, and cut the blanks of `character`."""
    return sql.SQL("CASE WHEN {} IS NOT NULL THEN concat({}) END").format(value, value)


def select_rows_of_keys(
    table: sql.Composable,
    columns: Sequence[ColumnDescription],
    key: Sequence[int],
    keys: Sequence[Sequence[str | None]],
    conditions: Sequence[sql.Composable] = (),
) -> sql.Composed:
    """Return the query of the rows with these keys, in the text form of the types' output functions. `key`: positions
    of the key's columns."""
    names = [sql.Identifier(f"tranrepl_{at}") for at in range(len(key))]
    arrays = [sql.SQL("{}::text[]").format(sql.Literal([it[at] for it in keys])) for at in range(len(key))]
    equal = [
        sql.SQL("{} {} {}::{}").format(
            sql.Identifier(columns[at].name), sql.SQL(columns[at].equality), name, type_sql(columns[at].type_name)
        )
        for name, at in zip(names, key, strict=True)
    ]
    return sql.SQL("SELECT {} FROM unnest({}) AS tranrepl_keys({}), {} WHERE {}").format(
        sql.SQL(", ").join(output(sql.Identifier(column.name)) for column in columns),
        sql.SQL(", ").join(arrays),
        sql.SQL(", ").join(names),
        table,
        sql.SQL(" AND ").join(sql.SQL("({})").format(it) for it in (*equal, *conditions)),
    )


def _by_text(text: sql.Composable, shown: sql.Composable) -> PostgresColumn:
    return PostgresColumn(sql.SQL('({}) COLLATE "C"').format(text), text, shown)


def _character(family: Family, here: sql.Composable) -> sql.Composable:
    del family
    return sql.SQL("rtrim({}::text)").format(here)


def _output(family: Family, here: sql.Composable) -> sql.Composable:
    del family
    return output(here)


def _hexadecimal(family: Family, here: sql.Composable) -> sql.Composable:
    if family is Family.BYTES:
        return sql.SQL("encode({}, 'hex')").format(here)
    return sql.SQL("encode(convert_to(concat({}), 'UTF8'), 'hex')").format(here)


def _timestamp(family: Family, here: sql.Composable) -> sql.Composable:
    return _moment(family, sql.SQL("to_char({}::timestamp, 'YYYY-MM-DD HH24:MI:SS.US')").format(here), here)


def _date(family: Family, here: sql.Composable) -> sql.Composable:
    return _moment(family, sql.SQL("to_char({}::date, 'YYYY-MM-DD')").format(here), here)


def _time(family: Family, here: sql.Composable) -> sql.Composable:
    return _moment(family, sql.SQL("to_char({}::time, 'HH24:MI:SS.US')").format(here), here)


def _moment(family: Family, form: sql.Composable, here: sql.Composable) -> sql.Composable:
    """Return the form of a moment, which leaves the era out and has nothing for infinity: only for years that other
    databases have too."""
    if family is Family.DATE:
        held = sql.SQL("{} BETWEEN '0001-01-01'::date AND '9999-12-31'::date").format(here)
    elif family in (Family.TIMESTAMP, Family.TIMESTAMP_WITH_ZONE):
        held = sql.SQL(
            "{0}::timestamp >= '0001-01-01'::timestamp AND {0}::timestamp < '10000-01-01'::timestamp"
        ).format(here)
    else:
        return form
    return sql.SQL("CASE WHEN {} THEN {} ELSE {} END").format(held, form, output(here))


def _number(family: Family, here: sql.Composable) -> sql.Composable:
    if family in (Family.SMALLINT, Family.INTEGER, Family.BIGINT):
        return sql.SQL("{}::text").format(here)
    if family in (Family.NUMERIC, Family.MONEY):
        return sql.SQL("trim_scale({}::numeric)::text").format(here)
    # A boolean, or a domain that may be one.
    return sql.SQL(
        "CASE WHEN {} IS NULL THEN NULL WHEN concat({}) = 't' THEN '1' WHEN concat({}) = 'f' THEN '0' "
        "ELSE trim_scale(concat({})::numeric)::text END"
    ).format(here, here, here, here)


def _floating(family: Family, here: sql.Composable) -> sql.Composable:
    """Return the fewest digits that name a number, whatever layout a database gives them: digits, sign and
    magnitude."""
    del family
    return sql.SQL(
        "CASE WHEN {number} = 0 THEN '0' WHEN {number} IN ('NaN', 'Infinity', '-Infinity') THEN {here}::text "
        "ELSE sign({number})::text || 'd' || "
        "rtrim(ltrim(regexp_replace(regexp_replace({here}::text, 'e.*$', ''), '[^0-9]', '', 'g'), '0'), '0') "
        "|| 'm' || round(log(abs({number})) * 10)::bigint::text END"
    ).format(here=here, number=sql.SQL("{}::text::float8").format(here))


def _digest(family: Family, here: sql.Composable) -> sql.Composable:
    value = here if family is Family.BYTES else sql.SQL("convert_to({}, 'UTF8')").format(output(here))
    return sql.SQL(
        "('x' || left(md5({0}), 16))::bit(64)::bigint::text || ',' || "
        "('x' || right(md5({0}), 16))::bit(64)::bigint::text"
    ).format(value)


def _double(family: Family, here: sql.Composable) -> sql.Composable:
    del family
    number = sql.SQL("{}::text::float8").format(here)
    bits = sql.SQL("('x' || encode(float8send({}), 'hex'))::bit(64)::bigint::text").format(number)
    return sql.SQL("CASE WHEN {} = 0 THEN '0' ELSE {} END").format(number, bits)


def _single(family: Family, here: sql.Composable) -> sql.Composable:
    """Return the bytes of a number as 4-byte float; its text where it is larger or smaller than there are."""
    del family
    return sql.SQL(
        "CASE WHEN {number} = 0 THEN '0' WHEN abs({number}) BETWEEN 1e-45 AND 3.4028235e38 "
        "THEN ('x' || encode(float4send({here}::text::float4), 'hex'))::bit(32)::int::text ELSE {here}::text END"
    ).format(here=here, number=sql.SQL("{}::text::float8").format(here))


_FORMS: Mapping[Form, Callable[[Family, sql.Composable], sql.Composable]] = {
    Form.OUTPUT: _output,
    Form.CHARACTER: _character,
    Form.HEXADECIMAL: _hexadecimal,
    Form.NUMBER: _number,
    Form.FLOATING: _floating,
    Form.DIGEST: _digest,
    Form.DOUBLE: _double,
    Form.SINGLE: _single,
    Form.TIMESTAMP: _timestamp,
    Form.DATE: _date,
    Form.TIME: _time,
}
