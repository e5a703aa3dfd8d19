"""Tables that are renamed while commands with their earlier names wait for delivery."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.mariadb import MariaDbServer
from support.site import Site
from support.spark_here import SparkHere
from support.subscribers import STATEMENTS
from support.whole_run import good_run, whole_run
from tranrepl.admin.run import LOG_READER
from tranrepl.connections import Connection


def test_commands_under_an_earlier_name_are_left_out_where_a_snapshot_has_them(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
    article = {"source": "public.vendor", "destination": "public.copied", "pre_creation_cmd": "truncate"}
    site = Site(databases(), tmp_path / "store", [article], SparkHere(), [subscription], replicate_ddl=True)
    site.at_publisher("CREATE TABLE vendor (id integer PRIMARY KEY, name text)", "INSERT INTO vendor VALUES (1, 'one')")
    site.set_up()
    site.take_snapshot().raise_error()
    site.at_publisher(
        "INSERT INTO vendor VALUES (2, 'two')",
        "ALTER TABLE vendor RENAME TO seller",
        "ALTER TABLE seller DROP COLUMN name, ADD COLUMN rating double precision DEFAULT random()",
        "INSERT INTO seller (id) VALUES (3)",
    )
    site.read_log().raise_error()
    site.take_snapshot().raise_error()
    site.deliver().raise_error()
    rows = "SELECT id, rating FROM {} ORDER BY id"
    assert site.at_subscriber(rows.format("copied")) == site.at_publisher(rows.format("seller"))


def test_a_renamed_table_whose_rows_a_retype_leaves_unknown_is_copied_again(
    databases: DatabasesFactory, mariadb: MariaDbServer, mariadb_database: str, tmp_path: Path
) -> None:
    subscription = {"name": "reporting", "connection": "mariadb", "sync_type": "automatic"}
    article = {"source": "public.vendor", "destination": f"{mariadb_database}.vendor", "pre_creation_cmd": "truncate"}
    site = Site(databases(), tmp_path / "store", [article], SparkHere(), [subscription], replicate_ddl=True)
    site.connections["mariadb"] = mariadb.connection(mariadb_database, "mariadb")
    site.at_publisher(
        "CREATE TABLE vendor (id integer PRIMARY KEY, at timestamp)",
        "INSERT INTO vendor VALUES (1, '2024-02-03 04:05')",
    )
    site.set_up()
    site.take_snapshot().raise_error()
    site.at_publisher(
        "ALTER TABLE vendor RENAME TO seller",
        "SET timezone = 'UTC'",
        "ALTER TABLE seller ALTER COLUMN at TYPE timestamptz",
        "ALTER TABLE seller RENAME TO shop",
        "UPDATE shop SET at = at + interval '1 hour'",
    )
    good_run(site)
    (copied,) = good_run(site)["reporting snapshot"].snapshot
    assert copied.article == "public.shop"
    (row,) = mariadb.execute("SELECT id, CAST(at AS CHAR) FROM vendor", database=mariadb_database)
    assert (row[0], row[1][:16]) == (1, "2024-02-03 05:05")


@pytest.fixture
def vendors(databases: DatabasesFactory, tmp_path: Path) -> Site:
    """Two articles, their snapshots delivered to a PostgreSQL Subscriber and to a file of SQLite."""
    articles = [
        {"source": f"public.{it}", "destination": f"public.{it}_copied", "pre_creation_cmd": "delete", **STATEMENTS}
        for it in ("vendor", "seller")
    ]
    subscriptions = [
        {"name": name, "connection": connection, "sync_type": "automatic"}
        for name, connection in (("reporting", "subscriber"), ("archive", "archive"))
    ]
    site = Site(databases(), tmp_path / "store", articles, SparkHere(), subscriptions, replicate_ddl=True)
    site.connections["archive"] = Connection("archive", "sqlite", database=str(tmp_path / "archive.db"))
    site.at_publisher(
        *(f"CREATE TABLE {it} (id integer PRIMARY KEY, name text)" for it in ("vendor", "seller")),
        "INSERT INTO vendor VALUES (1, 'a vendor')",
        "INSERT INTO seller VALUES (1, 'a seller')",
    )
    site.set_up()
    good_run(site)
    return site


def _assert_copied(site: Site, **copies: str) -> None:
    """Compare each copy with the table that it is a copy of by now."""
    for copy, table in copies.items():
        rows = site.at_publisher(f"SELECT * FROM {table} ORDER BY id")
        assert site.at_subscriber(f"SELECT * FROM {copy} ORDER BY id") == rows
        with closing(sqlite3.connect(str(site.connections["archive"].database))) as archive:
            assert archive.execute(f"SELECT * FROM {copy} ORDER BY id").fetchall() == rows


@pytest.mark.parametrize("added", ["", "ALTER TABLE between ADD COLUMN rating int DEFAULT 7;"], ids=["", "altered"])
def test_two_tables_take_each_others_name_in_one_transaction(vendors: Site, added: str) -> None:
    vendors.at_publisher(
        "BEGIN; INSERT INTO vendor VALUES (2, 'before'); ALTER TABLE vendor RENAME TO between;"
        f"ALTER TABLE seller RENAME TO vendor; {added} ALTER TABLE between RENAME TO seller;"
        "INSERT INTO seller VALUES (3, 'first a vendor'); INSERT INTO vendor VALUES (3, 'first a seller'); COMMIT"
    )
    good_run(vendors)
    _assert_copied(vendors, vendor_copied="seller", seller_copied="vendor")
    vendors.at_publisher("ALTER TABLE vendor ADD COLUMN price int DEFAULT 4", "UPDATE seller SET name = 'x'")
    good_run(vendors)
    _assert_copied(vendors, vendor_copied="seller", seller_copied="vendor")


@pytest.mark.parametrize("how", ["dropped", "taken out of the file"])
def test_a_table_takes_the_name_of_an_article_that_has_ended(vendors: Site, how: str) -> None:
    if how != "dropped":
        kept = vendors.publication.articles[:1]
        vendors.publication = vendors.publication.model_copy(update={"articles": kept})
        vendors.set_up()
    vendors.at_publisher(
        "DROP TABLE seller", "ALTER TABLE vendor RENAME TO seller", "INSERT INTO seller VALUES (2, 'two')"
    )
    stopped = {name: it.error.article for name, it in whole_run(vendors).items() if it.error is not None}
    assert stopped == ({LOG_READER: "public.seller"} if how == "dropped" else {})
    _assert_copied(vendors, vendor_copied="seller")
    # One that was taken out is known until the publication goes, by a name that is free.
    left = [("public.seller",)] if how == "dropped" else [("public.seller",), ("public.vendor",)]
    for known in ("msreplication_snapshots", "mssubscription_articles"):
        assert vendors.at_subscriber(f"SELECT article FROM {known} ORDER BY 1") == left


@pytest.mark.parametrize(
    "altered", ["DROP COLUMN name, ADD COLUMN name text DEFAULT 'new'", "ADD COLUMN price int DEFAULT 5"]
)
def test_a_snapshot_of_a_table_leaves_alone_whose_name_it_takes(vendors: Site, altered: str) -> None:
    copied = "ALTER TABLE seller ADD COLUMN rating double precision DEFAULT random()"
    vendors.at_publisher(
        "BEGIN; ALTER TABLE vendor RENAME TO between; ALTER TABLE seller RENAME TO vendor;"
        f"ALTER TABLE vendor {altered}; ALTER TABLE between RENAME TO seller; {copied}; COMMIT"
    )
    good_run(vendors)
    good_run(vendors)
    _assert_copied(vendors, vendor_copied="seller", seller_copied="vendor")
    vendors.at_publisher("INSERT INTO vendor (id, name) VALUES (5, 'five')", "DELETE FROM seller")
    good_run(vendors)
    _assert_copied(vendors, vendor_copied="seller", seller_copied="vendor")
