"""From MySQL to PostgreSQL by the ordinary verbs by a login of least rights, over TLS."""

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
from tranrepl.admin.check import check
from tranrepl.connections import Connection

pytestmark = pytest.mark.slow
_TABLE = """CREATE TABLE item (
    id int PRIMARY KEY, doc json, place point, seen vector(3), name varchar(40), price decimal(12,3) unsigned,
    ratio float, flags bit(5), state enum('new', 'öld'), tags set('a', 'b'), at timestamp(6) NULL,
    twice int GENERATED ALWAYS AS (id * 2), hidden int DEFAULT 5 INVISIBLE)"""
_ROW = (
    "INSERT INTO item (id, doc, place, seen, name, price, ratio, flags, state, tags, at) VALUES ({0}, "
    '\'{{"b": [1.50, null], "ä": "{0}"}}\', ST_GeomFromText(\'POINT({0} 2)\'), '
    "STRING_TO_VECTOR('[0.1,2,{0}]'), 'käse {0}', {0}.125, 0.1, b'101', 'öld', 'a,b', '2024-01-02 03:04:05.678901')"
)
_LEAST = "least"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MariaDbServer]:
    with publishing_mariadb(tmp_path / "mysql", "mysql-9.7") as server:
        server.execute("CREATE DATABASE shop CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
        yield server


@pytest.fixture
def login(server: MariaDbServer) -> Connection:
    """Return the connection of a login that may no more than is documented, which the server has not seen yet."""
    account = f"{_LEAST}@'127.0.0.1'"
    server.execute(
        f"CREATE USER {account} IDENTIFIED WITH caching_sha2_password BY 'few rights: €' REQUIRE SSL",
        *server.least_rights(account, "shop"),
    )
    connection = server.connection("shop", "publisher")
    return replace(connection, login=_LEAST, password="few rights: €", options={"ssl_mode": "REQUIRED"})  # noqa: S106


@pytest.fixture
def site(databases: DatabasesFactory, server: MariaDbServer, login: Connection, tmp_path: Path) -> Site:
    server.execute(_TABLE, _ROW.format(1), "INSERT INTO item (id) VALUES (2)", database="shop")
    ends = replace(databases(), publisher=login)
    article = {"source": "shop.item", "destination": "public.item"}
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
    return Site(ends, tmp_path / "store", [article], SparkHere(), [subscription], replicate_ddl=True)


def _require_equal(site: Site, server: MariaDbServer, more: str = "") -> None:
    subscribers = site.at_subscriber(
        "SELECT id, doc, upper(encode(place, 'hex')), upper(encode(seen, 'hex')), name, price::text, ratio, flags, "
        f"state, tags, at::text, hidden{more} FROM item ORDER BY id"
    )
    publishers = server.execute(
        "SELECT id, CAST(doc AS CHAR), HEX(place), HEX(seen), name, CAST(price AS CHAR), ratio, flags + 0, state, "
        f"tags, CAST(at AS CHAR), hidden{more} FROM item ORDER BY id",
        database="shop",
    )
    assert _plain(subscribers) == _plain(publishers)
    validated = site.validate()
    assert validated.validation is not None
    assert [it.rows for it in validated.validation.articles] == [()]


def _plain(rows: list[tuple[Any, ...]]) -> list[list[Any]]:
    return [[round(it, 5) if isinstance(it, float) else it for it in row] for row in rows]


def _transaction(server: MariaDbServer, *statements: str) -> None:
    with server.connect("shop") as session, session.cursor() as cursor:
        for it in statements:
            cursor.execute(it)


def test_a_publication_of_mysql_is_replicated_by_a_login_of_least_rights(site: Site, server: MariaDbServer) -> None:
    site.set_up()
    assert [it for it in check(site.topology).warnings if "Publisher" in it and "no schedule" not in it] == []
    site.take_snapshot().raise_error()
    _require_equal(site, server)
    compressed = "SET SESSION binlog_transaction_compression = ON"
    many = "INSERT INTO item (id, name) SELECT 100 + s.n, 'many' FROM (WITH RECURSIVE s AS (SELECT 1 AS n UNION ALL "
    _transaction(
        server,
        compressed,
        _ROW.format(3),
        f"{many}SELECT n + 1 FROM s WHERE n < 500) SELECT n FROM s) AS s",
        "BEGIN",
        "UPDATE item SET doc = JSON_SET(doc, '$.more', 1), seen = NULL WHERE id = 1",
        "SAVEPOINT a",
        "DELETE FROM item",
        "ROLLBACK TO a",
        "UPDATE item SET id = 7 WHERE id = 2",
        "COMMIT",
    )
    _transaction(
        server,
        "SET gtid_next = 'AUTOMATIC:ours'",
        _ROW.format(4),
        "SET gtid_next = 'AUTOMATIC'",
        "XA START 'x'",
        "DELETE FROM item WHERE id = 3",
        "XA END 'x'",
        "XA PREPARE 'x'",
        "XA COMMIT 'x'",
        "FLUSH BINARY LOGS",
    )
    site.run()
    _require_equal(site, server)
    _transaction(
        server,
        "ALTER TABLE item ADD more varchar(20) DEFAULT 'it''s', ADD counted int NOT NULL DEFAULT 7, MODIFY name "
        "varchar(80)",
        _ROW.format(5),
        "UPDATE item SET more = 'other' WHERE id = 5",
    )
    site.run()
    _require_equal(site, server, ", more, counted")
    with site.topology.publisher("test") as publisher:
        assert list(publisher.problems()) == []


def test_a_table_whose_rows_cascade_is_refused(site: Site, server: MariaDbServer) -> None:
    server.execute(
        "CREATE TABLE child (id int PRIMARY KEY, p int, CONSTRAINT own FOREIGN KEY (p) REFERENCES item (id) ON DELETE "
        "CASCADE)",
        database="shop",
    )
    child = [{"source": "shop.child", "destination": "public.child"}]
    other = Site(
        site.databases,
        site.publication.distributor.store,
        child,
        site.spark,
        [{"name": "reporting", "connection": "subscriber"}],
    )
    (problem,) = check(other.topology).problems
    assert "foreign key own changes its rows where shop/item changes" in problem.message
