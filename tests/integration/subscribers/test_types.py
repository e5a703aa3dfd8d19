"""Values between unlike databases: exactly, or refused with article, column and key; never changed in silence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, timedelta
from itertools import zip_longest
from typing import Any

import pytest

from conftest import DatabaseFactory
from support.command_history import Column, History, seqno
from support.schema_changes import added, change
from support.subscribers import Site
from tranrepl.errors import ErrorKind
from tranrepl.postgres.session import Session, connect
from tranrepl.settings.publication import Apply
from tranrepl.subscriber.applier_options import ApplierOptions

# Type at the Publisher, then values in SQL.
VALUES: dict[str, Sequence[str]] = {
    "boolean": ["true", "false"],
    "smallint": ["-32768", "32767", "0"],
    "integer": ["-2147483648", "2147483647", "0"],
    "bigint": ["-9223372036854775808", "9223372036854775807"],
    "oid": ["4294967295"],
    "numeric(10,2)": ["99999999.99", "-0.01", "0", "1.10"],
    "numeric(3,5)": ["0.00999", "-0.00001"],
    "numeric(3,-2)": ["99900", "-100"],
    "numeric(38,10)": ["9999999999999999999999999999.9999999999", "-0.0000000001", "1"],
    "numeric": ["1.10", "1.100", "12345678901234567890.123456789", "0", "-0.000000000000001"],
    "real": ["1e-45::real", "3.4028235e38", "0", "0.1", "16777217", "'-0'", "1.17549435e-38"],
    "double precision": ["1.7976931348623157e308", "0.1::float8 + 0.2::float8", "'-0'", "0", "2.2250738585072014e-308"],
    "money": ["'-92233720368547758.08'", "'1234.5'", "0"],
    "text": [
        "''",
        "'NULL'",
        r"E'\\N'",
        r"E'a\tb\r\n\\\b\f\x01'",
        "'quote '' and \" and `'",
        "'😀 𝄞 é'",
        "' '",
        "'a  '",
    ],
    "character varying(20)": ["''", "'%s %(x)s :p'", "'ends in blanks   '", "'ÄÖÜ'"],
    "character varying(3000)": ["repeat('x', 3000)", "''"],
    "character(5)": ["'ab'", "''", "'  é'"],
    "bytea": [r"'\x'", r"'\x00'", r"'\x5c5c00ff0a27'", "decode(repeat('00ff', 5000), 'hex')"],
    "date": ["'0001-01-01'", "'1582-10-10'", "'2000-02-29'", "'9999-12-31'"],
    "time without time zone": ["'00:00'", "'23:59:59.999999'", "'12:00:00.5'"],
    "time(0) without time zone": ["'12:34:56'"],
    "time with time zone": ["'12:34:56.789+05:30'"],
    "timestamp without time zone": ["'0001-01-01 00:00'", "'9999-12-31 23:59:59.999999'", "'1969-12-31 23:59:59.5'"],
    "timestamp(3) without time zone": ["'2024-03-31 02:30:00.123'"],
    "timestamp with time zone": ["'2024-03-31 02:30:00.000001+02'", "'1883-11-18 12:03:58-00:00:01'"],
    "interval": ["'1 year 2 mons -3 days 04:05:06.789'"],
    "uuid": ["'00000000-0000-0000-0000-000000000000'", "'f81d4fae-7dec-11d0-a765-00a0c91e6bf6'"],
    "json": ["""'{"b": 1, "a": [1.10, null, "\\u00e9 \\\\ "], "a": 2}'"""],
    "jsonb": ["""'{"b": 1e400, "a": [1.10, null]}'"""],
    "integer[]": ["'{1,NULL,3}'", "'{}'"],
    "text[]": ["ARRAY['a,b', '\"', NULL, 'NULL', '']"],
    "int4range": ["'[1,10)'", "'empty'"],
    "inet": ["'192.168.0.1/24'", "'::1'"],
    "point": ["'(0.1,-2)'"],
    "bit(10)": ["B'1010101010'"],
    "bit varying(9)": ["B'101'", "B''"],
    "tsvector": ["'a fat cat'::tsvector"],
}
_WITHOUT_KEYS = ("json", "point")
_IN_NUMBERS = {"boolean": ["1", "0"]}
"""Text forms of a `tinyint(1)` of MariaDB."""
# Values that are one key with another one. SQL Server adds blanks and zeros to compare what has unlike lengths.
_SAME_KEY = {
    "boolean": ["1", "0"],
    "numeric": ["1.100"],
    "real": ["-0"],
    "double precision": ["-0"],
    "mssql bytea": ["\\x00"],
    "mssql text": [" "],
}


@pytest.fixture
def publisher(database: DatabaseFactory) -> Iterator[Session]:
    with connect(database("publisher"), "test", autocommit=True) as session:
        yield session


def _texts(publisher: Session, type_name: str, values: Sequence[str]) -> list[str]:
    """Return text forms, as the log has them."""
    row = publisher.execute(
        "SELECT " + ", ".join(f"(SELECT v::text FROM (SELECT ({value})::{type_name} AS v) q)" for value in values)
    ).fetchone()
    assert row is not None
    # A cast to text is not the type's text form, which the log holds, where blanks are padding and for truth values.
    forms = {"character(5)": lambda text: text.ljust(5), "boolean": lambda text: text[0]}
    return [*(forms.get(type_name, str)(text) for text in row), *_IN_NUMBERS.get(type_name, ())]


def _back(value: Any) -> str:
    """Return what a reader of the Subscriber would write to PostgreSQL."""
    match value:
        case bytes():
            return f"\\x{value.hex()}"
        case timedelta():
            return str(value)
        case datetime() | date():
            return value.isoformat()
        case float():
            return repr(value)
        case _:
            return str(value)


def _same(publisher: Session, type_name: str, text: str, value: Any) -> bool:
    comparable = "::text" if type_name in _WITHOUT_KEYS else ""
    row = publisher.execute(
        f"SELECT (%s::{type_name}){comparable} = (%s::{type_name}){comparable}",
        [text, _back(value)],
    ).fetchone()
    return row == (True,)


@pytest.fixture
def unlike_site(plain_site: Site) -> Site:
    if plain_site.kind.database == "postgres":
        pytest.skip("PostgreSQL is no unlike database")
    return plain_site


def test_a_column_that_is_there_as_setup_makes_it_is_not_added_again(unlike_site: Site) -> None:
    site, key = unlike_site, Column("id", "integer", key=1)
    columns = [Column(f"c{at}", type_name) for at, type_name in enumerate(VALUES)]
    site.article("t", [key, *columns])
    old = site.article("t", [key])
    history = History().insert(old, ["1"])
    history.schema(change(old, site.next_definition(old, [key, *columns]), *map(added, columns)))
    site.deliver(history).raise_error()
    assert site.execute("SELECT * FROM t") == [(1, *[None] * len(columns))]


def test_every_value_comes_back_equal(unlike_site: Site, publisher: Session) -> None:
    site = unlike_site
    columns = [Column(f"c{at}", type_name) for at, type_name in enumerate(VALUES)]
    article = site.article("t", [Column("id", "integer", key=1), *columns])
    texts = [_texts(publisher, type_name, expressions) for type_name, expressions in VALUES.items()]
    images = list(zip_longest(*texts))
    for xact, apply in enumerate((Apply.SERIAL, Apply.AUTO)):
        history = History(xact=xact).transaction()
        for row, image in enumerate(images, 1000 * xact):
            nulls: list[str | None] = [str(row), *[None] * len(image)]
            history.insert(article, nulls).update(article, nulls, [str(row), *image])
        site.deliver(history, site.watermark(), options=ApplierOptions(apply=apply)).raise_error()
        stored = site.execute(f"SELECT * FROM t WHERE id >= {1000 * xact} ORDER BY id")
        assert len(stored) == len(images)
        failed = [
            (type_name, text[:40], row[at])
            for at, type_name in enumerate(VALUES, 1)
            for text, row in zip(texts[at - 1], stored, strict=False)
            if not _same(publisher, type_name, text, row[at])
        ]
        assert (apply, failed) == (apply, [])


def test_every_value_is_found_as_a_key(unlike_site: Site, publisher: Session) -> None:
    # Values that PostgreSQL's equality calls one row are that row at the Subscriber.
    site, kept = unlike_site, [it for it in VALUES if it not in _WITHOUT_KEYS]
    columns = {name: [Column("value", name, key=1), Column("note")] for name in kept}
    articles = site.set_up({f"k{at}": it for at, it in enumerate(columns.values())})
    texts = [_key_texts(site, publisher, type_name) for type_name in kept]
    updated, deleted = History(), History(xact=1)
    for article, of_type in zip(articles, texts, strict=True):
        for text in of_type:
            updated.insert(article, [text, None]).update(article, [text, None], [text, "found"])
            deleted.delete(article, [text, "found"])
    site.deliver(updated, options=ApplierOptions(apply=Apply.SERIAL)).raise_error()
    found = [site.execute(f"SELECT COUNT(*) FROM k{at} WHERE note = 'found'")[0][0] for at in range(len(kept))]
    assert found == list(map(len, texts))
    result = site.deliver(deleted, site.watermark())
    assert (result.error, result.fallbacks) == (None, {})
    assert result.in_bulk == (0 if site.kind.database == "sqlite" else len(deleted.rows))
    assert [site.rows(f"k{at}") for at in range(len(kept))] == [[] for _ in kept]


def _key_texts(site: Site, publisher: Session, type_name: str) -> list[str]:
    """Return the type's values that are keys of their own."""
    texts = [text for text in _texts(publisher, type_name, VALUES[type_name]) if len(text) <= 255]
    same = [it for name in (type_name, f"{site.kind.database} {type_name}") for it in _SAME_KEY.get(name, ())]
    return [text for text in texts if text not in same]


def test_bulk_stores_every_value_as_serial_apply_does(mariadb_site: Site, publisher: Session) -> None:
    site, history, stored = mariadb_site, History(), {}
    texts = [_texts(publisher, type_name, expressions) for type_name, expressions in VALUES.items()]
    for number, type_name in enumerate(VALUES):
        article = site.article(f"t{number}", [Column("id", "integer", key=1), Column("value", type_name)])
        for at, text in enumerate(texts[number]):
            history.update(article, [str(at), None], [str(at), text]).insert(article, [str(at + 100), text])
    before = [
        statement
        for number, of_type in enumerate(texts)
        for statement in (
            f"DELETE FROM t{number}",
            *(f"INSERT INTO t{number} VALUES ({at}, NULL)" for at in range(len(of_type))),
        )
    ]
    for apply in (Apply.SERIAL, Apply.AUTO):
        site.execute("UPDATE msreplication_subscriptions SET transaction_timestamp = UNHEX(REPEAT('00', 8))", *before)
        result = site.deliver(history, options=ApplierOptions(apply=apply))
        assert (result.error, result.fallbacks) == (None, {})
        assert result.in_bulk == (len(history.rows) if apply is Apply.AUTO else 0)
        stored[apply] = {
            type_name: site.execute(f"SELECT id, HEX(CONCAT(value)) FROM t{number} ORDER BY id")
            for number, type_name in enumerate(VALUES)
        }
    assert stored[Apply.AUTO] == stored[Apply.SERIAL]


# Type at the Publisher, value in SQL.
UNFIT = [
    ("numeric", "'NaN'"),
    ("numeric", "'Infinity'"),
    ("numeric(10,2)", "'NaN'"),
    ("numeric", "1e60"),
    ("numeric", "1e-40"),
    ("real", "'NaN'"),
    ("real", "'-Infinity'"),
    ("double precision", "'NaN'"),
    ("double precision", "'Infinity'"),
    ("date", "'infinity'"),
    ("date", "'0044-03-15 BC'"),
    ("date", "'10000-01-01'"),
    ("time without time zone", "'24:00:00'"),
    ("timestamp without time zone", "'-infinity'"),
    ("timestamp without time zone", "'294276-12-31 23:59:59'"),
    ("timestamp with time zone", "'infinity'"),
    ("timestamp with time zone", "'0001-12-31 23:00:00 BC'"),
]


@pytest.mark.parametrize(("type_name", "expression"), UNFIT)
def test_a_value_that_mariadb_cannot_hold_names_article_column_and_key(
    mariadb_site: Site, publisher: Session, type_name: str, expression: str
) -> None:
    (text,) = _texts(publisher, type_name, [expression])
    site = mariadb_site
    article = site.article("t", [Column("id", "integer", key=1), Column("value", type_name)])
    history = History().insert(article, ["1", None]).insert(article, ["2", text]).insert(article, ["3", None])
    _assert_refused(site, history, "2", 2)


# What a table of the Subscriber's own declares, type at the Publisher, value in text form.
NARROWER = [
    ("varchar(3)", "text", "abcd"),
    ("varchar(3)", "text", "abc "),
    ("char(5)", "text", "ab "),
    ("decimal(5,2)", "numeric", "1.235"),
    ("decimal(5,2)", "numeric", "1000"),
    ("datetime", "timestamp without time zone", "2024-01-01 00:00:00.5"),
    ("datetime(3)", "timestamp without time zone", "2024-01-01 00:00:00.0005"),
    ("timestamp", "timestamp with time zone", "1969-01-01 00:00:00+00"),
    ("timestamp", "timestamp with time zone", "2040-01-01 00:00:00+00"),
    ("date", "timestamp without time zone", "2024-01-01 00:00:01"),
    ("time", "time without time zone", "00:00:00.000001"),
    ("tinyint", "integer", "300"),
    ("int", "bigint", "2147483648"),
    ("int", "numeric", "1.5"),
    ("int unsigned", "integer", "-1"),
    ("float", "double precision", "0.1"),
    ("double", "numeric", "0.12345678901234567"),
    ("varbinary(2)", "bytea", "\\x010203"),
    ("binary(3)", "bytea", "\\x0102"),
    ("varchar(10) CHARACTER SET latin1", "text", "𝄞"),
    ("varchar(10) CHARACTER SET utf8mb3", "text", "𝄞"),
    ("enum('a','b')", "text", "c"),
    # What the server would take for another value.
    ("enum('a','b')", "text", "A"),
    ("enum('a','b')", "text", "a "),
    ("enum('a','b')", "text", "2"),
    ("set('a','b')", "text", "b,a"),
    ("set('a','b')", "text", "3"),
    ("year", "integer", "24"),
    ("year", "integer", "0"),
    ("uuid", "text", "F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6"),
    ("double(10,2)", "double precision", "1.005"),
    ("float(10,2)", "real", "1.239"),
    ("int", "text", "007"),
    ("int", "text", "+7"),
    ("int", "text", "-0"),
    ("int", "text", "7.0"),
    ("int", "text", " 7"),
    ("int", "text", "1_0"),
    ("int", "public.mood", "007"),
    ("int", "character(3)", "07 "),
    ("decimal(5,2)", "text", "1.500"),
    ("decimal(5,2)", "text", "1e2"),
    ("decimal(5,2)", "character varying(10)", "-0.00"),
    ("double", "text", "0.10"),
    ("date", "text", "2020-01-01 10:00:00"),
    ("date", "text", "2020-01-01 00:00:00"),
    ("datetime", "text", "2020-01-01"),
    ("datetime", "text", "2020-01-01 10:00:00+00"),
    ("datetime(6)", "text", "2020-01-01 10:00:00.1234567"),
    ("time", "text", "10:00"),
    ("int NOT NULL", "integer", None),
    ("int", "text", "12x"),
    ("blob", "integer[]", "{1}"),
]


@pytest.mark.parametrize(("declared", "type_name", "text"), NARROWER)
def test_a_value_that_a_narrower_column_cannot_hold_is_refused(
    mariadb_site: Site, declared: str, type_name: str, text: str | None
) -> None:
    site = mariadb_site
    site.execute(f"CREATE TABLE t (id int PRIMARY KEY, value {declared})")
    article = site.article("t", [Column("id", "integer", key=1), Column("value", type_name)])
    _assert_refused(site, History().insert(article, ["2", text]), "2", 1)


def test_a_value_that_postgresql_cannot_hold_names_its_columns(make_site: Callable[[str], Site]) -> None:
    columns = {
        # declared, a value that does not fit, and the columns that are named
        "short": ("varchar(3)", "abcd", "short or other"),
        "other": ("varchar(3)", "abcd", "short or other"),
        "price": ("numeric(5,2)", "1000", "price"),
        "day": ("date", "0000-00-00", "day"),
        "sure": ("boolean", "2", "sure"),
        "small": ("smallint", "70000", "small"),
        "state": ("mood", "glad", "state"),
    }
    site = make_site("postgres procedures")
    declared = ", ".join(f"{name} {of}" for name, (of, *_) in columns.items())
    site.execute("CREATE TYPE mood AS ENUM ('sad')", f"CREATE TABLE t (id int PRIMARY KEY, {declared})")
    described = [Column("id", "integer", key=1), *(Column(it, "text") for it in columns)]
    article = site.article("t", described)
    for at, (_, text, named) in enumerate(columns.values(), start=1):
        row: list[str | None] = ["2", *[None] * len(columns)]
        row[at] = text
        error = site.deliver(History().insert(article, row)).error
        assert error is not None
        assert (error.kind, error.article, error.key) == (ErrorKind.DATA, "public.t", "id = 2")
        assert error.message.startswith(f"Subscriber reporting: column {named}: ")


def test_what_fits_a_narrower_column_is_taken(mariadb_site: Site) -> None:
    site = mariadb_site
    fitting = {
        "decimal(5,2)": ("numeric", "1.230"),
        "datetime(3)": ("timestamp without time zone", "2024-01-01 00:00:00.125"),
        "date": ("timestamp without time zone", "2024-01-01 00:00:00"),
        "int": ("numeric", "3.00"),
        "float": ("double precision", "0.5"),
        "char(5)": ("character(5)", "ab   "),
        "json": ("jsonb", '{"a": 1}'),
        "enum('a','b')": ("public.mood", "b"),
        "set('a','b','c')": ("text", "a,c"),
        "year": ("smallint", "2024"),
        "uuid": ("uuid", "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"),
        "decimal(6,2)": ("text", "-1.5"),
        "int(7)": ("character(3)", "-7 "),
        "double(10,2)": ("double precision", "1.25"),
        "datetime(6)": ("text", "2024-01-01 00:00:00.5"),
        "time(6)": ("text", "10:00:00"),
        "bigint unsigned": ("numeric", "18446744073709551615"),
        "bit(1)": ("boolean", "t"),
    }
    columns = ", ".join(f"c{at} {declared}" for at, declared in enumerate(fitting))
    site.execute(f"CREATE TABLE t (id int PRIMARY KEY, {columns})")
    described = [Column(f"c{at}", type_name) for at, (type_name, _) in enumerate(fitting.values())]
    article = site.article("t", [Column("id", "integer", key=1), *described])
    history = History().insert(article, ["1", *(text for _, text in fitting.values())])
    assert site.deliver(history).error is None
    found = site.execute("SELECT * FROM t")[0]
    assert [str(it) for it in found[1:17]] == [
        *("1.23", "2024-01-01 00:00:00.125000", "2024-01-01", "3", "0.5", "ab", '{"a": 1}', "b", "a,c", "2024"),
        *("f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "-1.50", "-7", "1.25", "2024-01-01 00:00:00.500000", "10:00:00"),
    ]
    assert found[17:] == (18446744073709551615, b"\x01")


def test_a_uuid_column_of_mariadb_takes_calls_of_procedures(make_site: Callable[[str], Site]) -> None:
    site, text = make_site("mariadb procedures"), "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"
    site.execute("CREATE TABLE t (id uuid PRIMARY KEY, value enum('a','b'), y year)")
    article = site.article("t", [Column("id", "uuid", key=1), Column("value", "public.mood"), Column("y", "integer")])
    history = History().insert(article, [text, "a", "2024"]).update(article, [text, "a", "2024"], [text, "b", "2025"])
    assert site.deliver(history).error is None
    assert site.rows("t") == [(text, "b", 2025)]


def test_texts_go_in_bulk_into_numbers_where_they_are_read_back_so(mariadb_site: Site) -> None:
    site = mariadb_site
    site.execute("CREATE TABLE t (id int PRIMARY KEY, n int, d decimal(5,2))")
    columns = [Column("id", "text", key=1), Column("n", "text"), Column("d", "character varying(9)")]
    article = site.article("t", columns)
    history = History()
    for at in range(100):
        history.insert(article, [str(at), str(at - 50), f"{at}.5"])
    result = site.deliver(history)
    assert (result.error, result.in_bulk, result.fallbacks) == (None, 100, {})
    error = site.deliver(History(xact=1).insert(article, ["007", "1", "1"]), site.watermark()).error
    assert error is not None
    assert error.message == (
        "Subscriber reporting: column id: '007' does not fit integer: it would be read back as '7' (article public.t, "
        "id = 007)"
    )


def test_sqlite_refuses_decimals_that_a_float_would_round(sqlite_site: Site) -> None:
    site = sqlite_site
    site.execute("CREATE TABLE t (id int PRIMARY KEY, value numeric(38,10))")
    article = site.article("t", [Column("id", "integer", key=1), Column("value", "numeric(38,10)")])
    site.deliver(History().insert(article, ["1", "12345.6789"])).raise_error()
    assert site.rows("t") == [(1, 12345.6789)]
    _assert_refused(site, History(xact=1).transaction().insert(article, ["2", "1234567890.1234567"]), "2", 1)


def _assert_refused(site: Site, history: History, key: str, command_id: int) -> None:
    before = site.watermark()
    error = site.deliver(history, before).error
    assert error is not None
    assert (error.kind, error.article, error.command_id) == (ErrorKind.DATA, "public.t", command_id)
    assert error.xact_seqno == seqno(history.xact).hex()
    assert "value" in error.message
    assert f"id = {key}" in error.message
    assert site.watermark() == before


def test_the_text_of_a_value_is_not_repeated_without_end(mariadb_site: Site) -> None:
    site = mariadb_site
    site.execute("CREATE TABLE t (id int PRIMARY KEY, value varchar(10))")
    article = site.article("t", [Column("id", "integer", key=1), Column("value", "text")])
    error = site.deliver(History().insert(article, ["1", "x" * 100_000])).error
    assert error is not None
    assert len(error.message) < 300
