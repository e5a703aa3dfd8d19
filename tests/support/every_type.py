"""A publication of every built-in type's values, and settings under which a session reads their text differently."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from psycopg import sql

from support.databases import Databases
from support.site import Site, execute
from tranrepl.connections import Connection

_READING = (
    "-c DateStyle=ISO,YMD -c IntervalStyle=postgres -c TimeZone=UTC -c extra_float_digits=3 -c bytea_output=hex "
    "-c lc_monetary=C -c search_path=pg_catalog"
)
"""What both ends are read with: it must not be the product's own choice."""

_OTHER_DEFAULTS = {
    "DateStyle": "German",
    "IntervalStyle": "iso_8601",
    "bytea_output": "escape",
    "TimeZone": "Australia/Lord_Howe",
    "extra_float_digits": "-5",
    "array_nulls": "off",
    "xmloption": "document",
    "client_min_messages": "error",
    "standard_conforming_strings": "off",
    "search_path": "elsewhere, public",
}
"""Settings by which text is another one, or another value, unless a session says how it is meant."""

TYPES = """
    CREATE TYPE public.mood AS ENUM ('sad', 'it''s ok', 'Very "happy"');
    CREATE DOMAIN public.positive AS integer CHECK (VALUE > 0);
    CREATE DOMAIN public.named AS varchar(20) NOT NULL;
    CREATE TYPE public.pair AS (a integer, b text);
    CREATE DOMAIN public.pairs AS public.pair[];
"""

_TEXTS = [
    "''",
    "'NULL'",
    r"E'\\N'",
    r"E'\\.'",
    r"E'one\n\\.\nthree'",
    r"E'\r\n\t\b\f\x01'",
    r"E'\\'",
    r"E'back\\slash\\t \\n'",
    """'quote '' and " and `'""",
    "'😀 𝄞 é'",
    "repeat('0123456789', 1000)",
    "' '",
    "'$procedure$ {} %s %'",
]

_VALUES: dict[str, Sequence[str]] = {
    "smallint": ["-32768", "32767"],
    "integer": ["-2147483648", "2147483647", "0"],
    "bigint": ["-9223372036854775808", "9223372036854775807"],
    "numeric": ["'NaN'", "'Infinity'", "'-Infinity'", "0.00", "1e100", "-1e-100", "1.10", "1.100"],
    "numeric(38,10)": ["9999999999999999999999999999.9999999999", "'NaN'", "-0.0000000001", "1"],
    "real": ["1e-45::real", "3.4028235e38", "'NaN'", "'Infinity'", "'-Infinity'", "'-0'", "0", "0.1", "16777217"],
    "double precision": [
        *("5e-324::float8", "1.7976931348623157e308", "0.1::float8 + 0.2::float8", "'NaN'", "'-Infinity'", "'-0'", "0"),
        *("2.2250738585072014e-308", "123456789012345680"),
    ],
    "money": ["'-92233720368547758.08'", "'1234.5'", "0"],
    "boolean": ["true", "false"],
    "char(5)": ["'ab'", "''", "'  é'"],
    "bpchar": ["'ab  '", "''"],
    "varchar(12)": ["''", "'ab  '", r"E'\\N'"],
    "text": _TEXTS,
    '"char"': ["'x'", "''", r"E'\\'", r"'\377'"],
    "name": ["'Name'", "repeat('n', 63)"],
    "bytea": [r"'\x'", r"'\x00ff5c27'", r"decode(repeat('0a0d09', 1000), 'hex')"],
    "date": ["'infinity'", "'-infinity'", "'4713-01-01 BC'", "'5874897-12-31'", "'2024-02-29'"],
    "timestamp": ["'infinity'", "'4713-01-01 00:00 BC'", "'294276-12-31 23:59:59.999999'", "'2024-03-31 02:30'"],
    "timestamp(3)": ["'2024-01-02 03:04:05.678'", "'-infinity'"],
    # The hour that Berlin does not have, its borders, and the hour that it has twice.
    "timestamptz": [
        *("'2024-03-31 02:30 Europe/Berlin'", "'2024-03-31 00:59:59.999999+00'", "'2024-10-27 02:30+02'"),
        *("'2024-10-27 02:30+01'", "'infinity'", "'4713-01-01 00:00+00 BC'", "'294276-12-31 23:59:59.999999+00'"),
        *("'1900-01-01 00:00:00+00:53:28'", "'2024-04-07 01:45 Australia/Lord_Howe'"),
    ],
    "time": ["'24:00'", "'00:00:00.000001'"],
    "timetz": ["'24:00+15:59:59'", "'01:02:03.4-11'"],
    "interval": [
        *("'1 year -2 months 3 days -04:05:06.789'", "'-1 day 00:00:01'", "'infinity'", "'0'", "'-178000000 years'"),
        *("'1 month -1 day'", "'-00:00:00.000001'", "'1000000 hours'", "make_interval(months => 13, days => -40)"),
    ],
    "interval day to second(3)": ["'5 days 01:02:03.4567'", "'-1 day'"],
    "uuid": ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "'00000000-0000-0000-0000-000000000000'"],
    "json": ["""'{ "b": 1,  "a": [1.0, null, "\\u00e9 \\\\ \\""], "b": 2 }'""", "'null'", "' 1 '"],
    "jsonb": ["""'{"b": 1.10, "a": "x\\ny"}'""", "'null'", "'[]'"],
    "inet": ["'192.168.1.5/24'", "'::ffff:1.2.3.4/128'", "'10.0.0.1'"],
    "cidr": ["'192.168.0.0/16'", "'2001:db8::/32'"],
    "macaddr": ["'08:00:2b:01:02:03'"],
    "macaddr8": ["'08:00:2b:01:02:03:04:05'"],
    "bit(9)": ["B'101010101'", "B'000000000'"],
    "bit varying": ["B''", "B'1'", "B'0101010101010101'"],
    "text[]": [
        """ARRAY['', NULL, 'NULL', 'null', '"', '\\\\', 'a,b', '{}', ' x ', E'\\n\\t']""",
        "'{}'",
        "ARRAY[ARRAY['a', NULL], ARRAY['''', 'd']]",
        "'[-1:1]={a,b,c}'",
    ],
    "integer[][]": ["'{{1,2},{3,NULL}}'", "'{NULL}'"],
    "timestamptz[]": ["ARRAY['2024-10-27 02:30+02'::timestamptz, NULL, 'infinity']"],
    "double precision[]": ["ARRAY['NaN', '-0', 5e-324, 0.1::float8 + 0.2::float8]::float8[]"],
    "bytea[]": [r"ARRAY['\x00ff'::bytea, '\x', NULL]"],
    "interval[]": ["ARRAY['1 year -2 days'::interval, NULL]"],
    "int4range": ["'empty'", "'[1,5)'", "'(,)'"],
    "numrange": ["'(0.0,1.50]'", "'[NaN,)'"],
    "tstzrange": ["""'["2024-10-27 02:30+02","2024-10-27 02:30+01")'""", "'[infinity,infinity]'"],
    "daterange": ["'[2024-02-29,infinity)'"],
    "int8multirange": ["'{[1,3), [5,)}'", "'{}'"],
    "tsrange[]": ["""ARRAY['[2024-01-01,)'::tsrange, NULL, 'empty']"""],
    "public.mood": ["'sad'", "'it''s ok'", """'Very "happy"'"""],
    "public.mood[]": ["""ARRAY['it''s ok', NULL, 'Very "happy"']::public.mood[]"""],
    "public.positive": ["1", "2147483647"],
    "public.pair": ["(1, '')", "(NULL, NULL)", r"""(2, E'q"''\\,()\n')"""],
    "public.pairs": [r"""ARRAY[(1, 'a"b'), NULL, (NULL, E'\\')]::public.pair[]"""],
    "point": ["'(0.1,-0)'", "'(Infinity,NaN)'"],
    "line": ["'{1,-1,0.5}'"],
    "lseg": ["'[(0,0),(0.1,5e-324)]'"],
    "box": ["'(1.5,2),(0,0)'"],
    "path": ["'[(0,0),(1,1),(2,0)]'", "'((0,0),(1,1))'"],
    "polygon": ["'((0,0),(1,1),(2,0.3))'"],
    "circle": ["'<(0,0.1),1e-10>'"],
    "tsvector": ["""'a:1A ''it''''s'':2,3 "q":4'""", "''"],
    "tsquery": ["'fat & (rat | !cat:ab) <-> dog'", "''"],
    "pg_lsn": ["'16/B374D848'", "'0/0'"],
    "oid": ["4294967295", "0"],
    "regclass": ["'pg_catalog.pg_class'", "'public.\"Other table\"'", "'elsewhere.here'", "0"],
    "regtype": ["'integer'", "'public.mood'", "'timestamptz(3)'"],
    "regprocedure": ["'pg_catalog.abs(integer)'"],
    "jsonpath": ["'$.a[*] ? (@ > 1 && @.b == \"x\")'", "'strict $'"],
    "xid8": ["'18446744073709551615'"],
    "txid_snapshot": ["'10:20:10,14,15'"],
    "pg_snapshot": ["'10:20:10'"],
    "tid": ["'(4294967295,65535)'"],
    "int2vector": ["'1 2 3'"],
}
"""Types in SQL, and their values in SQL; a table row takes one of each, in turn."""

_ROWS = max(len(values) for values in _VALUES.values())


def _columns() -> list[str]:
    return [f"v{number}" for number in range(len(_VALUES))]


def _create(table: str) -> str:
    columns = ", ".join(f"{name} {type_name}" for name, type_name in zip(_columns(), _VALUES, strict=True))
    return (
        f"CREATE TABLE {table} (id integer PRIMARY KEY, {columns}, "
        "named public.named DEFAULT 'x', large text STORAGE EXTERNAL)"
    )


def _row(number: int) -> list[str]:
    return [values[number % len(values)] for values in _VALUES.values()]


def _insert(table: str, key: int, values: Sequence[str], large: int | None) -> str:
    return f"INSERT INTO {table} VALUES ({key}, {', '.join(values)}, 'n{key}', {_large(large)})"


def _update(table: str, key: int, values: Sequence[str], extra: str = "") -> str:
    pairs = ", ".join(f"{name} = {value}" for name, value in zip(_columns(), values, strict=True))
    return f"UPDATE {table} SET {pairs}{extra} WHERE id = {key}"


def _large(seed: int | None) -> str:
    """Return a megabyte that cannot be compressed."""
    return "NULL" if seed is None else f"'{random.Random(seed).randbytes(512 * 1024).hex()}'"


_NULLS = ["NULL"] * len(_VALUES)


def _changes(table: str) -> Iterator[str]:
    """Yield every way in which a value can come to its row, each the last one of some row."""
    for number in range(_ROWS):
        yield _insert(table, number, _row(number), None)
        yield _insert(table, 100 + number, _row(number), None)
        yield _update(table, 100 + number, _row(number + 1), f", named = 'm{number}'")
        yield _insert(table, 500 + number, _row(number), None)
    yield _insert(table, 200, _row(0), None)
    yield _update(table, 200, _NULLS)
    yield _insert(table, 201, _NULLS, None)
    yield _update(table, 201, _row(1))
    # Once more as it is, and a TOASTed value that stays while the others change.
    yield _insert(table, 300, _row(2), 1)
    yield _update(table, 300, _row(2))
    yield _update(table, 300, _row(3))
    yield _insert(table, 301, _row(3), 2)
    yield f"UPDATE {table} SET large = {_large(3)} WHERE id = 301"
    yield _insert(table, 302, _row(4), 4)
    yield f"UPDATE {table} SET large = NULL WHERE id = 302"
    yield f"UPDATE {table} SET id = 1303, large = {_large(5)} WHERE id = 201"
    yield _insert(table, 303, _row(5), 6)
    yield f"UPDATE {table} SET id = 1304 WHERE id = 303"
    yield f"DELETE FROM {table} WHERE id BETWEEN 500 AND 600 OR id = 200"


_ARTICLES: list[Mapping[str, object]] = [
    {"source": "public.called"},
    {"source": "public.stated", "ins_cmd": "SQL", "upd_cmd": "SQL", "del_cmd": "SQL"},
    {"source": "public.plain", "replica_identity": "default"},
]


_TABLES = [str(article["source"]) for article in _ARTICLES]


def every_type_site(databases: Databases, tmp_path: Path, spark: Any = None, **subscription: object) -> Site:
    """Return a site of three empty tables that have a column of every type; it is not set up."""
    settings = {"name": "reporting", "connection": "subscriber", **subscription}
    site = Site(databases, tmp_path / "store", _ARTICLES, spark, [settings])
    at_both_ends(
        databases,
        TYPES,
        'CREATE TABLE public."Other table" ()',
        "CREATE SCHEMA elsewhere",
        "CREATE TABLE elsewhere.here ()",
    )
    site.at_publisher(*(_create(table) for table in _TABLES))
    return site


def at_both_ends(databases: Databases, *statements: str) -> None:
    for connection in (databases.publisher, databases.subscriber):
        execute(connection, *statements)


def change_every_value(site: Site) -> None:
    """Make every change at the Publisher, whatever its database's own settings are."""
    for table in _TABLES:
        site.at_publisher(
            "SET standard_conforming_strings = on",
            "SET DateStyle = 'ISO, YMD'",
            "SET array_nulls = on",
            "SET xmloption = content",
            "SET TimeZone = 'UTC'",
            *_changes(table),
        )


def set_other_defaults(connection: Connection) -> None:
    assert connection.database is not None
    for name, value in settable(connection, _OTHER_DEFAULTS).items():
        statement = sql.SQL("ALTER DATABASE {} SET {} = {}").format(
            sql.Identifier(connection.database),
            sql.Identifier(name.lower()),
            sql.SQL(value) if name == "search_path" else sql.Literal(value),
        )
        execute(connection, statement.as_string(None))


def settable(connection: Connection, settings: Mapping[str, str]) -> Mapping[str, str]:
    """Return the settings without what a server from PostgreSQL 19 on has one value of alone."""
    ((version,),) = execute(connection, "SHOW server_version_num")
    fixed = {"standard_conforming_strings", "escape_string_warning"} if int(version) >= 190000 else set()
    return {name: value for name, value in settings.items() if name not in fixed}


def read_plainly(connection: Connection) -> Connection:
    """Return the connection with settings of our own."""
    return replace(connection, options={"options": _READING})


def _content(connection: Connection, table: str) -> dict[str, list[str | None]]:
    """Return every row in text form, by key."""
    reading = read_plainly(connection)
    columns = execute(
        reading,
        f"SELECT attname FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attnum > 0 ORDER BY attnum",
    )
    values = ", ".join(f'"{name}"::text' if name != "id" else "id::text" for (name,) in columns)
    return {row[0]: list(row[1:]) for row in execute(reading, f"SELECT {values} FROM {table}")}


def differing_values(site: Site) -> list[str]:
    """Return table, row, type and both ends' text, shortened, of each value that differs."""
    return [line for table in _TABLES for line in _differences(site.databases, table)]


def _differences(databases: Databases, table: str) -> list[str]:
    publisher, subscriber = _content(databases.publisher, table), _content(databases.subscriber, table)
    assert publisher
    named = [*_VALUES, "named", "large"]
    found = [f"{table} {key}: only at one end" for key in publisher.keys() ^ subscriber.keys()]
    for key in sorted(publisher.keys() & subscriber.keys(), key=int):
        for at, (one, other) in enumerate(zip(publisher[key], subscriber[key], strict=True)):
            if one != other:
                found.append(f"{table} {key} {named[at]}: {str(one)[:60]} | {str(other)[:60]}")
    return found
