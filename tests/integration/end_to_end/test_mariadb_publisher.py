"""From MariaDB to PostgreSQL, MariaDB and SQLite by the ordinary verbs and a login of least rights: snapshot, log,
delivery, and both ends compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import DatabasesFactory
from support.mariadb import MariaDbServer
from support.publishers import publishing_mariadb
from support.site import Site
from support.spark_here import SparkHere
from support.subscribers import STATEMENTS
from tranrepl.admin.check import check
from tranrepl.connections import Connection
from tranrepl.errors import DataError, ErrorKind

_TYPES = """CREATE TABLE item (
    id int PRIMARY KEY, tiny tinyint unsigned, big bigint unsigned, price decimal(20,4), ratio double, part float,
    name varchar(40) NOT NULL, latin varchar(40) CHARACTER SET latin1, note text, code char(5), data varbinary(20),
    fixed binary(4), day date, at datetime(6), seen timestamp NULL, took time(3), state enum('new', 'öld'),
    tags set('a', 'b', 'c'), flags bit(5), made year, yes tinyint(1) DEFAULT 1, own tinyint(1),
    least tinyint(1) unsigned, place point, doc json, ref uuid, address inet6, filled decimal(8,2) zerofill
) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"""
_ROW = (
    "({0}, 200, 18446744073709551615, -0.{0:04}, 1.5e-7, 0.1, 'it''s {0}\\\\ \\t', 'é', 'line\\nline', 'ab', "
    "X'00FF{0:02x}', X'61', '2024-02-29', '2024-01-02 03:04:05.678901', '2024-01-02 03:04:05', "
    "'-12:34:56.789', 'öld', 'a,c', b'101', "
    "2024, {0} % 2, {0} < 3, 255, "
    "ST_GeomFromText('POINT(1 2)'), '{{\"a\": [1, null]}}', '6ccd780c-baba-1026-9564-5b8c656024db', "
    "'2001:db8::1', 12.5)"
)


_SUBSCRIPTIONS = {"reporting": "subscriber", "copy": "copy", "file": "file"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MariaDbServer]:
    with publishing_mariadb(tmp_path / "mariadb") as server:
        server.execute("CREATE DATABASE shop")
        yield server


def _at_publisher(server: MariaDbServer, *statements: str) -> list[tuple[Any, ...]]:
    return server.execute(*statements, database="shop")


@pytest.fixture
def site(databases: DatabasesFactory, server: MariaDbServer, tmp_path: Path) -> Site:
    _at_publisher(
        server,
        _TYPES,
        "CREATE TABLE pair (a int, b varchar(20) CHARACTER SET utf8mb4, n int NOT NULL, sure bool DEFAULT TRUE, "
        "twice int AS (n * 2) VIRTUAL, kept int AS (n * 3) PERSISTENT, hidden int DEFAULT 5 INVISIBLE, "
        "PRIMARY KEY (b, sure, a))",
        *(f"INSERT INTO item VALUES {_ROW.format(number)}" for number in range(1, 4)),
        "INSERT INTO item (id, name) VALUES (4, 'nothing')",
        "INSERT INTO pair (a, b, n, sure) VALUES (1, 'x', 1, 1), (2, 'y', 2, 0)",
    )
    account = "least@'127.0.0.1'"
    server.execute(f"CREATE USER {account} IDENTIFIED BY 'few rights: €'", *server.least_rights(account, "shop"))
    least = replace(server.connection("shop", "publisher"), login="least", password="few rights: €")  # noqa: S106
    ends = replace(databases(), publisher=least)
    subscriptions = [
        {"name": name, "connection": connection, "sync_type": "automatic"}
        for name, connection in _SUBSCRIPTIONS.items()
    ]
    articles = [
        {
            "source": f"shop.{it}",
            "destination": f"public.{it}",
            "destinations": {"copy": f"copy.{it}"},
            "pre_creation_cmd": "truncate",
            **STATEMENTS,
        }
        for it in ("item", "pair")
    ]
    site = Site(ends, tmp_path / "store", articles, SparkHere(), subscriptions)
    # It keeps the types for which a Subscriber's table may have them.
    other = "MODIFY part double, MODIFY took text, MODIFY place longblob, MODIFY address text"
    server.execute(
        "CREATE DATABASE copy",
        "CREATE TABLE copy.item LIKE shop.item",
        f"ALTER TABLE copy.item MODIFY made int(9) ZEROFILL, {other}",
    )
    site.connections["copy"] = server.connection("copy", "copy")
    site.connections["file"] = Connection("file", "sqlite", database=str(tmp_path / "file.sqlite"))
    return site


def _subscribers(site: Site) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Return the Subscriber's rows, values as the Publisher shows them."""
    item = site.at_subscriber(
        "SELECT id, tiny, big, price::text, ratio, part, name, latin, note, code, upper(encode(data, 'hex')), "
        "upper(encode(fixed, 'hex')), day::text, to_char(at, 'YYYY-MM-DD HH24:MI:SS.US'), "
        "to_char(seen, 'YYYY-MM-DD HH24:MI:SS'), extract(epoch FROM took)::text, state, tags, flags, made, "
        "yes, own, least, "
        "upper(encode(place, 'hex')), doc, ref::text, host(address), filled::text FROM item ORDER BY id"
    )
    return item, site.at_subscriber("SELECT a, b, n, hidden, sure FROM pair ORDER BY a, b")


def _publishers(server: MariaDbServer) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    item = _at_publisher(
        server,
        "SELECT id, tiny, big, CAST(price AS CHAR), ratio, CAST(part AS DOUBLE), name, latin, note, code, HEX(data), "
        "HEX(fixed), CAST(day AS CHAR), CAST(at AS CHAR), CAST(seen AS CHAR), "
        "CAST(TIME_TO_SEC(took) AS DECIMAL(20,6)), state, tags, flags + 0, CAST(made AS SIGNED), yes, own, least, "
        "HEX(place), doc, "
        "CAST(ref AS CHAR), CAST(address AS CHAR), CAST(filled + 0 AS CHAR) FROM item ORDER BY id",
    )
    return item, _at_publisher(server, "SELECT a, b, n, hidden, sure FROM pair ORDER BY a, b")


_REAL = (4, 5, 15)
"""Columns whose numbers have no text in common."""


def _plain(rows: tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]) -> list[list[list[Any]]]:
    """Return rows with numbers that are written alike."""
    return [
        [[round(float(it), 6) if at in _REAL and it is not None else it for at, it in enumerate(row)] for row in of]
        for of in rows
    ]


def _equal(site: Site, server: MariaDbServer) -> None:
    assert _plain(_subscribers(site)) == _plain(_publishers(server))


def test_a_publication_of_mariadb_is_replicated(site: Site, server: MariaDbServer) -> None:
    site.set_up()
    # Tables may have types of one's own choice.
    site.at_subscriber(
        "CREATE TYPE of_state AS ENUM ('new', 'öld')",
        "ALTER TABLE item DROP CONSTRAINT item_state_labels",
        "ALTER TABLE item ALTER own TYPE smallint USING own::integer, ALTER state TYPE of_state USING state::of_state, "
        "ADD CHECK (string_to_array(tags, ',') <@ '{a,b,c}')",
    )
    _at_publisher(server, "UPDATE item SET day = '0000-00-00' WHERE id = 4")
    checked = check(site.topology)
    assert checked.problems == []
    assert sum("do not exist, as 0000-00-00: shop.item (day). " in it for it in checked.warnings) == 1
    with pytest.raises(DataError, match=r'table public.item, column day: .* out of range: "0000-00-00"') as refused:
        site.take_snapshot()
    assert (refused.value.report.article, refused.value.report.key) == ("shop.item", "id = 4")
    _at_publisher(server, "UPDATE item SET day = NULL WHERE id = 4")
    assert [it for it in check(site.topology).warnings if "0000-00-00" in it] == []
    apart = "ignore case or accents at the Publisher, and not here: shop.pair (b). "
    assert sum(apart in it for it in checked.warnings) == len(_SUBSCRIPTIONS)
    for name in _SUBSCRIPTIONS:
        site.take_snapshot(subscription=name).raise_error()
    assert len(_subscribers(site)[0]) == 4
    _equal(site, server)
    with server.connect("shop") as session, session.cursor() as cursor:
        session.autocommit(False)
        cursor.execute(f"INSERT INTO item VALUES {_ROW.format(10)}, {_ROW.format(11)}")
        cursor.execute("UPDATE item SET note = NULL, price = price - 1, name = 'other' WHERE id < 3")
        cursor.execute("UPDATE pair SET b = 'z', sure = NOT sure, n = n + 1")
        cursor.execute("DELETE FROM item WHERE id = 4")
        session.commit()
        cursor.execute("DELETE FROM item")
        session.rollback()
    site.run()
    _equal(site, server)
    _at_publisher(
        server,
        "SET GLOBAL log_bin_compress = ON, GLOBAL log_bin_compress_min_len = 10, GLOBAL binlog_checksum = NONE",
        "TRUNCATE TABLE pair",
        "INSERT INTO pair (a, b, n) VALUES (7, 'again', 7)",
        f"INSERT INTO item VALUES {_ROW.format(12)}",
        "UPDATE pair SET hidden = 6",
    )
    ((file, *_others),) = server.execute(server.end_of_log)
    kinds = {str(event[2]) for event in server.execute(f"SHOW BINLOG EVENTS IN '{file}'")}
    assert {"Write_rows_compressed_v1", "Update_rows_compressed_v1"} <= kinds
    server.execute("FLUSH BINARY LOGS")
    site.run()
    _equal(site, server)
    for name in _SUBSCRIPTIONS:
        validated = site.validate(name)
        assert validated.validation is not None
        assert [it.rows for it in validated.validation.articles] == [(), ()], name
    # Nothing is left to read, in another file.
    assert site.probe_log() is not None
    _at_publisher(server, "INSERT INTO pair (a, b, n, sure) VALUES (9, 'c', 9, 2)")
    site.read_log().raise_error()
    for name, said in (
        ("reporting", 'column sure: invalid input syntax for type boolean: "2"'),
        ("file", "column sure: '2' does not fit boolean"),
    ):
        failed = site.deliver(name)
        assert failed.error is not None
        assert (failed.error.kind, failed.error.article) == (ErrorKind.DATA, "shop.pair")
        assert said in failed.error.message
        assert failed.error.key == "b = c, sure = 2, a = 9"
    site.deliver("copy").raise_error()
    site.at_subscriber("ALTER TABLE pair ALTER sure TYPE smallint USING sure::integer")
    site.deliver().raise_error()
    _equal(site, server)
    # A text is what a date of zeros fits into.
    site.at_subscriber("ALTER TABLE item ALTER day TYPE text")
    server.execute("ALTER TABLE copy.item MODIFY day text")
    _at_publisher(
        server,
        "UPDATE pair SET sure = -1, n = 10 WHERE sure = 2",
        "UPDATE item SET day = '0000-00-00' WHERE id = 1",
        "UPDATE item SET day = '2024-00-10' WHERE id = 2",
    )
    site.read_log().raise_error()
    for name in ("reporting", "copy"):
        site.deliver(name).raise_error()
        site.validate(name).raise_error()
    _equal(site, server)
    _at_publisher(server, "ALTER TABLE pair ADD COLUMN more int", "INSERT INTO pair (a, b, n) VALUES (8, 'b', 8)")
    result = site.read_log()
    assert result.error is not None
    assert "table shop.pair was altered: ALTER TABLE pair" in result.error.message
