"""Validation of Subscribers that are not PostgreSQL: values of one meaning are equal whatever each database writes."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from conftest import DatabasesFactory
from support.mariadb import MariaDbServer
from support.site import Site
from support.spark_here import SparkHere
from support.subscribers import STATEMENTS, mssql_execute, sqlite_execute
from support.validated_site import ROWS, ComparedVendor, Subscriber, article_of, compared_vendor
from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError, ErrorKind
from tranrepl.jobs.requests import Repair
from tranrepl.model.arrays import Ints
from tranrepl.subscriber.base.database import SqlDatabase
from tranrepl.subscriber.mariadb import comparison_statements as mariadb_comparison
from tranrepl.validation import differences
from tranrepl.validation.differences import Found

_MARIADB = {
    "name": "'vendor 10'",
    "credit": "2.51",
    "share": "share + 0.001",
    "active": "NOT active",
    "opened": "NULL",
    "called": "'00:00:15.000001'",
    "seen": "seen + INTERVAL 1 MICROSECOND",
    "changed": "changed + INTERVAL 1 MICROSECOND",
    "rate": "rate * 10",
    "quota": "0",
    "note": "CONCAT(note, ' ')",
    "logo": "X'00FE'",
    "tags": "'{a,\"NULL\"}'",
    "details": "'{\"a\": 1}'",
    "mark": "'00000000-0000-0000-0001-000000000000'",
    "kind": "'K'",
}
_SQL_SERVER = {
    **_MARIADB,
    "active": "case when active = 1 then 0 else 1 end",
    "seen": "dateadd(microsecond, 1, seen)",
    "changed": "dateadd(microsecond, 1, changed)",
    "note": "note + ' '",
    "logo": "0x00FE",
}


_SQLITE = {
    **_MARIADB,
    "called": "'00:00:15.000001'",
    "seen": "substr(seen, 1, 25) || '9'",
    "changed": "substr(changed, 1, 25) || '9'",
    "note": "note || ' '",
}


@pytest.fixture(params=["mariadb", "mssql", "sqlite"])
def vendor(request: pytest.FixtureRequest, databases: DatabasesFactory, tmp_path: Path, spark: Any) -> ComparedVendor:
    """Return a table whose rows are at the Publisher alone."""
    asked: Subscriber = request.getfixturevalue(f"{request.param}_end")
    return compared_vendor(databases(), tmp_path / "store", spark, asked)


@pytest.fixture
def mariadb_end(mariadb: MariaDbServer, mariadb_database: str) -> Subscriber:
    execute = partial(mariadb.execute, database=mariadb_database)
    return Subscriber(mariadb.connection(mariadb_database, "mariadb"), mariadb_database, execute, "X'{}'", _MARIADB)


@pytest.fixture
def mssql_end(mssql_database: Connection) -> Subscriber:
    connection = replace(mssql_database, connection_id="mssql")
    return Subscriber(connection, "dbo", partial(mssql_execute, connection), "0x{}", _SQL_SERVER)


@pytest.fixture
def sqlite_end(tmp_path: Path) -> Subscriber:
    path = str(tmp_path / "subscriber.db")
    return Subscriber(Connection("sqlite", "sqlite", database=path), "main", sqlite_execute(path), "X'{}'", _SQLITE)


@pytest.fixture
def moments(databases: DatabasesFactory, mariadb: MariaDbServer, mariadb_database: str, tmp_path: Path) -> Site:
    """Return a table of dates and times whose rows are not replicated: each end has its own."""
    destination = f"{mariadb_database}.moment"
    article = {"source": "public.moment", "destination": destination, **STATEMENTS, "ins_cmd": "NONE"}
    site = Site(
        databases(), tmp_path / "store", [article], SparkHere(), [{"name": "reporting", "connection": "mariadb"}]
    )
    site.connections["mariadb"] = mariadb.connection(mariadb_database, "mariadb")
    site.at_publisher(
        "CREATE TABLE moment (id int PRIMARY KEY, opened date, widened date, called time, changed timestamp, "
        "seen timestamptz)"
    )
    mariadb.execute(
        "CREATE TABLE moment (id int PRIMARY KEY, opened date, widened datetime(6), called time(6), "
        "changed datetime(6), seen datetime(6))",
        database=mariadb_database,
    )
    site.set_up()
    return site


def test_the_first_and_last_moments_that_mariadb_holds_are_compared(
    moments: Site, mariadb: MariaDbServer, mariadb_database: str
) -> None:
    rows = (
        "INSERT INTO moment VALUES (1, '0001-01-01', '0001-01-01', '00:00', '0001-01-01 00:00', '0001-01-01 00:00'), "
        "(2, '9999-12-31', '9999-12-31', '24:00', '9999-12-31 23:59:59.999999', '9999-12-31 23:59:59.999999'), "
        "(3, '9999-12-31', '9999-12-31', '23:59:59.999999', '9999-12-31 23:59:59', '9999-12-31 23:59:59')"
    )
    moments.at_publisher(rows)
    mariadb.execute(rows, database=mariadb_database)
    assert moments.validate().error is None
    mariadb.execute("UPDATE moment SET called = '23:59:59.999999' WHERE id = 2", database=mariadb_database)
    result = moments.validate()
    assert result.validation is not None
    assert [it.columns for it in result.validation.articles[0].rows] == [("called",)]


def test_a_moment_that_mariadb_cannot_hold_differs_from_all_that_it_holds(
    moments: Site, mariadb: MariaDbServer, mariadb_database: str
) -> None:
    # A year before Christ is not the same year after, and infinity is not NULL.
    moments.at_publisher(
        "INSERT INTO moment (id, opened) VALUES (1, '0044-03-15 BC'), (2, 'infinity'), (3, '5874897-12-31')",
        "INSERT INTO moment (id, widened) VALUES (4, '0044-03-15 BC'), (5, '-infinity'), (6, '300000-01-01')",
        "INSERT INTO moment (id, changed) VALUES (7, '0044-03-15 BC'), (8, 'infinity'), (9, '294276-12-31')",
        "INSERT INTO moment (id, seen) VALUES (10, '0044-03-15 BC'), (11, '-infinity'), (12, '294276-12-31')",
        "INSERT INTO moment (id) VALUES (13)",
    )
    rows = ", ".join(f"({number})" for number in range(1, 14))
    mariadb.execute(
        f"INSERT INTO moment (id) VALUES {rows}",
        "UPDATE moment SET opened = '0044-03-15' WHERE id = 1",
        "UPDATE moment SET widened = '0044-03-15' WHERE id = 4",
        "UPDATE moment SET changed = '0044-03-15' WHERE id = 7",
        "UPDATE moment SET seen = '0044-03-15' WHERE id = 10",
        database=mariadb_database,
    )
    result = moments.validate()
    assert result.validation is not None, result.error
    columns = ("opened", "widened", "changed", "seen")
    assert [(it.key["id"], it.columns) for it in result.validation.articles[0].rows] == [
        (str(number), (columns[(number - 1) // 3],)) for number in range(1, 13)
    ]


def test_differences_are_found_exactly_and_repaired(vendor: ComparedVendor, tmp_path: Path) -> None:
    assert vendor.site.validate().error is None

    planted, script = vendor.plant_differences(), tmp_path / "repair.sql"
    assert vendor.differences(repair=Repair.SCRIPT, repair_script=script) == planted
    assert vendor.site.validate(repair=Repair.APPLY).error is None
    assert vendor.site.validate().error is None

    # The same once more, by the script.
    vendor.plant_differences()
    vendor.run_script(script)
    assert vendor.site.validate().error is None


def test_what_is_delivered_while_rows_are_compared_is_not_seen(
    vendor: ComparedVendor, monkeypatch: pytest.MonkeyPatch
) -> None:
    if vendor.subscriber.connection.kind == "sqlite":
        pytest.skip("a delivery waits while rows of a SQLite file are read")

    def compare(*arguments: Any, **named: Any) -> list[Found]:
        vendor.site.at_publisher("UPDATE vendor SET name = 'later'")
        assert vendor.site.run().commands == ROWS
        return differences.compare(*arguments, **named)

    monkeypatch.setattr("tranrepl.validation.job.compare", compare)
    assert vendor.site.validate().error is None


def test_a_table_altered_at_mariadb_ends_its_validation_and_no_session_waits_for_ever(
    moments: Site, mariadb: MariaDbServer, mariadb_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The statement waits for the session that has read the table, and the next one waits for the statement.
    moments.at_publisher("INSERT INTO moment (id) VALUES (1)")
    buckets_of = differences._buckets
    with ThreadPoolExecutor(1) as executor:
        altering: list[Future[object]] = []

        def buckets(*arguments: Any) -> tuple[Ints, Ints]:
            alter = ["SET lock_wait_timeout = 20", "ALTER TABLE moment ADD COLUMN extra int"]
            altering.append(executor.submit(mariadb.execute, *alter, database=mariadb_database))
            while not mariadb.execute(_WAITING):
                assert not altering[0].done()
            return buckets_of(*arguments)

        monkeypatch.setattr(mariadb_comparison, "_LOCK_SECONDS", 1)
        monkeypatch.setattr(differences, "_buckets", buckets)
        result = moments.validate()
        altering[0].result(60)
    assert result.error is not None
    assert (result.error.kind, result.error.database_code) == (ErrorKind.TRANSIENT, "1205")
    monkeypatch.undo()
    assert article_of(moments.validate(), "public.moment").missing == 1


_WAITING = "SELECT 1 FROM information_schema.processlist WHERE state = 'Waiting for table metadata lock'"


def test_a_subscriber_without_checksums_is_refused() -> None:
    with sa.create_engine("sqlite://").connect() as session, pytest.raises(ConfigurationError) as refused:
        SqlDatabase("oracle").comparison_ways(session, "Subscriber archive")
    assert "allowed: a Subscriber in PostgreSQL, MariaDB, MySQL, SQL Server or SQLite" in str(refused.value)
