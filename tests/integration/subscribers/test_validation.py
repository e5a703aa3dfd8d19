"""Validation of Subscribers that are not PostgreSQL: values of one meaning are equal whatever each database writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conftest import DatabasesFactory
from support.mariadb import MariaDbServer
from support.site import Site
from support.spark_here import SparkHere
from support.subscribers import STATEMENTS
from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError
from tranrepl.jobs.requests import Repair
from tranrepl.jobs.results import JobResult
from tranrepl.validation import comparison
from tranrepl.validation.comparison import Found

_TABLE = """
CREATE TABLE vendor (
    code bytea, place text, name varchar(40), credit numeric(10,2), share numeric, active boolean, opened date,
    called time, seen timestamptz, changed timestamp(3), rate double precision, quota real, note text, logo bytea,
    tags text[], details jsonb, kind char(4), PRIMARY KEY (place, code)
)
"""
_ROWS = r"""
INSERT INTO vendor SELECT decode(to_hex(n + 4096), 'hex'), CASE WHEN n % 2 = 0 THEN 'Zürich|~' ELSE '😀 \' END,
    'Vendor ' || n, n / 4.0, n / 8.0, n % 2 = 0, date '2024-02-29' + n, time '00:00' + n * interval '1.5 s',
    timestamptz '2024-01-01 00:00:00.000001+02' + n * interval '1 h', timestamp '2024-01-01 00:00:00.001',
    CASE n % 4 WHEN 0 THEN n * 1e20 WHEN 1 THEN n / 3e9 WHEN 2 THEN -n * 1000 ELSE n / 7.0 END,
    n / 10.0::real, CASE WHEN n % 3 > 0 THEN E'a\tb ' || n END, '\x00ff', ARRAY['a', NULL], '{"a": 1.0}', 'k'
FROM generate_series(1, 200) n
"""
_NULLS = "INSERT INTO vendor (code, place) VALUES ('', ''), ('\\x00', '')"
_CHANGES = {
    "name": "'vendor 10'",
    "credit": "2.51",
    "share": "share + 0.001",
    "active": "NOT active",
    "opened": "NULL",
    "called": "'00:00:15.000001'",
    "seen": "seen + INTERVAL 1 MICROSECOND",
    "rate": "rate * 10",
    "quota": "0",
    "note": "CONCAT(note, ' ')",
    "logo": "X'00FE'",
    "tags": "'{a,\"NULL\"}'",
    "details": "'{\"a\": 1}'",
    "kind": "'K'",
}


@pytest.fixture
def site(
    databases: DatabasesFactory, mariadb: MariaDbServer, mariadb_database: str, tmp_path: Path, spark: Any
) -> Site:
    site = Site(
        databases(),
        tmp_path / "store",
        [{"source": "public.vendor", "destination": f"{mariadb_database}.vendor", **STATEMENTS}],
        spark,
        [{"name": "reporting", "connection": "mariadb"}],
    )
    site.connections["mariadb"] = mariadb.connection(mariadb_database, "mariadb")
    site.at_publisher(_TABLE)
    site.set_up()
    site.at_publisher(_ROWS, _NULLS)
    return site


@pytest.fixture
def moments(databases: DatabasesFactory, mariadb: MariaDbServer, mariadb_database: str, tmp_path: Path) -> Site:
    """Of dates and times, whose rows are not replicated: each end's are its own."""
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
    """A year before Christ is not the same year after, and infinity is not NULL."""
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


def _found(result: JobResult) -> list[tuple[str, str | None, tuple[str, ...]]]:
    assert result.validation is not None, result.error
    return [(it.difference.value, it.key["code"], it.columns) for it in result.validation.articles[0].rows]


def test_differences_in_mariadb_are_found_exactly_and_repaired(
    site: Site, mariadb: MariaDbServer, mariadb_database: str, tmp_path: Path
) -> None:
    assert site.validate().error is None

    planted: list[tuple[str, str, tuple[str, ...]]] = [("extra", "\\xffff", ()), ("missing", "\\x1001", ())]
    changes = ["DELETE FROM vendor WHERE code = X'1001'", "INSERT INTO vendor (code, place) VALUES (X'FFFF', 'new')"]
    for at, (column, value) in enumerate(_CHANGES.items()):
        code = f"{4096 + 10 + at * 3:x}"
        planted.append(("different", f"\\x{code}", (column,)))
        changes.append(f"UPDATE vendor SET {column} = {value} WHERE code = X'{code}'")
    mariadb.execute(*changes, database=mariadb_database)
    script = tmp_path / "repair.sql"
    result = site.validate(repair=Repair.SCRIPT, repair_script=script)
    assert sorted(_found(result)) == sorted(planted)

    assert site.validate(repair=Repair.APPLY).error is None
    assert site.validate().error is None

    # The same once more, by the script.
    mariadb.execute(*changes, database=mariadb_database)
    statements = script.read_text(encoding="utf-8").split(";\n")
    mariadb.execute(*(it for it in statements if it.strip()), database=mariadb_database)
    assert site.validate().error is None


def test_what_is_delivered_while_rows_are_compared_is_not_seen(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def compare(*arguments: Any, **named: Any) -> list[Found]:
        site.at_publisher("UPDATE vendor SET name = 'later'")
        assert site.run().commands == 202
        return comparison.compare(*arguments, **named)

    monkeypatch.setattr("tranrepl.validation.job.compare", compare)
    assert site.validate().error is None


def test_a_subscriber_without_checksums_is_refused(databases: DatabasesFactory, tmp_path: Path, spark: Any) -> None:
    articles = [{"source": "public.vendor", **STATEMENTS}]
    subscriptions = [{"name": "archive", "connection": "sqlite"}]
    site = Site(databases(), tmp_path / "store", articles, spark, subscriptions)
    site.connections["sqlite"] = Connection("sqlite", "sqlite", database=str(tmp_path / "archive.db"))
    site.at_publisher(_TABLE)
    site.set_up()
    error = site.validate("archive").error
    assert error is not None
    assert isinstance(error.to_exception(), ConfigurationError)
    assert "allowed: a Subscriber in PostgreSQL, MariaDB, MySQL or SQL Server" in (error.remedy or "")
