"""A partitioned table is one table at a Subscriber that is not PostgreSQL."""

from __future__ import annotations

from pathlib import Path

from conftest import DatabasesFactory
from support.mariadb import MariaDbServer
from support.site import Site
from support.spark_here import SparkHere
from support.subscribers import sqlite_execute
from support.whole_run import good_run
from tranrepl.connections import Connection

_TABLE = (
    "CREATE TABLE item (id int PRIMARY KEY, name varchar(40), placed date NOT NULL) PARTITION BY RANGE (id)",
    "CREATE TABLE item_low PARTITION OF item FOR VALUES FROM (0) TO (50)",
    "CREATE TABLE item_high (placed date NOT NULL, name varchar(40), id int NOT NULL)",
    "ALTER TABLE item ATTACH PARTITION item_high FOR VALUES FROM (50) TO (1000)",
    "INSERT INTO item SELECT n, 'row ' || n, '2024-02-29' FROM generate_series(1, 100) n",
)


def test_partitions_reach_mariadb_and_sqlite_as_one_table(
    databases: DatabasesFactory, mariadb: MariaDbServer, mariadb_database: str, tmp_path: Path
) -> None:
    file = str(tmp_path / "archive.db")
    item = {
        "source": "public.item",
        "destination": f"{mariadb_database}.item",
        "partitions": "same",
        "pre_creation_cmd": "delete",
        "upd_cmd": "SQL",
        "ins_cmd": "SQL",
        "del_cmd": "SQL",
    }
    subscriptions = [{"name": it, "connection": it, "sync_type": "automatic"} for it in ("mariadb", "sqlite")]
    site = Site(databases(), tmp_path / "store", [item], SparkHere(), subscriptions)
    site.connections["mariadb"] = mariadb.connection(mariadb_database, "mariadb")
    site.connections["sqlite"] = Connection("sqlite", "sqlite", database=file)
    site.at_publisher(*_TABLE)
    site.set_up()
    good_run(site)
    for statements in (
        (
            "UPDATE item SET id = id + 50 WHERE id IN (41, 51)",
            "UPDATE item SET name = NULL WHERE id % 7 = 0",
            "DELETE FROM item WHERE id % 10 = 0",
        ),
        ("TRUNCATE item_low", "INSERT INTO item VALUES (7, 'after', '2025-01-01')"),
        ("ALTER TABLE item DETACH PARTITION item_high",),
    ):
        site.at_publisher("DELETE FROM item WHERE id IN (91, 101)", *statements)
        good_run(site)
        rows = site.at_publisher("SELECT id, name FROM item ORDER BY id")
        query = "SELECT id, name FROM item ORDER BY id"
        assert mariadb.execute(query, database=mariadb_database) == rows
        assert sqlite_execute(file)(query) == rows
