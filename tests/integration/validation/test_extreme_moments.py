"""Validation of the first and last dates and times that each type holds: nothing ends it, and what differs is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.embedded_postgres import PostgresServer
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.jobs.requests import Repair
from tranrepl.jobs.results import JobResult
from tranrepl.model.comparison import Checksum

_EXTREMES = {
    "date": (
        "-infinity",
        "4713-11-24 BC",
        "0001-12-31 BC",
        "294276-12-31",
        "294277-01-01",
        "5874897-12-31",
        "infinity",
    ),
    "timestamp without time zone": ("-infinity", "4713-11-24 00:00 BC", "294276-12-31 23:59:59.999999", "infinity"),
    "timestamp with time zone": ("-infinity", "4713-11-24 00:00+00 BC", "294276-12-31 23:59:59.999999+00", "infinity"),
    "timestamp(3) without time zone": ("4713-11-24 00:00 BC", "294276-12-31 23:59:59.999", "infinity"),
    "time without time zone": ("00:00:00", "23:59:59.999999", "24:00:00"),
    "time with time zone": ("00:00:00+15:59:59", "24:00:00-15:59:59", "23:59:60+00"),
    "interval": ("-178000000 years", "178000000 years", "-2147483648 days", "2562047788:00:54.775807"),
}


def _named(result: JobResult) -> set[tuple[str, str]]:
    assert result.validation is not None, result.error
    return {(str(row.key["id"]), ", ".join(row.columns)) for it in result.validation.articles for row in it.rows}


@pytest.fixture(params=list(Checksum), ids=lambda it: it.name.lower())
def checksum_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Checksum:
    """Return each of the two ways in which a row becomes a number."""
    monkeypatch.setattr("tranrepl.validation.comparison_targets._checksum", lambda *_: request.param)
    chosen: Checksum = request.param
    return chosen


@pytest.mark.usefixtures("checksum_by")
@pytest.mark.parametrize("server", ["postgres", pytest.param("debian_postgres", marks=pytest.mark.slow)])
def test_the_first_and_last_moments_of_each_type_are_compared(
    server: str, databases: DatabasesFactory, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    # Each value is a row; the row after it has the same value, and another one at the Subscriber.
    home: PostgresServer = request.getfixturevalue(server)
    site = Site(databases(publisher=home, subscriber=home), tmp_path / "store", ["public.moment"], SparkHere())
    columns = [f"c{at}" for at in range(len(_EXTREMES))]
    typed = ", ".join(f"{name} {it}" for name, it in zip(columns, _EXTREMES, strict=True))
    site.at_publisher(f"CREATE TABLE moment (id int PRIMARY KEY, {typed})")
    site.set_up()
    differing = set()
    number = 0
    for name, values in zip(columns, _EXTREMES.values(), strict=True):
        for value in values:
            number += 2
            site.at_publisher(
                f"INSERT INTO moment (id, {name}) VALUES ({number}, '{value}'), ({number + 1}, '{value}')"
            )
            differing.add((str(number + 1), name))
    site.at_publisher("INSERT INTO moment VALUES (1)")
    site.run()
    assert site.validate().error is None
    assert site.differences() == []

    plain = ("2000-01-01", "2000-01-01", "2000-01-01 00:00+00", "2000-01-01", "12:00", "12:00+00", "1 s")
    for name, other in zip(columns, plain, strict=True):
        site.at_subscriber(f"UPDATE moment SET {name} = '{other}' WHERE {name} IS NOT NULL AND id % 2 = 1")
    assert _named(site.validate()) == differing
    assert site.validate(repair=Repair.APPLY).error is None
    assert site.differences() == []


@pytest.mark.usefixtures("checksum_by")
def test_dates_that_lie_far_apart_find_their_rows(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = Site(databases(), tmp_path / "store", ["public.era"], SparkHere())
    site.at_publisher("CREATE TABLE era (id date PRIMARY KEY, name text)")
    site.set_up()
    site.at_publisher(
        "INSERT INTO era VALUES ('4713-11-24 BC', 'first'), ('5874897-12-31', 'last'), ('infinity', 'never'), "
        "('-infinity', 'always'), ('300000-01-01', 'far')"
    )
    site.run()
    assert site.validate().error is None
    site.at_subscriber("UPDATE era SET name = 'other' WHERE id IN ('5874897-12-31', '-infinity')")
    assert _named(site.validate()) == {("5874897-12-31", "name"), ("-infinity", "name")}


@pytest.mark.usefixtures("checksum_by")
def test_a_date_outside_the_subscribers_range_only_misses_its_row(databases: DatabasesFactory, tmp_path: Path) -> None:
    article = {"source": "public.era", "ins_cmd": "NONE"}
    site = Site(databases(), tmp_path / "store", [article], SparkHere())
    site.at_publisher("CREATE TABLE era (id int PRIMARY KEY, began date)")
    site.at_subscriber("CREATE TABLE era (id int PRIMARY KEY, began timestamptz)")
    site.set_up()
    rows = "INSERT INTO era VALUES (1, '294276-12-31'), (2, '4713-11-24 BC'), (3, 'infinity'), (4, NULL)"
    site.at_publisher(rows, "INSERT INTO era VALUES (5, '294277-01-01'), (6, '5874897-12-31')")
    site.at_subscriber(rows, "INSERT INTO era VALUES (6, NULL)")
    assert _named(site.validate()) == {("5", ""), ("6", "began")}
