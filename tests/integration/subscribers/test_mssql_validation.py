"""Validation of a SQL Server Subscriber: values of one meaning are equal whatever each database writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import DatabasesFactory
from support.site import Site
from support.spark_here import SparkHere
from support.subscribers import STATEMENTS, mssql_execute
from tranrepl.connections import Connection
from tranrepl.jobs.requests import Repair
from tranrepl.jobs.results import JobResult
from tranrepl.validation import comparison
from tranrepl.validation.comparison import Found

_TABLE = """
CREATE TABLE vendor (
    code bytea, place text, name varchar(40), credit numeric(10,2), share numeric, active boolean, opened date,
    called time, seen timestamptz, changed timestamp(3), rate double precision, quota real, note text, logo bytea,
    tags text[], mark uuid, kind char(4), PRIMARY KEY (place, code)
)
"""
_ROWS = r"""
INSERT INTO vendor SELECT decode(to_hex(n + 4096), 'hex'), CASE WHEN n % 2 = 0 THEN 'Zürich|~' ELSE '😀 \' END,
    'Vendor ' || n, n / 4.0, n / 8.0, n % 2 = 0, date '2024-02-29' + n, time '00:00' + n * interval '1.5 s',
    timestamptz '2024-01-01 00:00:00.000001+02' + n * interval '1 h', timestamp '2024-01-01 00:00:00.001',
    CASE n % 4 WHEN 0 THEN n * 1e20 WHEN 1 THEN n / 3e9 WHEN 2 THEN -n * 1000 ELSE n / 7.0 END,
    n / 10.0::real, CASE WHEN n % 3 > 0 THEN E'a\tb ' || n END, '\x00ff', ARRAY['a', NULL],
    ('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid, 'k'
FROM generate_series(1, 100) n
"""
_NULLS = "INSERT INTO vendor (code, place) VALUES ('', ''), ('\\x01', '')"
_CHANGES = {
    "name": "'vendor 10'",
    "credit": "2.51",
    "share": "share + 0.001",
    "active": "case when active = 1 then 0 else 1 end",
    "opened": "NULL",
    "called": "'00:00:15.000001'",
    "seen": "dateadd(microsecond, 1, seen)",
    "changed": "dateadd(microsecond, 1, changed)",
    "rate": "rate * 10",
    "quota": "0",
    "note": "note + ' '",
    "logo": "0x00FE",
    "tags": "N'{a,\"NULL\"}'",
    "mark": "'00000000-0000-0000-0001-000000000000'",
    "kind": "N'K'",
}
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


@pytest.fixture
def mssql(mssql_database: Connection) -> Connection:
    return replace(mssql_database, connection_id="mssql")


def _site(
    databases: DatabasesFactory, mssql: Connection, tmp_path: Path, table: str, commands: dict[str, str], spark: Any
) -> Site:
    site = Site(
        databases(),
        tmp_path / "store",
        [{"source": f"public.{table}", "destination": f"dbo.{table}", **commands}],
        spark,
        [{"name": "reporting", "connection": "mssql"}],
    )
    site.connections["mssql"] = mssql
    return site


@pytest.fixture
def site(databases: DatabasesFactory, mssql: Connection, tmp_path: Path, spark: Any) -> Site:
    site = _site(databases, mssql, tmp_path, "vendor", STATEMENTS, spark)
    site.at_publisher(_TABLE)
    site.set_up()
    site.at_publisher(_ROWS, _NULLS)
    return site


def _found(result: JobResult) -> list[tuple[str, str | None, tuple[str, ...]]]:
    assert result.validation is not None, result.error
    return [(it.difference.value, it.key["code"], it.columns) for it in result.validation.articles[0].rows]


def test_differences_in_sql_server_are_found_exactly_and_repaired(
    site: Site, mssql: Connection, tmp_path: Path
) -> None:
    assert site.validate().error is None

    planted: list[tuple[str, str, tuple[str, ...]]] = [("extra", "\\xffff", ()), ("missing", "\\x1001", ())]
    changes = ["DELETE FROM vendor WHERE code = 0x1001", "INSERT INTO vendor (code, place) VALUES (0xFFFF, N'new')"]
    for at, (column, value) in enumerate(_CHANGES.items()):
        code = f"{4096 + 10 + at * 3:x}"
        planted.append(("different", f"\\x{code}", (column,)))
        changes.append(f"UPDATE vendor SET {column} = {value} WHERE code = 0x{code}")
    mssql_execute(mssql, *changes)
    script = tmp_path / "repair.sql"
    result = site.validate(repair=Repair.SCRIPT, repair_script=script)
    assert sorted(_found(result)) == sorted(planted)

    assert site.validate(repair=Repair.APPLY).error is None
    assert site.validate().error is None

    # The same once more, by the script.
    mssql_execute(mssql, *changes)
    statements = script.read_text(encoding="utf-8").split(";\n")
    mssql_execute(mssql, *(it for it in statements if it.strip()))
    assert site.validate().error is None


def test_what_is_delivered_while_sql_server_is_compared_is_not_seen(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compare(*arguments: Any, **named: Any) -> list[Found]:
        site.at_publisher("UPDATE vendor SET name = 'later'")
        assert site.run().commands == 102
        return comparison.compare(*arguments, **named)

    monkeypatch.setattr("tranrepl.validation.job.compare", compare)
    assert site.validate().error is None


def test_values_of_sql_servers_own_types_are_compared(
    databases: DatabasesFactory, mssql: Connection, tmp_path: Path
) -> None:
    # Rows are not replicated: each end's are its own.
    site = _site(databases, mssql, tmp_path, "moment", {**STATEMENTS, "ins_cmd": "NONE"}, SparkHere())
    columns = [f"c{at}" for at in range(len(_OWN_TYPES))]
    types, values, same, other = zip(*_OWN_TYPES.values(), strict=True)
    published = ", ".join(f"{name} {it}" for name, it in zip(columns, types, strict=True))
    declared = ", ".join(f"{name} {it}" for name, it in zip(columns, _OWN_TYPES, strict=True))
    site.at_publisher(f"CREATE TABLE moment (id int PRIMARY KEY, {published})")
    mssql_execute(mssql, f"CREATE TABLE moment (id int PRIMARY KEY, {declared})")
    site.set_up()
    rows = range(len(columns) + 2)
    site.at_publisher(*(f"INSERT INTO moment VALUES ({row}, {', '.join(values)})" for row in rows[:-1]))
    site.at_publisher(f"INSERT INTO moment (id) VALUES ({rows[-1]})")
    for row in rows[:-1]:
        here = [other[at] if at == row else it for at, it in enumerate(same)]
        mssql_execute(mssql, f"INSERT INTO moment VALUES ({row}, {', '.join(here)})")
    mssql_execute(mssql, f"INSERT INTO moment (id) VALUES ({rows[-1]})")
    result = site.validate()
    assert result.validation is not None, result.error
    found = {it.key["id"]: it.columns for it in result.validation.articles[0].rows}
    assert found == {str(row): (name,) for row, name in enumerate(columns)}
