"""A partitioned table is one table at a Subscriber that is not PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.mariadb import MariaDbServer
from support.site import Site
from support.spark_here import SparkHere
from support.subscribers import Execute, mssql_execute, sqlite_execute
from support.whole_run import good_run
from tranrepl.connections import Connection

_BY_STATEMENTS = {"upd_cmd": "SQL", "ins_cmd": "SQL", "del_cmd": "SQL"}
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
        **_BY_STATEMENTS,
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


_ANNOUNCED = (
    "CREATE TABLE part (id int, placed date, name text, PRIMARY KEY (placed, id)) PARTITION BY RANGE (placed, id)",
    "CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (MINVALUE, MINVALUE) TO ('2024-03-01', 50)",
    "CREATE TABLE part_2 PARTITION OF part FOR VALUES FROM ('2024-03-01', 50) TO ('2024-03-02', MAXVALUE)",
    (
        "CREATE TABLE part_3 PARTITION OF part FOR VALUES FROM ('2024-03-02', MAXVALUE) TO ('2024-03-04', MINVALUE) "
        "PARTITION BY LIST (id)"
    ),
    "CREATE TABLE part_3_odd PARTITION OF part_3 FOR VALUES IN (1, 3, 5, -7)",
    "CREATE TABLE part_3_rest PARTITION OF part_3 DEFAULT",
    "CREATE TABLE part_4 PARTITION OF part FOR VALUES FROM ('2024-03-04', MINVALUE) TO (MAXVALUE, MAXVALUE)",
)
_FILLED = (
    "INSERT INTO part SELECT n, day, 'row' FROM generate_series(-8, 99) n, "
    "generate_series(date '2024-02-28', '2024-03-06', interval '1 day') day ON CONFLICT DO NOTHING"
)
_GOING = (
    "TRUNCATE part_2",
    "TRUNCATE part_3_rest",
    "DROP TABLE part_3_odd",
    "ALTER TABLE part DETACH PARTITION part_3",
    "TRUNCATE part_1, part_4",
)


@pytest.mark.slow
def test_rows_that_go_with_a_partition_go_by_its_limits(
    databases: DatabasesFactory, mariadb: MariaDbServer, mariadb_database: str, tmp_path: Path
) -> None:
    file = str(tmp_path / "archive.db")
    part = {"source": "public.part", "destination": f"{mariadb_database}.part", **_BY_STATEMENTS}
    names = ("mariadb", "sqlite", "plain")
    subscriptions = [{"name": it, "connection": it} for it in names]
    site = Site(databases(), tmp_path / "store", [part], SparkHere(), subscriptions, replicate_ddl=True)
    site.connections["mariadb"] = mariadb.connection(mariadb_database, "mariadb")
    site.connections["sqlite"] = Connection("sqlite", "sqlite", database=file)
    site.connections["plain"] = site.databases.subscriber
    site.at_publisher(*_ANNOUNCED)
    site.set_up()
    _assert_rows_go(
        site,
        {
            "mariadb": partial(mariadb.execute, database=mariadb_database),
            "sqlite": sqlite_execute(file),
            "plain": lambda query: site.at_subscriber(query.replace("FROM part", f"FROM {mariadb_database}.part")),
        },
    )


def test_rows_that_go_with_a_partition_go_at_sql_server_too(
    databases: DatabasesFactory, mssql_database: Connection, tmp_path: Path
) -> None:
    part = {"source": "public.part", "destination": "dbo.part", **_BY_STATEMENTS}
    subscriptions = [{"name": "mssql", "connection": "mssql"}]
    site = Site(databases(), tmp_path / "store", [part], SparkHere(), subscriptions, replicate_ddl=True)
    site.connections["mssql"] = replace(mssql_database, connection_id="mssql")
    site.at_publisher(*_ANNOUNCED)
    site.set_up()
    _assert_rows_go(site, {"mssql": partial(mssql_execute, mssql_database)})


def _assert_rows_go(site: Site, ends: Mapping[str, Execute]) -> None:
    """Let rows go with partitions, and compare the table at each end, by subscription."""
    query = "SELECT CAST(placed AS char(10)), id FROM part ORDER BY placed, id"
    for going in _GOING:
        site.at_publisher(*([_FILLED] if "part_4" not in going else []), going)
        assert list(good_run(site)) == ["log reader", *ends]
        rows = site.at_publisher(query)
        assert {name: at_end(query) for name, at_end in ends.items()} == dict.fromkeys(ends, rows)
        assert rows != []
