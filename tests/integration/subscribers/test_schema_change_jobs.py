"""Jobs that deliver schema changes to Subscribers that are not PostgreSQL, from the store."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from conftest import DatabasesFactory
from support.command_history import Column
from support.mariadb import MariaDbServer
from support.schema_changes import added, change, renamed, retyped
from support.site import Site
from support.spark_here import SparkHere
from support.stored_history import StoredHistory

ID, NAME = Column("id", "integer", key=1), Column("name")


@pytest.mark.slow
@pytest.mark.spark
def test_streams_stop_on_either_side_of_a_schema_change_at_mariadb(
    databases: DatabasesFactory, mariadb: MariaDbServer, mariadb_database: str, tmp_path: Path, spark: SparkSession
) -> None:
    article = {"source": "public.vendor", "destination": f"{mariadb_database}.vendor"}
    subscription = {"name": "reporting", "connection": "mariadb", "subscription_streams": 2}
    site = Site(databases(), tmp_path / "store", [article], spark, [subscription])
    site.connections["mariadb"] = mariadb.connection(mariadb_database, "mariadb")
    site.at_publisher("CREATE TABLE vendor (id integer PRIMARY KEY, name text)")
    site.set_up()
    stored = StoredHistory(site)
    old, total = stored.articles["public.vendor"], Column("total", "integer")
    new = stored.next_definition(old, [ID, Column("title"), total])
    history = stored.history()
    for number in range(20):
        history.transaction().insert(old, [str(number), "before"])
    history.transaction().update(old, ["0", "before"], ["0", "within"])
    history.schema(change(old, new, renamed("name", "title"), added(total, "7"))).insert(new, ["20", "within", "8"])
    for number in range(21, 40):
        history.transaction().insert(new, [str(number), "after", "9"])
    stored.store(history)
    result = site.deliver()
    result.raise_error()
    assert mariadb.execute("SELECT id, title, total FROM vendor ORDER BY 1", database=mariadb_database) == [
        (0, "within", 7),
        *((number, "before", 7) for number in range(1, 20)),
        (20, "within", 8),
        *((number, "after", 9) for number in range(21, 40)),
    ]
    assert result.transactions == 40
    assert any("vendor: RENAME COLUMN name TO title" in it for it in result.notices)


def test_rows_behind_a_schema_change_go_in_bulk_at_mariadb(
    databases: DatabasesFactory, mariadb: MariaDbServer, mariadb_database: str, tmp_path: Path
) -> None:
    article = {"source": "public.vendor", "destination": f"{mariadb_database}.vendor"}
    site = Site(
        databases(), tmp_path / "store", [article], SparkHere(), [{"name": "reporting", "connection": "mariadb"}]
    )
    site.connections["mariadb"] = mariadb.connection(mariadb_database, "mariadb")
    site.at_publisher("CREATE TABLE vendor (id integer PRIMARY KEY, name text)")
    site.set_up()
    stored = StoredHistory(site)
    old, total = stored.articles["public.vendor"], Column("total", "integer")
    new = stored.next_definition(old, [ID, Column("title"), total])
    history = stored.history().transaction().insert(old, ["1", "before"])
    history.schema(change(old, new, renamed("name", "title"), added(total, "7")))
    for number in range(2, 6):
        history.transaction().insert(new, [str(number), "after", "9"])
    stored.store(history.transaction().update(new, ["3", "after", "9"], ["3", "later", "9"]))
    result = site.deliver()
    result.raise_error()
    assert mariadb.execute("SELECT id, title, total FROM vendor ORDER BY 1", database=mariadb_database) == [
        (1, "before", 7),
        (2, "after", 9),
        (3, "later", 9),
        (4, "after", 9),
        (5, "after", 9),
    ]
    assert result.in_bulk == 5


def test_an_article_waits_for_a_snapshot_where_its_values_are_written_otherwise(
    databases: DatabasesFactory, mariadb: MariaDbServer, mariadb_database: str, tmp_path: Path
) -> None:
    # Only at the Subscriber that keeps them as text; its other articles go on.
    articles = [
        {"source": f"public.{name}", "destination": f"{mariadb_database}.{name}", "pre_creation_cmd": "delete"}
        for name in ("host", "other")
    ]
    subscriptions = [
        {"name": "reporting", "connection": "mariadb", "sync_type": "automatic"},
        {"name": "second", "connection": "subscriber"},
    ]
    site = Site(databases(), tmp_path / "store", articles, SparkHere(), subscriptions)
    site.connections["mariadb"] = mariadb.connection(mariadb_database, "mariadb")
    site.at_publisher("CREATE TABLE host (id integer PRIMARY KEY, at cidr)", "CREATE TABLE other (id int PRIMARY KEY)")
    site.set_up()
    site.take_snapshot().raise_error()
    stored = StoredHistory(site)
    before, other = stored.articles["public.host"], stored.articles["public.other"]
    site.at_publisher("ALTER TABLE host ALTER COLUMN at TYPE inet", "ALTER TABLE host RENAME at TO address")
    site.at_publisher("INSERT INTO host VALUES (1, '10.0.0.1'), (2, '10.0.0.2')")
    within, after = stored.next_definition(before, [ID, Column("at", "inet")]), stored.published_definition(before)
    history = stored.history().transaction().insert(before, ["1", "10.0.0.1/32"])
    stored.store(history)
    site.deliver().raise_error()
    history = stored.history().transaction().insert(other, ["1"])
    history.schema(change(before, within, retyped(Column("at", "inet"))))
    history.schema(change(within, after, renamed("at", "address"))).insert(after, ["2", "10.0.0.2"])
    stored.store(history)

    result = site.deliver()
    result.raise_error()
    (notice,) = result.notices
    assert notice == (
        "article public.host is copied to reporting again: column at changed from cidr to inet, "
        "which is written otherwise"
    )
    assert mariadb.execute("SELECT * FROM other", database=mariadb_database) == [(1,)]
    assert mariadb.execute("SELECT id, at FROM host", database=mariadb_database) == [(1, "10.0.0.1/32")]
    site.take_snapshot().raise_error()
    rows = "SELECT id, address FROM host ORDER BY 1"
    assert mariadb.execute(rows, database=mariadb_database) == [(1, "10.0.0.1"), (2, "10.0.0.2")]

    site.at_publisher("INSERT INTO host VALUES (3, '10.0.0.3')")
    stored.store(stored.history().transaction().insert(after, ["3", "10.0.0.3"]))
    assert site.deliver().notices == ()
    assert mariadb.execute(rows, database=mariadb_database)[2:] == [(3, "10.0.0.3")]
    site.deliver("second").raise_error()
    rows = "SELECT id, address::text FROM {}host ORDER BY 1"
    assert site.at_subscriber(rows.format(f"{mariadb_database}.")) == site.at_publisher(rows.format(""))
