"""Tables that are renamed while commands with their earlier names wait for delivery."""

from __future__ import annotations

from pathlib import Path

from conftest import DatabasesFactory
from support.mariadb import MariaDbServer
from support.site import Site
from support.spark_here import SparkHere
from support.whole_run import good_run


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
