"""A MariaDB Publisher's tables are altered: Subscribers follow, or the article is reinitialized."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from psycopg.errors import CheckViolation

from conftest import DatabasesFactory
from support.mariadb import MariaDbServer
from support.publishers import NO_LIMITS, PublisherSite, mariadb_under_test, of_mariadb
from support.site import Site
from support.spark_here import SparkHere
from support.subscribers import STATEMENTS
from tranrepl.connections import Connection
from tranrepl.log_reader.opening import open_log_reader
from tranrepl.publisher.log_range import SchemaReading
from tranrepl.publisher.registry import open_publisher
from tranrepl.publisher.snapshot import UnregisteredError
from tranrepl.snapshot.definitions import require_labels

_databases = count(1)


class Shop(Site):
    """Table `item` of a MariaDB database, at a PostgreSQL Subscriber and at a MariaDB one, which compare its rows."""

    server: MariaDbServer
    schema: str

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.server.execute(*statements, database=self.schema)

    def follow(self) -> Sequence[str]:
        """Read the log once, deliver, take the snapshots that are due, and return what was noticed."""
        read = self.read_log()
        read.raise_error()
        for it in self.publication.subscriptions:
            self.deliver(it.name).raise_error()
            self.take_snapshot(subscription=it.name).raise_error()
        self.run()
        return read.schema_change_warnings

    def require_equal(self, table: str = "item") -> None:
        rows = self.execute(
            f"SELECT column_name FROM information_schema.columns WHERE table_schema = '{self.schema}' "
            f"AND table_name = '{table}' ORDER BY ordinal_position"
        )
        query = f"SELECT {', '.join(name for (name,) in rows)} FROM {table} ORDER BY id"
        expected = self.execute(query)
        quoted = ", ".join(f'"{name}"' for (name,) in rows)
        assert self.at_subscriber(f"SELECT {quoted} FROM {table} ORDER BY id") == expected
        if "copy" in self.connections:
            assert self.server.execute(query, database=f"{self.schema}copy") == expected
        at_postgres = self.at_subscriber(
            f"SELECT column_name::text FROM information_schema.columns WHERE table_name = '{table}'"
        )
        assert {*at_postgres} == {*rows}


@pytest.fixture
def shop(
    mariadb_shop: MariaDbServer, databases: DatabasesFactory, tmp_path: Path, request: pytest.FixtureRequest
) -> Shop:
    schema, param = f"altered{next(_databases)}", getattr(request, "param", {})
    login, word = f"only_{schema}", "few rights"
    account = f"{login}@'127.0.0.1'"
    mariadb_shop.execute(
        *(
            f"CREATE DATABASE {schema}",
            f"CREATE DATABASE {schema}copy",
            f"CREATE USER {account} IDENTIFIED BY '{word}'",
        ),
        *mariadb_shop.least_rights(account, schema),
    )
    # Who alters a table is somebody else.
    least = replace(mariadb_shop.connection(schema, "publisher"), login=login, password=word)
    ends = replace(databases(), publisher=least)
    article = {
        "source": f"{schema}.item",
        "destination": "public.item",
        "destinations": {"copy": f"{schema}copy.item"},
        "pre_creation_cmd": "delete",
        **{name: value for name, value in param.items() if name != "enum"},
        # SQLite has no procedures.
        **(STATEMENTS if "enum" in param else {}),
    }
    subscriptions = [
        {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"},
        {"name": "copy", "connection": "copy", "sync_type": "automatic"},
    ]
    if "enum" in param:
        subscriptions.append({"name": "file", "connection": "file", "sync_type": "automatic"})
    if mariadb_shop.kind == "mysql":
        # Nobody has run it as a Subscriber.
        del subscriptions[1], article["destinations"]
    shop = Shop(ends, tmp_path / "store", [article], SparkHere(), subscriptions, replicate_ddl=True)
    shop.connections["file"] = Connection("file", "sqlite", database=str(tmp_path / "file.sqlite"))
    if any(it["name"] == "copy" for it in subscriptions):
        shop.connections["copy"] = mariadb_shop.connection(f"{schema}copy", "subscriber")
    shop.server, shop.schema = mariadb_shop, schema
    shop.execute(
        "CREATE TABLE item (id int PRIMARY KEY, name varchar(40), amount int) "
        "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        "INSERT INTO item VALUES (1, 'one', 10), (2, 'two', NULL)",
    )
    if "enum" in param:
        shop.execute(f"ALTER TABLE item ADD state {param['enum']}", "UPDATE item SET state = id")
    shop.set_up()
    for it in shop.publication.subscriptions:
        shop.take_snapshot(subscription=it.name).raise_error()
    return shop


def test_columns_are_added_dropped_and_widened_among_rows(shop: Shop) -> None:
    shop.execute(
        "INSERT INTO item VALUES (3, 'before', 30)",
        "ALTER TABLE item ADD COLUMN kind varchar(10) NOT NULL DEFAULT 'it''s' AFTER id, "
        "ADD COLUMN price decimal(8,2) DEFAULT 7, ADD COLUMN made date DEFAULT '2020-02-29', ADD COLUMN note text, "
        "DROP COLUMN name, MODIFY amount bigint, ADD sure tinyint(1) NOT NULL DEFAULT 1",
        "INSERT INTO item VALUES (4, 'after', 5000000000, 1.5, NULL, 'a note', 0)",
        "UPDATE item SET price = 8, note = 'changed' WHERE id = 1",
        "DELETE FROM item WHERE id = 2",
    )
    assert shop.follow() == ()
    shop.require_equal()
    # Nothing of ours is before the rows.
    shop.execute("ALTER TABLE item COMMENT 'ours', ADD INDEX (price)", "DELETE FROM item WHERE id = 4")
    shop.run()
    shop.require_equal()
    for spelled, there in (("tinyint", "smallint"), ("tinyint(1)", "boolean")):
        shop.execute(f"ALTER TABLE item MODIFY sure {spelled}", "UPDATE item SET sure = NOT sure WHERE id < 3")
        assert any("column sure got another type" in it for it in shop.follow())
        shop.execute("UPDATE item SET sure = NOT sure WHERE id < 2")
        shop.run()
        shop.require_equal()
        assert shop.at_subscriber("SELECT pg_typeof(sure)::text FROM item LIMIT 1") == [(there,)]


def _checks(shop: Shop) -> list[str]:
    """Return the checks of table item, by Subscriber, as each writes them."""
    found = shop.at_subscriber(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'item'::regclass AND contype = 'c'"
    )
    if "copy" in shop.connections:
        found += shop.server.execute(
            "SELECT check_clause FROM information_schema.check_constraints "
            f"WHERE constraint_schema = '{shop.schema}copy' AND level = 'Table'"
        )
    with closing(sqlite3.connect(str(shop.connections["file"].database))) as file:
        ((text,),) = file.execute("SELECT sql FROM sqlite_schema WHERE name = 'item' AND type = 'table'")
    return [*(it for (it,) in found), *re.findall(r"CHECK \(.*?\)", text)]


_LABELS = "'a,b', 'it''s', '50%', ':c'"


@pytest.mark.parametrize("shop", [{"enum": f"enum({_LABELS})"}], indirect=True)
def test_labels_of_an_enum_are_checked_and_follow(shop: Shop) -> None:
    expected = ("a,b", "it", "50%", ":c")
    every = len(shop.publication.subscriptions)
    assert len(_checks(shop)) == every
    assert all(label in it for label in expected for it in _checks(shop))
    with pytest.raises(CheckViolation):
        shop.at_subscriber("UPDATE item SET state = 'other'")
    # A server that is not strict has a text that is no label.
    shop.execute("SET sql_mode = ''", "INSERT INTO item VALUES (3, 'x', 30, 'none of these')")
    shop.execute(
        f"ALTER TABLE item MODIFY state enum({_LABELS}, 'd'), ADD kind enum('one', 'two') DEFAULT 'two', "
        "ADD Face enum('🙂', 'b'), ADD Size enum('s', 'm')",
        "INSERT INTO item VALUES (4, 'x', 40, 'd', 'one', 1, 's')",
    )
    with open_log_reader(shop.topology) as opened:
        articles = opened.database.articles.active(shop.publication, opened.record)
        with pytest.raises(UnregisteredError, match="a label of column state is not registered yet"):
            require_labels(opened.publisher, articles)
    assert shop.follow() == ()
    assert (shop.at_subscriber("SELECT state FROM item ORDER BY id"))[2:] == [("",), ("d",)]
    shop.require_equal()
    # The server's catalogue does not know the letter of `Face`.
    assert len(_checks(shop)) == 3 * every
    assert sum("'d'" in it for it in _checks(shop)) == every
    # Rows may have a label that is gone: with it goes the check. So it does with the column's name.
    shop.execute(
        "UPDATE item SET state = 'd'",
        "ALTER TABLE item MODIFY state enum('d'), DROP kind, CHANGE Size size enum('s', 'm', 'l')",
        "UPDATE item SET size = 'l'",
    )
    assert any("column state, size got another type" in it for it in shop.follow())
    shop.require_equal()
    assert _checks(shop) == []
    # A type of one's own stays, and is one's own to alter.
    shop.at_subscriber(
        "CREATE TYPE of_state AS ENUM ('d', 'e')", "ALTER TABLE item ALTER state TYPE of_state USING 'd'"
    )
    shop.execute("ALTER TABLE item MODIFY state enum('d', 'e')", "UPDATE item SET state = 'e' WHERE id = 2")
    assert shop.follow() == ()
    shop.require_equal()
    assert shop.at_subscriber("SELECT pg_typeof(state)::text FROM item LIMIT 1") == [("of_state",)]


_OTHER = "CREATE OR REPLACE TABLE item (id int PRIMARY KEY, name varchar(40)) CHARACTER SET utf8mb4"
_UNKNOWN = [
    (
        [
            "ALTER TABLE item ADD more int DEFAULT 7",
            "UPDATE item SET more = 5 WHERE id = 1",
            "ALTER TABLE item ALTER more SET DEFAULT 8, ADD last varchar(5)",
        ],
        "it was altered again",
    ),
]
_ALSO_UNKNOWN = [
    (["ALTER TABLE item RENAME COLUMN name TO title"], "column name was renamed"),
    (["ALTER TABLE item CHANGE name amount2 int, CHANGE COLUMN amount `name` varchar(40)"], "was renamed"),
    (["ALTER TABLE item DROP name, ADD name varchar(40) DEFAULT 'x'"], "was dropped, and another one has its name"),
    (["ALTER TABLE item MODIFY amount varchar(20)"], "column amount got another type"),
    (["ALTER TABLE item CONVERT TO CHARACTER SET latin1"], "column name got another type"),
    (
        ["UPDATE item SET amount = 5 WHERE id = 2", "ALTER TABLE item MODIFY amount int NOT NULL DEFAULT 0"],
        "column amount takes no NULL",
    ),
    (["ALTER TABLE item ADD made timestamp DEFAULT current_timestamp()"], "was added with values that the log"),
    (["ALTER TABLE item DROP PRIMARY KEY, ADD k int NOT NULL DEFAULT 1, ADD PRIMARY KEY (id, k)"], "primary key"),
    ([_OTHER], "may have changed its rows"),
    (["CREATE TABLE other LIKE item", "RENAME TABLE item TO old, other TO item"], "may have changed its rows"),
]


@pytest.mark.parametrize(
    ("statements", "reason"), [*_UNKNOWN, *(pytest.param(*it, marks=pytest.mark.slow) for it in _ALSO_UNKNOWN)]
)
def test_an_article_is_reinitialized_where_its_rows_are_not_known(
    shop: Shop, statements: list[str], reason: str
) -> None:
    if shop.server.kind == "mysql" and _OTHER in statements:
        pytest.skip("MySQL has no CREATE OR REPLACE TABLE")
    shop.execute("INSERT INTO item VALUES (3, 'before', 30)", *statements, "INSERT INTO item (id) VALUES (5)")
    assert any(reason in it for it in shop.follow())
    shop.execute("INSERT INTO item (id) VALUES (6)", "UPDATE item SET id = 7 WHERE id = 5")
    shop.run()
    shop.require_equal()


def test_rows_that_a_session_has_not_logged_whole_reinitialize_the_article(shop: Shop) -> None:
    with shop.server.connect(shop.schema) as session, session.cursor() as cursor:
        for it in ("SET SESSION binlog_row_image = MINIMAL", "UPDATE item SET amount = 5 WHERE id = 1"):
            cursor.execute(it)
    shop.execute("UPDATE item SET amount = 6 WHERE id = 2")
    assert any("the log lacks old rows of its table" in it for it in shop.follow())
    shop.require_equal()
    # As long as the server goes on like that, a snapshot would be in vain.
    try:
        shop.execute("SET GLOBAL binlog_row_image = MINIMAL")
        shop.execute("UPDATE item SET amount = 7 WHERE id = 2")
        error = shop.read_log().error
    finally:
        shop.execute("SET GLOBAL binlog_row_image = FULL")
    assert error is not None
    assert "is in the binary log without all its columns" in error.message
    assert shop.follow() != ()
    shop.require_equal()


@pytest.mark.slow_after(1)
def test_a_partition_is_added_among_rows(shop: Shop) -> None:
    shop.execute("ALTER TABLE item PARTITION BY RANGE (id) (PARTITION low VALUES LESS THAN (100))")
    assert any("may have changed its rows" in it for it in shop.follow())
    shop.execute(
        "INSERT INTO item VALUES (3, 'low', 30)",
        "ALTER TABLE item ADD PARTITION (PARTITION high VALUES LESS THAN (200) COMMENT 'DROP PARTITION low')",
        "INSERT INTO item VALUES (150, 'high', 1)",
        "UPDATE item SET id = id + 100 WHERE id = 3",
    )
    assert shop.follow() == ()
    shop.require_equal()


def test_an_article_ends_with_its_table_and_indexes_stay_at_the_publisher(shop: Shop) -> None:
    shop.execute(
        "CREATE UNIQUE INDEX by_name ON item (name)",
        "INSERT INTO item VALUES (3, 'three', 30)",
        "ALTER TABLE item ADD INDEX (amount)",
        "UPDATE item SET name = CASE id WHEN 1 THEN 'uno' ELSE 'drei' END WHERE id IN (1, 3)",
    )
    assert shop.follow() == ()
    # An index takes the place of the key.
    shop.execute("ALTER TABLE item DROP PRIMARY KEY, ADD UNIQUE (id)", "UPDATE item SET amount = 7 WHERE id = 2")
    assert shop.follow() == ()
    shop.require_equal()
    expected = shop.at_subscriber("SELECT * FROM item ORDER BY id")
    shop.execute("DELETE FROM item WHERE id = 1", "DROP TABLE item")
    read = shop.read_log()
    assert read.error is not None
    assert "its table was dropped: nothing is replicated" in read.error.message
    shop.deliver().raise_error()
    assert shop.at_subscriber("SELECT * FROM item ORDER BY id") == expected[1:]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "problem", "back"),
    [
        ("DROP PRIMARY KEY, ADD INDEX (id)", "it has no primary key any more", "ADD PRIMARY KEY (id)"),
        ("ADD CONSTRAINT f FOREIGN KEY (amount) REFERENCES parent (id) ON DELETE CASCADE", "foreign key f", None),
        ("ENGINE = MyISAM", "is of engine MyISAM", "ENGINE = InnoDB"),
    ],
)
def test_a_change_that_cannot_be_followed_stops_before_it(
    shop: Shop, change: str, problem: str, back: str | None
) -> None:
    shop.execute("CREATE TABLE parent (id int PRIMARY KEY)", "INSERT INTO parent VALUES (10), (30), (40)")
    shop.execute("INSERT INTO item VALUES (3, 'three', 30)", f"ALTER TABLE item {change}")
    error = shop.read_log().error
    assert error is not None
    assert problem in error.message
    shop.execute(f"ALTER TABLE item {back or 'DROP FOREIGN KEY f'}", "INSERT INTO item VALUES (4, 'four', 40)")
    shop.follow()
    shop.require_equal()


@pytest.mark.slow
@pytest.mark.parametrize("shop", [{"filter": "amount > 5"}], indirect=True)
def test_a_table_with_a_row_filter_is_not_altered(shop: Shop) -> None:
    shop.execute(
        "CREATE UNIQUE INDEX by_amount ON item (amount)", "INSERT INTO item VALUES (3, 'three', 30), (4, 'four', 4)"
    )
    assert shop.follow() == ()
    assert shop.at_subscriber("SELECT id FROM item ORDER BY id") == [(1,), (3,)]
    shop.execute("ALTER TABLE item ADD more int")
    error = shop.read_log().error
    assert error is not None
    assert "its row filter cannot be evaluated on rows of both definitions" in error.message


@of_mariadb
@pytest.mark.parametrize(
    ("statements", "problem"),
    [
        (["ALTER TABLE t ADD SYSTEM VERSIONING"], "is a system versioned"),
        # Its rows follow in the same group.
        (["CREATE OR REPLACE TABLE t (id int PRIMARY KEY) SELECT 5 AS id"], "table shop.t was altered"),
        (["REVOKE SELECT ON shop.t FROM hidden@'%'", "ALTER TABLE t COMMENT 'x'"], "SELECT command denied"),
        (["ALTER TABLE t COMMENT 'x'", "DROP TABLE t"], "take the article out of the file"),
    ],
)
def test_reading_ends_before_what_leaves_rows_open(
    mariadb_shop: MariaDbServer, statements: list[str], problem: str
) -> None:
    site = PublisherSite(mariadb_under_test(mariadb_shop, "shop"))
    mariadb_shop.execute("DROP TABLE IF EXISTS t", database="shop")
    site.server.create("t")
    site.set_up("t")
    mariadb_shop.execute(
        "CREATE OR REPLACE USER hidden@'%'",
        "GRANT REPLICATION SLAVE, BINLOG MONITOR, PROCESS ON *.* TO hidden@'%'",
        "CREATE TABLE IF NOT EXISTS other (id int)",
        "GRANT SELECT ON shop.other TO hidden@'%'",
        "GRANT SELECT ON shop.t TO hidden@'%'",
        database="shop",
    )
    mariadb_shop.execute(*statements, database="shop")
    reader = replace(site.server.connection, login="hidden", password="")
    with open_publisher(reader, "shop", "test") as publisher:
        begin = site.start(publisher)
        schema = SchemaReading((7, 8))
        log = publisher.log_range(site.articles, begin, publisher.end_of_log(), NO_LIMITS, schema=schema)
        parts = list(log.changes())
    assert parts[-1].refusal is not None
    error = parts[-1].refusal.error
    assert problem in f"{error.message} {error.remedy}"
    assert not any(part.definitions for part in parts)
