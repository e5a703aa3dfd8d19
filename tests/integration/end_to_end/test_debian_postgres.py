"""The main way of a change between unlike servers: Debian's PostgreSQL 15 at one end, 18 at the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from support.databases import Databases
from support.equality import common_columns, differing_rows
from support.site import Site
from support.spark_here import SparkHere

_TABLES = (
    (
        "CREATE TABLE vendor (vendor_id int PRIMARY KEY, account_number varchar(15) NOT NULL, name varchar(50), "
        "credit_rating smallint, url text)"
    ),
    (
        "CREATE TABLE order_line (order_id int, line int, quantity smallint NOT NULL, price numeric(19, 4) NOT NULL, "
        "total numeric(19, 4) GENERATED ALWAYS AS (quantity * price) STORED, note text, PRIMARY KEY (order_id, line))"
    ),
    "CREATE TABLE method (method_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text UNIQUE)",
    "CREATE TABLE tag (tag text PRIMARY KEY)",
)
_ARTICLES: list[dict[str, object]] = [
    {"source": "public.vendor"},
    {"source": "public.order_line"},
    {"source": "public.method", "ins_cmd": "SQL", "upd_cmd": "SQL", "del_cmd": "SQL"},
    {"source": "public.tag", "replica_identity": "default"},
]
_FIRST_ROUND = (
    "INSERT INTO vendor SELECT n, 'A' || n, 'Name', n % 5, NULL FROM generate_series(1, 100) n",
    (
        "INSERT INTO order_line (order_id, line, quantity, price, note) "
        "SELECT n / 3, n, n % 50, n / 7.0, repeat('ü', 3000) FROM generate_series(1, 300) n"
    ),
    "INSERT INTO method (name) SELECT 'method ' || n FROM generate_series(1, 9) n",
    "INSERT INTO tag SELECT 'tag ' || n FROM generate_series(1, 9) n",
    "UPDATE vendor SET url = '' WHERE vendor_id < 10",
    "UPDATE vendor SET name = NULL, vendor_id = vendor_id + 1000 WHERE vendor_id < 5",
    "UPDATE order_line SET line = line + 1000, quantity = quantity + 1 WHERE order_id < 20",
    "UPDATE order_line SET order_id = -order_id, note = NULL WHERE order_id BETWEEN 30 AND 40",
    "UPDATE tag SET tag = upper(tag) WHERE tag < 'tag 5'",
    "UPDATE method SET name = name || '!' WHERE method_id % 2 = 0",
    "DELETE FROM vendor WHERE vendor_id = 50",
    "DELETE FROM order_line WHERE quantity = 7",
    "DELETE FROM tag WHERE tag = 'TAG 1'",
)
_SECOND_ROUND = (
    "BEGIN; INSERT INTO tag VALUES ('goes'); TRUNCATE tag, method; INSERT INTO tag VALUES ('stays'); COMMIT",
    "INSERT INTO method (name) VALUES ('after TRUNCATE')",
    "BEGIN; TRUNCATE order_line; ROLLBACK",
    "UPDATE order_line SET price = price + 1",
)


@pytest.mark.parametrize("ends", ["from_15_to_18", "from_18_to_15"])
def test_two_versions_are_equal_after_every_round(
    ends: str, request: pytest.FixtureRequest, tmp_path: Path, here: SparkHere
) -> None:
    site = _site_with_tables(request.getfixturevalue(ends), tmp_path, _TABLES, _ARTICLES, here)
    site.at_publisher(*_FIRST_ROUND)
    site.run()
    _assert_equal(site)
    site.at_publisher(*_SECOND_ROUND)
    site.run()
    _assert_equal(site)
    assert site.at_subscriber("SELECT tag FROM tag") == [("stays",)]
    _assert_an_idle_run_starts_no_spark(site)


@pytest.mark.parametrize("ends", ["from_15_to_18", "from_18_to_15"])
def test_two_versions_begin_with_a_snapshot(ends: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
    site = Site(request.getfixturevalue(ends), tmp_path / "store", _ARTICLES, subscriptions=[subscription])
    site.at_publisher(*_TABLES)
    site.set_up()
    site.at_publisher(*_FIRST_ROUND)
    site.take_snapshot()
    _assert_equal(site)


def test_a_virtual_generated_column_of_18_is_stored_at_15(
    from_18_to_15: Databases, tmp_path: Path, here: SparkHere
) -> None:
    table = (
        "CREATE TABLE price (id int PRIMARY KEY, net numeric(10, 2), note text, "
        "gross numeric(10, 2) GENERATED ALWAYS AS (net * 1.19) VIRTUAL)"
    )
    site = _site_with_tables(from_18_to_15, tmp_path, [table], [{"source": "public.price"}], here)
    assert site.at_subscriber(
        "SELECT attgenerated::text FROM pg_attribute WHERE attrelid = 'price'::regclass AND attname = 'gross'"
    ) == [("s",)]
    site.at_publisher(
        "INSERT INTO price (id, net, note) SELECT n, n / 3.0, repeat(md5(n::text), 200) FROM generate_series(1, 100) n",
        "UPDATE price SET net = net + 1 WHERE id < 20",
        "UPDATE price SET note = NULL, id = -id WHERE id BETWEEN 10 AND 30",
        "DELETE FROM price WHERE id > 90",
    )
    site.run()
    _assert_equal(site)


def _site_with_tables(
    databases: Databases,
    tmp_path: Path,
    tables: Sequence[str],
    articles: list[dict[str, object]],
    here: SparkHere,
) -> Site:
    site = Site(databases, tmp_path / "store", articles, here)
    site.at_publisher(*tables)
    site.set_up()
    return site


def _assert_equal(site: Site) -> None:
    assert differing_rows(site) == {}
    assert site.differences() == []
    for article in site.publication.articles:
        publisher = common_columns(article, site.databases.publisher, site.databases.publisher)
        assert common_columns(article, site.databases.publisher, site.databases.subscriber) == publisher


def _assert_an_idle_run_starts_no_spark(site: Site) -> None:
    site.spark = None
    assert (site.read_log().commands, site.deliver().commands) == (0, 0)
