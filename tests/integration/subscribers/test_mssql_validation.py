"""Validation of a SQL Server Subscriber: values of one meaning are equal whatever each database writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from conftest import DatabasesFactory
from support.site import Site
from support.spark_here import SparkHere
from support.subscribers import STATEMENTS, mssql_execute
from tranrepl.connections import Connection
from tranrepl.jobs.requests import Repair

# Declared by the Subscriber: type at the Publisher, a value there, the same at the Subscriber, and another one.
_OWN_TYPES = {
    "datetime": ("timestamp(3)", "'2024-01-01 00:00:00.003'", "'2024-01-01T00:00:00.003'", "'2024-01-01T00:00:00.007'"),
    "smalldatetime": ("timestamp", "'2024-01-01 00:01'", "'2024-01-01T00:01:00'", "'2024-01-01T00:02:00'"),
    "datetime2(0)": ("timestamp", "'9999-12-31 23:59:59'", "'9999-12-31 23:59:59'", "'9999-12-31 23:59:58'"),
    "datetimeoffset(3)": (
        "timestamptz",
        "'2024-01-01 02:00:00.123+02'",
        "'2024-01-01 05:00:00.123 +05:00'",
        "'2024-01-01 05:00:00.123 +04:00'",
    ),
    "time(0)": ("time", "'12:34:56'", "'12:34:56'", "'12:34:57'"),
    "money": ("numeric", "1.5", "1.5000", "1.5001"),
    "tinyint": ("smallint", "7", "7", "8"),
    "real": ("double precision", "0.5", "0.5e0", "0.25e0"),
    "float": ("real", "0.1", "0.1e0", "0.10000000149011612e0"),
    "nchar(4)": ("text", "'ab'", "N'ab'", "N'aB'"),
    "varchar(9)": ("text", "'plain'", "'plain'", "'Plain'"),
    "binary(2)": ("bytea", r"'\x0001'", "0x0001", "0x0002"),
}


def test_values_of_sql_servers_own_types_are_compared(
    databases: DatabasesFactory, mssql_database: Connection, tmp_path: Path
) -> None:
    # Rows are not replicated: each end's are its own.
    article = {"source": "public.moment", "destination": "dbo.moment", **STATEMENTS, "ins_cmd": "NONE"}
    site = Site(databases(), tmp_path / "store", [article], SparkHere(), [{"name": "reporting", "connection": "mssql"}])
    site.connections["mssql"] = replace(mssql_database, connection_id="mssql")
    columns = [f"c{at}" for at in range(len(_OWN_TYPES))]
    types, values, same, other = zip(*_OWN_TYPES.values(), strict=True)
    published = ", ".join(f"{name} {it}" for name, it in zip(columns, types, strict=True))
    declared = ", ".join(f"{name} {it}" for name, it in zip(columns, _OWN_TYPES, strict=True))
    site.at_publisher(f"CREATE TABLE moment (id int PRIMARY KEY, {published})")
    mssql_execute(mssql_database, f"CREATE TABLE moment (id int PRIMARY KEY, {declared})")
    site.set_up()
    rows = range(len(columns) + 2)
    site.at_publisher(*(f"INSERT INTO moment VALUES ({row}, {', '.join(values)})" for row in rows[:-1]))
    site.at_publisher(f"INSERT INTO moment (id) VALUES ({rows[-1]})")
    for row in rows[:-1]:
        here = [other[at] if at == row else it for at, it in enumerate(same)]
        mssql_execute(mssql_database, f"INSERT INTO moment VALUES ({row}, {', '.join(here)})")
    mssql_execute(mssql_database, f"INSERT INTO moment (id) VALUES ({rows[-1]})")
    result = site.validate()
    assert result.validation is not None, result.error
    found = {it.key["id"]: it.columns for it in result.validation.articles[0].rows}
    assert found == {str(row): (name,) for row, name in enumerate(columns)}


def test_rows_keyed_by_uniqueidentifier_are_copied_changed_and_repaired(
    databases: DatabasesFactory, mssql_database: Connection, tmp_path: Path
) -> None:
    # SQL Server sorts them by their last bytes first, PostgreSQL by the first: nothing may rely on either order.
    article = {"source": "public.item", "destination": "dbo.item", **STATEMENTS}
    ends = replace(databases(), subscriber=mssql_database)
    subscriptions = [{"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}]
    site = Site(ends, tmp_path / "store", [article], SparkHere(), subscriptions)
    site.at_publisher(
        "CREATE TABLE item (id uuid PRIMARY KEY, name text)",
        "INSERT INTO item SELECT gen_random_uuid(), 'item ' || g FROM generate_series(1, 500) g",
        "INSERT INTO item VALUES ('00000000-0000-0000-0000-ffffffffffff', 'first'), "
        "('FFFFFFFF-FFFF-FFFF-FFFF-000000000000', 'last')",
    )
    site.set_up()
    assert site.take_snapshot().error is None

    def assert_equal() -> None:
        here = mssql_execute(mssql_database, "SELECT lower(convert(char(36), id)), name FROM item")
        assert sorted(here) == sorted(site.at_publisher("SELECT id::text, name FROM item"))
        assert site.validate().error is None

    assert_equal()
    site.at_publisher(
        "UPDATE item SET name = upper(name)",
        "UPDATE item SET id = gen_random_uuid() WHERE name LIKE '%7'",
        "DELETE FROM item WHERE name LIKE '%3'",
        "INSERT INTO item SELECT gen_random_uuid(), 'new ' || g FROM generate_series(1, 50) g",
    )
    delivered = site.run()
    assert delivered.in_bulk == delivered.commands > 600
    assert_equal()
    mssql_execute(
        mssql_database,
        "DELETE FROM item WHERE name = 'FIRST'",
        "UPDATE item SET name = 'another' WHERE name = 'LAST'",
        "INSERT INTO item VALUES ('00000000-0000-0000-0000-000000000001', 'own')",
    )
    found = site.validate(repair=Repair.APPLY).validation
    assert found is not None
    assert len(found.articles[0].rows) == 3
    assert_equal()
