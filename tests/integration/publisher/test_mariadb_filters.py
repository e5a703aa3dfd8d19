"""Row filters of a MariaDB Publisher: evaluated by the server on the log's values, as it evaluates them on its rows."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from conftest import DatabasesFactory
from support.mariadb import MariaDbServer
from support.publishers import NO_LIMITS, PublisherSite, mariadb_under_test
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.errors import DataError
from tranrepl.model.commands import Operation

_databases = count(1)
_ROWS = """CREATE TABLE `t%s` (
    id int PRIMARY KEY, small tinyint, big bigint unsigned, price decimal(20,4), ratio double, part float,
    name varchar(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci, latin varchar(9) CHARACTER SET latin1
    COLLATE latin1_german2_ci, exact text CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, code char(5), day date,
    at datetime(3), seen timestamp(2) NULL, took time(1), made year, state enum('new', 'öld', 'gone'),
    `od``d %%` int, padded int(5) unsigned zerofill, since date NOT NULL)"""
_VALUES = (
    (
        "(1, 5, 18446744073709551615, 1.5000, 1.5e-7, 0.1, 'Ann', 'Müller', 'a\\\\b\\t', 'ab', '2024-02-29', "
        "'2024-02-29 01:02:03.456', '2024-02-29 01:02:03.25', '-12:00:00.5', 2024, 'öld', 7, 12, '2024-01-01')"
    ),
    (
        "(2, -5, 0, -0.0001, 0, 16777217, 'ANN ', 'Mueller', '', 'AB', '0000-00-00', '0000-00-00 00:00:00', "
        "'1970-01-01 00:00:01', '100:00:00', 0, 'new', NULL, 0, '0000-00-00')"
    ),
    (
        "(3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, "
        "'2024-01-01')"
    ),
    (
        "(4, 0, 3, 2, 1e300, -3.5, 'änn😀', 'x''\"%%', 'quote '' \" ', 'a', '2023-01-01', '2023-01-01', "
        "'2023-01-01', '00:00:00', 1999, 'gone', -7, 12345, '2024-01-01')"
    ),
    (
        "(5, 1, 1, 1, 1, 1, 'x', 'x', 'x', 'x', '2024-02-31', '2024-06-31', '2023-01-01', 0, 2023, 'new', 1, 99999, "
        "'2024-01-01')"
    ),
)
_FILTERS = [
    "small > 0 OR big >= 18446744073709551615",
    "price * 2 = 3 AND NOT small = 4",
    "ratio < 1e-6 or ratio = 1e300",
    "part = 0.1 OR part > 16777000",
    "name = 'ann'",
    "name LIKE 'a%' OR name LIKE '%😀'",
    "latin = 'Mueller' OR latin = 'x''\"%%'",
    "exact = '' OR exact IN ('quote '' \" ', 'b')",
    '`T%%s`.code = "ab"',
    "day = '2024-02-29' OR day < '2023-06-01'",
    "day = '2024-02-31' OR at > '2024-06-30'",
    "at BETWEEN '2024-02-29 01:02:03.456' AND '2025-01-01'",
    "seen > '2000-01-01 00:00:00' AND seen <> '2023-01-01'",
    "took < '00:00:01' OR took >= '99:59:59'",
    "made IS NULL OR made IN (0, 2024)",
    "padded = '00012' OR padded > 90000",
    "since IS NULL OR NOT (since IS NULL) AND id = 1",
    "state <> 'new'",
    "state IN ('öld', 'gone')",
    "COALESCE(`od``d %%`, 0) % 7 = 0",
    "name IS NOT NULL AND (small / 0 IS NULL OR id DIV 2 = 1) <=> TRUE",
]
_REFUSED = {
    "id = (SELECT 1)": "is not understood",
    "id IN (SELECT 1)": "is not understood",
    "sleep(id)": "is not understood",
    "id > RAND()": "is not understood",
    "id = @one": "is not understood",
    "name = 'a\\\\b'": "neither a backslash nor a control character",
    "name = 'a\nb'": "neither a backslash nor a control character",
    "no_such = 1": "no_such: allowed: columns of",
    "other.id = 1": "allowed: columns of",
    "state > 'new'": "state is an enum: allowed: it is equal to a text",
    "state = 2": "state is an enum",
    "padded LIKE '000%'": "padded has zeros before its number in a table alone",
    "1 = 1": "it reads no column",
    "id = 1; DROP TABLE t": "allowed: one condition",
    "id = ": "not a condition in SQL",
    "tags = 'a'": "a filter reads numbers, texts, dates, times and enums",
    "note = 'x'": "reads column note, which the article does not publish",
}


@pytest.fixture
def site(mariadb_shop: MariaDbServer) -> PublisherSite:
    name = f"filtered{next(_databases)}"
    mariadb_shop.execute(f"CREATE DATABASE {name}")
    return PublisherSite(mariadb_under_test(mariadb_shop, name))


def test_a_filter_is_true_for_a_row_of_the_log_where_it_is_for_the_tables(site: PublisherSite) -> None:
    site.server.execute(_ROWS.replace("%%", "%"))
    site.set_up("t%s")
    for row in _VALUES:
        insert = f"INSERT INTO `t%s` VALUES {row.replace('%%', '%')}"
        site.server.execute("SET sql_mode = 'ALLOW_INVALID_DATES'", insert)
    with (
        site.opened() as publisher,
        publisher.snapshot(10, print) as snapshot,
        snapshot.source.session("test") as session,
    ):
        ((article, table),) = site.described(publisher, "t%s")
        for written in _FILTERS:
            text = written.replace("%%", "%").replace("`T%s`", "`t%s`")
            asked = article.model_copy(update={"filter": text})
            assert list(publisher.article_problems(asked, table)) == [], text
            articles = [it.model_copy(update={"filter": text}) for it in site.articles]
            log = publisher.log_range(articles, site.start(publisher), publisher.end_of_log(), NO_LIMITS)
            (changes,) = [part.changes for part in log.changes() if part.changes is not None]
            (inserted,) = [it for it in changes.sets if it.operation is Operation.INSERT]
            assert inserted.after is not None
            with log.row_filters() as filters:
                assert filters is not None
                places = filters.columns(articles[0])
                after = inserted.after
                columns = [changes.buffer.strings(after.starts[:, at], after.lengths[:, at]) for at in places]
                rows = changes.buffer.strings(after.starts[:, 0], after.lengths[:, 0])
                matching = filters.matches(articles[0], rows, columns).tolist()
            expected = [
                row
                for (row,) in site.server.execute(
                    "SET sql_mode = 'ALLOW_INVALID_DATES'", f"SELECT ({text}) IS TRUE FROM `t%s` ORDER BY id"
                )
            ]
            assert matching == [bool(it) for it in expected], text
            assert any(expected), text
            (whole,) = session.ranges(articles[0], None)
            copied = {int(line.split(b"\t")[0]) for line in b"".join(session.lines(whole)).splitlines()}
            assert copied == {number for number, it in enumerate(matching, 1) if it}, text
        articles = [it.model_copy(update={"filter": "big - 1 > 0"}) for it in site.articles]
        log = publisher.log_range(articles, site.start(publisher), publisher.end_of_log(), NO_LIMITS)
        zero = pa.array(["0"])
        with log.row_filters() as filters:
            assert filters is not None
            with pytest.raises(DataError, match="the row filter of article") as raised:
                filters.matches(articles[0], zero, [zero])
        assert "out of range" in raised.value.message


@pytest.mark.parametrize("text", _REFUSED)
def test_a_filter_that_is_no_condition_on_one_row_is_refused(site: PublisherSite, text: str) -> None:
    site.server.execute(
        "CREATE TABLE t (id int PRIMARY KEY, name text, state enum('new', 'öld'), tags set('a'), padded int zerofill, "
        "note text)"
    )
    with site.opened() as publisher:
        ((article, table),) = site.described(publisher, "t", columns=["id", "name", "state", "tags", "padded"])
        (problem,) = publisher.article_problems(article.model_copy(update={"filter": text}), table)
    assert _REFUSED[text] in problem.message


@pytest.fixture
def shop(mariadb_shop: MariaDbServer, databases: DatabasesFactory, tmp_path: Path) -> Site:
    schema = f"filtered{next(_databases)}"
    mariadb_shop.execute(f"CREATE DATABASE {schema}")
    mariadb_shop.execute(
        "CREATE TABLE item (id int PRIMARY KEY, state enum('new', 'öld'), price decimal(9,2))",
        "INSERT INTO item VALUES (1, 'new', 5), (2, 'öld', 5), (3, 'new', 50)",
        database=schema,
    )
    article = {
        "source": f"{schema}.item",
        "destination": "public.item",
        "filter": "state = 'new' AND price < 10",
        "pre_creation_cmd": "delete",
    }
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
    ends = replace(databases(), publisher=mariadb_shop.connection(schema, "publisher"))
    return Site(ends, tmp_path / "store", [article], SparkHere(), [subscription])


def test_rows_move_into_and_out_of_what_is_published(shop: Site, mariadb_shop: MariaDbServer) -> None:
    database = shop.databases.publisher.database

    def require_equal(condition: str) -> None:
        query = "SELECT id, state, price FROM item{} ORDER BY id"
        published = mariadb_shop.execute(query.format(f" WHERE {condition}"), database=database)
        assert shop.at_subscriber(query.format("")) == published
        shop.validate().raise_error()

    shop.set_up()
    shop.take_snapshot().raise_error()
    require_equal("state = 'new' AND price < 10")
    mariadb_shop.execute(
        "UPDATE item SET price = 6",
        "UPDATE item SET state = 'öld' WHERE id = 1",
        "INSERT INTO item VALUES (4, 'new', 1), (5, NULL, 1), (6, 'new', 10)",
        "DELETE FROM item WHERE id = 2",
        "UPDATE item SET id = 7, price = 9.99 WHERE id = 6",
        database=database,
    )
    shop.run()
    require_equal("state = 'new' AND price < 10")
    (article,) = shop.publication.articles
    changed = {**article.model_dump(mode="json", exclude_unset=True), "filter": "price >= 5 OR state IS NULL"}
    other = Site(
        shop.databases,
        shop.publication.distributor.store,
        [changed],
        shop.spark,
        [it.model_dump(mode="json", exclude_unset=True) for it in shop.publication.subscriptions],
    )
    other.set_up()
    mariadb_shop.execute("UPDATE item SET price = price + 5", database=database)
    other.read_log().raise_error()
    other.take_snapshot().raise_error()
    mariadb_shop.execute("UPDATE item SET price = 0 WHERE id = 7", database=database)
    other.run()
    shop = other
    require_equal("price >= 5 OR state IS NULL")
