"""Values of every built-in type arrive as they left, byte for byte in text form."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql

from conftest import DatabasesFactory
from support.databases import Databases
from support.embedded_postgres import PostgresServer
from support.in_process import deliver_stored, read_log_into_store
from support.site import Site, execute
from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError
from tranrepl.postgres.session import connect
from tranrepl.publisher.postgres.binary_messages import TextForm
from tranrepl.publisher.postgres.log_messages import ValueForm, log_messages
from tranrepl.subscriber.batching import staging

# What both ends are read with: it must not be the product's own choice.
_READING = (
    "-c DateStyle=ISO,YMD -c IntervalStyle=postgres -c TimeZone=UTC -c extra_float_digits=3 -c bytea_output=hex "
    "-c lc_monetary=C -c search_path=pg_catalog"
)

# Text of these is another one, or another value, unless a session says how it is meant.
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

# Type in SQL, then values in SQL; a table row takes one of each, in turn.
VALUES: dict[str, Sequence[str]] = {
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

_ROWS = max(len(values) for values in VALUES.values())


def _columns() -> list[str]:
    return [f"v{number}" for number in range(len(VALUES))]


def _create(table: str) -> str:
    columns = ", ".join(f"{name} {type_name}" for name, type_name in zip(_columns(), VALUES, strict=True))
    return (
        f"CREATE TABLE {table} (id integer PRIMARY KEY, {columns}, "
        "named public.named DEFAULT 'x', large text STORAGE EXTERNAL)"
    )


def _row(number: int) -> list[str]:
    return [values[number % len(values)] for values in VALUES.values()]


def _insert(table: str, key: int, values: Sequence[str], large: int | None) -> str:
    return f"INSERT INTO {table} VALUES ({key}, {', '.join(values)}, 'n{key}', {_large(large)})"


def _update(table: str, key: int, values: Sequence[str], extra: str = "") -> str:
    pairs = ", ".join(f"{name} = {value}" for name, value in zip(_columns(), values, strict=True))
    return f"UPDATE {table} SET {pairs}{extra} WHERE id = {key}"


def _large(seed: int | None) -> str:
    """A megabyte that cannot be compressed."""
    return "NULL" if seed is None else f"'{random.Random(seed).randbytes(512 * 1024).hex()}'"


_NULLS = ["NULL"] * len(VALUES)


def _work(table: str) -> Iterator[str]:
    """Every way a value can come to its row, each the last one of some row."""
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


ARTICLES: list[Mapping[str, object]] = [
    {"source": "public.called"},
    {"source": "public.stated", "ins_cmd": "SQL", "upd_cmd": "SQL", "del_cmd": "SQL"},
    {"source": "public.plain", "replica_identity": "default"},
]


def _at_both_ends(databases: Databases, *statements: str) -> None:
    for connection in (databases.publisher, databases.subscriber):
        execute(connection, *statements)


def _set_other_defaults(connection: Connection) -> None:
    assert connection.database is not None
    for name, value in _OTHER_DEFAULTS.items():
        statement = sql.SQL("ALTER DATABASE {} SET {} = {}").format(
            sql.Identifier(connection.database),
            sql.Identifier(name.lower()),
            sql.SQL(value) if name == "search_path" else sql.Literal(value),
        )
        execute(connection, statement.as_string(None))


def _read_plainly(connection: Connection) -> Connection:
    return replace(connection, options={"options": _READING})


def _content(connection: Connection, table: str) -> dict[str, list[str | None]]:
    """Every row in text form, by key."""
    reading = _read_plainly(connection)
    columns = execute(
        reading,
        f"SELECT attname FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attnum > 0 ORDER BY attnum",
    )
    values = ", ".join(f'"{name}"::text' if name != "id" else "id::text" for (name,) in columns)
    return {row[0]: list(row[1:]) for row in execute(reading, f"SELECT {values} FROM {table}")}


def _differences(databases: Databases, table: str) -> list[str]:
    """Row, type, and both ends' text, shortened."""
    publisher, subscriber = _content(databases.publisher, table), _content(databases.subscriber, table)
    assert publisher
    named = [*VALUES, "named", "large"]
    found = [f"{table} {key}: only at one end" for key in publisher.keys() ^ subscriber.keys()]
    for key in sorted(publisher.keys() & subscriber.keys(), key=int):
        for at, (one, other) in enumerate(zip(publisher[key], subscriber[key], strict=True)):
            if one != other:
                found.append(f"{table} {key} {named[at]}: {str(one)[:60]} | {str(other)[:60]}")
    return found


@pytest.mark.spark
@pytest.mark.parametrize("defaults", ["same", "other"])
def test_every_type_arrives_as_it_left(defaults: str, databases: DatabasesFactory, tmp_path: Path, spark: Any) -> None:
    site = Site(databases(), tmp_path / "store", ARTICLES, spark)
    _at_both_ends(
        site.databases,
        TYPES,
        'CREATE TABLE public."Other table" ()',
        "CREATE SCHEMA elsewhere",
        "CREATE TABLE elsewhere.here ()",
    )
    tables = [str(article["source"]) for article in ARTICLES]
    site.at_publisher(*(_create(table) for table in tables))
    if defaults == "other":
        # Where names are found differs too.
        _set_other_defaults(site.databases.publisher)
        site.set_up()
        _set_other_defaults(site.databases.subscriber)
        site.at_subscriber(f'ALTER DATABASE "{site.databases.subscriber.database}" SET search_path = public')
    else:
        site.set_up()
    for table in tables:
        site.at_publisher(
            "SET standard_conforming_strings = on",
            "SET DateStyle = 'ISO, YMD'",
            "SET array_nulls = on",
            "SET xmloption = content",
            "SET TimeZone = 'UTC'",
            *_work(table),
        )
    site.run()
    assert [line for table in tables for line in _differences(site.databases, table)] == []


def test_every_type_is_read_in_binary_as_in_text(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = Site(databases(), tmp_path / "store", ARTICLES)
    _at_both_ends(
        site.databases,
        TYPES,
        'CREATE TABLE public."Other table" ()',
        "CREATE SCHEMA elsewhere",
        "CREATE TABLE elsewhere.here ()",
    )
    tables = [str(article["source"]) for article in ARTICLES]
    site.at_publisher(*(_create(table) for table in tables))
    site.set_up()
    for table in tables:
        site.at_publisher("SET TimeZone = 'UTC'", *_work(table))
    publisher = site.databases.publisher
    slot, start, up_to = site.at_publisher(
        "SELECT slot_name, confirmed_flush_lsn - '0/0'::pg_lsn, pg_current_wal_flush_lsn() - '0/0'::pg_lsn "
        "FROM pg_replication_slots WHERE database = current_database()"
    )[0]
    read = partial(log_messages, publisher, str(slot), int(str(start)), [int(str(up_to))])
    in_text = [message for batch in read() for message in batch.to_pylist()]
    with connect(publisher, "test", autocommit=True) as session:
        session.execute("SET search_path = pg_catalog")
        with closing(read(ValueForm.BINARY)) as batches:
            converted = [it for batch in TextForm(session)(batches) for it in batch.to_pylist()]
    assert len(in_text) > 100
    assert converted == in_text


def test_every_type_arrives_out_of_an_array(
    databases: DatabasesFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As commands of tables do that are too wide for a staging table."""
    monkeypatch.setattr(staging, "_MOST_ARGUMENTS", 0)
    by_commands = {"name": "reporting", "connection": "subscriber", "apply": "serial"}
    site = Site(databases(), tmp_path / "store", ARTICLES, subscriptions=[by_commands])
    _at_both_ends(
        site.databases,
        TYPES,
        'CREATE TABLE public."Other table" ()',
        "CREATE SCHEMA elsewhere",
        "CREATE TABLE elsewhere.here ()",
    )
    tables = [str(article["source"]) for article in ARTICLES]
    site.at_publisher(*(_create(table) for table in tables))
    site.set_up()
    for table in tables:
        site.at_publisher("SET TimeZone = 'UTC'", *_work(table))
    read_log_into_store(site).raise_error()
    delivered = deliver_stored(site)
    delivered.raise_error()
    assert (delivered.commands > 100, delivered.in_bulk) == (True, 0)
    assert [line for table in tables for line in _differences(site.databases, table)] == []


# Types that may be a key: two values, and a third that the first becomes. Equal ones of another text among them.
KEYS: dict[str, Sequence[str]] = {
    "smallint": ["1", "2", "-3"],
    "bigint": ["-9223372036854775808", "9223372036854775807", "0"],
    "numeric": ["1.0", "'NaN'", "1.00"],
    "real": ["'-0'", "'NaN'", "'0'"],
    "double precision": ["0.1::float8 + 0.2::float8", "5e-324::float8", "0.3"],
    "money": ["'1234.5'", "'-0.01'", "'0'"],
    "boolean": ["true", "false", "true"],
    "char(5)": ["'ab'", "''", "'a'"],
    "varchar(12)": ["''", r"E'\\N'", "' '"],
    "text": [r"E'\n\\.\n'", "'NULL'", "'😀'"],
    '"char"': ["'x'", "''", "'y'"],
    "name": ["'n'", "repeat('n', 63)", "''"],
    "bytea": [r"'\x'", r"'\x5c00'", r"'\x5c'"],
    "date": ["'infinity'", "'4713-01-01 BC'", "'2024-02-29'"],
    "timestamptz": ["'2024-10-27 02:30+02'", "'-infinity'", "'2024-10-27 02:30+01'"],
    "time": ["'24:00'", "'0:00'", "'1:00'"],
    "timetz": ["'24:00+15:59:59'", "'1:00-11'", "'1:00+11'"],
    "interval": ["'1 day'", "'1 month -1 day'", "'24 hours'"],
    "uuid": ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "'" + "0" * 32 + "'", "'" + "f" * 32 + "'"],
    "jsonb": ["""'{"a": 1.0}'""", "'null'", """'{"a": 1.00}'"""],
    "inet": ["'10.0.0.1/8'", "'::1'", "'10.0.0.1'"],
    "macaddr": ["'08:00:2b:01:02:03'", "'08:00:2b:01:02:04'", "'08:00:2b:01:02:05'"],
    "bit(3)": ["B'101'", "B'000'", "B'111'"],
    "bit varying": ["B''", "B'0'", "B'00'"],
    "text[]": ["ARRAY['a,b', NULL]", "'{}'", """ARRAY['"']"""],
    "int4range": ["'empty'", "'[1,5)'", "'(,)'"],
    "int4multirange": ["'{}'", "'{[1,5)}'", "'{(,)}'"],
    "public.mood": ["'sad'", "'it''s ok'", """'Very "happy"'"""],
    "public.positive": ["1", "2", "3"],
    "public.pair": ["(1, '')::public.pair", r"(2, E'\\,')::public.pair", """(2, 'q"')::public.pair"""],
    "tsvector": ["'a:1'", "''", "'a:2'"],
    "pg_lsn": ["'16/B374D848'", "'0/0'", "'0/1'"],
    "oid": ["'4294967295'", "'0'", "'1'"],
    "xid8": ["'18446744073709551615'", "'0'", "'1'"],
    "tid": ["'(1,2)'", "'(0,1)'", "'(1,3)'"],
}


def _work_by_key(table: str, values: Sequence[str]) -> list[str]:
    first, second, third = values
    return [
        f"INSERT INTO {table} VALUES ({first}, 1, 1), ({second}, 1, 1)",
        f"UPDATE {table} SET v = 2 WHERE id = {second}",
        f"UPDATE {table} SET id = {third} WHERE id = {first}",
        f"UPDATE {table} SET v = 3 WHERE id = {third}",
        f"INSERT INTO {table} VALUES ({third}, 2, 1), ({second}, 2, 1)",
        f"DELETE FROM {table} WHERE part = 2 AND id = {second}",
    ]


@pytest.mark.spark
@pytest.mark.parametrize("identity", ["full", "default"])
def test_a_key_of_any_type_finds_its_row(
    identity: str, databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    tables = [f"public.key{at}" for at in range(len(KEYS))]
    articles = [{"source": table, "replica_identity": identity} for table in tables]
    site = Site(databases(), tmp_path / "store", articles, spark)
    _at_both_ends(site.databases, TYPES)
    site.at_publisher(
        *(
            f"CREATE TABLE {table} (id {type_name}, part int, v int, PRIMARY KEY (part, id))"
            for table, type_name in zip(tables, KEYS, strict=True)
        )
    )
    site.set_up()
    for table, values in zip(tables, KEYS.values(), strict=True):
        site.at_publisher(*_work_by_key(table, values))
    site.run()
    found = zip(KEYS, tables, strict=True)
    assert [type_name for type_name, table in found if not _same_keys(site.databases, table)] == []


def _same_keys(databases: Databases, table: str) -> bool:
    contents = [
        sorted(execute(_read_plainly(connection), f"SELECT id::text, part, v FROM {table}"))
        for connection in (databases.publisher, databases.subscriber)
    ]
    return contents[0] == contents[1] and len(contents[0]) == 3


def test_a_type_that_the_subscriber_lacks_stops_the_setup(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = Site(databases(), tmp_path / "store", ["public.t"])
    site.at_publisher(TYPES, "CREATE TABLE t (id int PRIMARY KEY, n numeric(9, 2), m public.mood, p public.pair[])")
    with pytest.raises(ConfigurationError) as refused:
        site.set_up()
    assert refused.value.message == (
        "article public.t: Subscriber reporting: column 'm': type public.mood does not exist"
    )
    assert refused.value.report.remedy
    assert site.at_publisher("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()") == []
    assert site.at_publisher("SELECT pubname FROM pg_publication") == []
    assert site.at_subscriber("SELECT to_regclass('public.t')") == [(None,)]


@pytest.mark.spark
def test_the_failing_command_is_named_whatever_the_defaults(
    databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    site = Site(databases(), tmp_path / "store", ["public.t"], spark)
    site.at_publisher("CREATE TABLE t (id int PRIMARY KEY, v int)")
    site.set_up()
    _set_other_defaults(site.databases.subscriber)
    site.at_publisher("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    site.run()
    site.at_subscriber("DELETE FROM t WHERE id = 2")
    site.at_publisher("UPDATE t SET v = 5")
    site.read_log().raise_error()
    error = site.deliver().error
    assert error is not None
    assert (error.number, error.command_id, error.article) == ("20598", 2, "public.t")
    assert error.message.endswith("for Table 'public.t' with Primary Key(s): id = 2")
    assert site.at_subscriber("SELECT * FROM t ORDER BY id") == [(1, 1), (3, 3)]


XML = ["'<a b=\"c\">&amp; <![CDATA[x]]></a>'", "'text <b/> more'", "'<?xml version=\"1.0\"?><a>é</a>'", "''"]


@pytest.mark.spark
def test_xml_arrives_as_it_left(
    databases: DatabasesFactory, debian_postgres: PostgresServer, tmp_path: Path, spark: Any
) -> None:
    """The embedded server is built without libxml."""
    site = Site(
        databases(publisher=debian_postgres, subscriber=debian_postgres), tmp_path / "store", ["public.x"], spark
    )
    site.at_publisher("CREATE TABLE x (id int PRIMARY KEY, v xml, vs xml[])")
    site.set_up()
    database = site.databases.subscriber.database
    site.at_subscriber(f'ALTER DATABASE "{database}" SET xmloption = document')
    site.at_publisher(
        *(f"INSERT INTO x VALUES ({at}, {value}, ARRAY[{value}, NULL]::xml[])" for at, value in enumerate(XML)),
        "UPDATE x SET v = '<!DOCTYPE a><a/>' WHERE id = 1",
        "UPDATE x SET v = NULL WHERE id = 0",
        "DELETE FROM x WHERE id = 2",
    )
    site.run()
    assert site.differences() == []
