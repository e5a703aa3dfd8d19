"""In which form a column's values are compared: the same at both ends exactly where the values are.

Between PostgreSQL and PostgreSQL that is the Publisher's text form, or the value itself where a hash function of its
type tells apart what the text form does. A column of another type at the Subscriber is compared in that type: the
Publisher's text is cast to it, as the delivery does. For another database, each type of the Subscriber has a form that
both can write.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from psycopg import sql
from sqlalchemy import types

from tranrepl.model.article import PublishedColumn, RegisteredArticle
from tranrepl.model.catalogue import TableDescription
from tranrepl.postgres.catalogue import qualified
from tranrepl.subscriber.generic.target import SqlColumn, SqlTarget
from tranrepl.subscriber.source_types import Family, source_type
from tranrepl.validation.sides import Checksum, MariaDbColumn, MariaDbSide, PostgresColumn, PostgresSide

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


def postgres_sides(
    article: RegisteredArticle, destination: TableDescription, checksum_by: Checksum
) -> tuple[PostgresSide, PostgresSide]:
    """Return both sides of an article at a PostgreSQL Publisher and a PostgreSQL Subscriber."""
    found = {column.name: column.type_name for column in destination.columns}
    pairs = [_postgres_columns(column, found[column.name]) for column in article.columns]
    return (
        _publisher_side(article, tuple(first for first, _ in pairs), checksum_by),
        PostgresSide(
            qualified(article.destination), tuple(second for _, second in pairs), article.key_positions, checksum_by
        ),
    )


def _publisher_side(
    article: RegisteredArticle, columns: tuple[PostgresColumn, ...], checksum_by: Checksum
) -> PostgresSide:
    condition = None if article.filter is None else sql.SQL(article.filter)
    table = sql.SQL("ONLY {}").format(qualified(article.source))
    return PostgresSide(table, columns, article.key_positions, checksum_by, condition)


def _postgres_columns(column: PublishedColumn, type_name: str) -> tuple[PostgresColumn, PostgresColumn]:
    name = sql.Identifier(column.name)
    text = output(name)
    if column.type_name != type_name:
        converted = output(sql.SQL("({})::{}").format(text, sql.SQL(type_name)))
        if column.type_name == "date" and type_name.startswith("timestamp"):
            # Timestamps end long before dates do.
            converted = sql.SQL("CASE WHEN {} < '294277-01-01'::date THEN {} ELSE {} END").format(name, converted, text)
        return _by_text(converted, text), _by_text(text, text)
    for types_, function, value in _HASHED_AS_THEY_ARE:
        if types_.fullmatch(type_name):
            same = PostgresColumn(sql.SQL(value).format(name), text, text, function)
            return same, same
    same = _by_text(text, text)
    return same, same


def output(value: sql.Composable) -> sql.Composed:
    """Return the text form that the type's output function writes, as the log has it. A cast to text would write `true`
    for `t`, and cut the blanks of `character`."""
    return sql.SQL("CASE WHEN {} IS NOT NULL THEN concat({}) END").format(value, value)


def _by_text(text: sql.Composable, shown: sql.Composable) -> PostgresColumn:
    return PostgresColumn(sql.SQL('({}) COLLATE "C"').format(text), text, shown)


def mariadb_sides(
    article: RegisteredArticle, target: SqlTarget, quoted: Callable[[str], str]
) -> tuple[PostgresSide, MariaDbSide]:
    """Return both sides of an article at a PostgreSQL Publisher and at MariaDB or MySQL, which quotes names so."""
    pairs = [
        _mariadb_columns(column, found, quoted(found.name))
        for column, found in zip(article.columns, target.columns, strict=True)
    ]
    table = ".".join(quoted(part) for part in (target.schema, target.name) if part)
    return (
        _publisher_side(article, tuple(first for first, _ in pairs), Checksum.MD5),
        MariaDbSide(table, tuple(second for _, second in pairs), article.key_positions),
    )


def _mariadb_columns(column: PublishedColumn, target: SqlColumn, there: str) -> tuple[PostgresColumn, MariaDbColumn]:
    here = sql.Identifier(column.name)
    family, kind = source_type(column.type_name).family, target.type.type
    shown, shown_there = output(here), f"CAST({there} AS CHAR)"
    if isinstance(kind, types.LargeBinary | types._Binary):
        form = "encode({}, 'hex')" if family is Family.BYTES else "encode(convert_to(concat({}), 'UTF8'), 'hex')"
        hexadecimal = f"LOWER(HEX({there}))"
        return (
            PostgresColumn(here, sql.SQL(form).format(here), shown),
            MariaDbColumn(hexadecimal, f"CONCAT('\\\\x', {hexadecimal})"),
        )
    text, text_there, plain = _common_form(family, kind, here, there)
    return PostgresColumn(here, text, shown, plain=plain), MariaDbColumn(text_there, shown_there, plain)


def _common_form(
    family: Family, kind: types.TypeEngine[object], here: sql.Composable, there: str
) -> tuple[sql.Composable, str, bool]:
    """Return the forms of both ends, and whether they are plain."""
    if isinstance(kind, types.Float):
        return _floating(here), _floating_there(there), True
    if isinstance(kind, types.Integer | types.Boolean | types.Numeric):
        return _number(family, here), _number_there(kind, there), True
    for moment, form, form_there in _MOMENTS:
        if isinstance(kind, moment):
            return _moment(family, sql.SQL(form).format(here), here), form_there.format(there), True
    if family is Family.CHARACTER:
        return sql.SQL("rtrim({}::text)").format(here), f"RTRIM({there})", False
    return output(here), there, False


_MOMENTS: tuple[tuple[type[Any], str, str], ...] = (
    (
        types.DateTime,
        "to_char({}::timestamp, 'YYYY-MM-DD HH24:MI:SS.US')",
        "DATE_FORMAT({}, '%Y-%m-%d %H:%i:%s.%f')",
    ),
    (types.Date, "to_char({}::date, 'YYYY-MM-DD')", "DATE_FORMAT({}, '%Y-%m-%d')"),
    (types.Time, "to_char({}::time, 'HH24:MI:SS.US')", "TIME_FORMAT({}, '%H:%i:%s.%f')"),
)


def _moment(family: Family, form: sql.Composable, here: sql.Composable) -> sql.Composable:
    """Return the form of a moment, which leaves the era out and has nothing for infinity: only for years that MariaDB
    has too."""
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


def _number_there(kind: types.TypeEngine[object], there: str) -> str:
    text = f"CAST({there} AS CHAR)"
    if isinstance(kind, types.Numeric) and (getattr(kind, "scale", None) or 0) > 0:
        return f"TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM {text}))"
    return text


# Both databases write the fewest digits that name a number, in other layouts: the digits, the sign and the magnitude.


def _floating(here: sql.Composable) -> sql.Composable:
    return sql.SQL(
        "CASE WHEN {number} = 0 THEN '0' WHEN {number} IN ('NaN', 'Infinity', '-Infinity') THEN {here}::text "
        "ELSE sign({number})::text || 'd' || "
        "rtrim(ltrim(regexp_replace(regexp_replace({here}::text, 'e.*$', ''), '[^0-9]', '', 'g'), '0'), '0') "
        "|| 'm' || round(log(abs({number})) * 10)::bigint::text END"
    ).format(here=here, number=sql.SQL("{}::text::float8").format(here))


def _floating_there(there: str) -> str:
    digits = f"REGEXP_REPLACE(REGEXP_REPLACE(CAST({there} AS CHAR), 'e.*$', ''), '[^0-9]', '')"
    return (
        f"CASE WHEN {there} = 0 THEN '0' ELSE CONCAT(SIGN({there}), 'd', "
        f"TRIM(TRAILING '0' FROM TRIM(LEADING '0' FROM {digits})), 'm', "
        f"CAST(ROUND(LOG10(ABS({there})) * 10) AS SIGNED)) END"
    )
