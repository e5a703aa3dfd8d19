"""Rows of a MariaDB Publisher are compared under load with PostgreSQL's and MariaDB's, and repaired."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from conftest import DatabasesFactory
from support.mariadb import MariaDbServer
from support.site import Site, execute
from support.spark_here import SparkHere
from tranrepl.connections import Connection
from tranrepl.jobs.requests import Repair
from tranrepl.jobs.validation_report import Difference

_databases = count(1)
_ITEM = """CREATE TABLE item (
    id int, part varbinary(4), name varchar(40) NOT NULL, price decimal(12,3), ratio double, small float,
    at datetime(3), took time(2), day date, bits bit(12), state enum('new', 'öld'), data blob, many bigint unsigned,
    sure tinyint(1), yes bool, PRIMARY KEY (id, sure, part)) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"""
_ROW = (
    "({0}, X'0{1}ff', 'row {0}|~', {0} / 7, {0} * 1e-9, {0} / 3, '2024-02-29 01:02:03.4{1}', '-{1}:00:00.5', "
    "'2024-02-29', {0}, IF({1} % 2, 'new', 'öld'), IF({1} = 3, NULL, X'00{1}a'), 18446744073709551615 - {0}, "
    "{1} % 2, IF({1} = 3, NULL, {1} < 5))"
)
Run = Callable[..., list[tuple[Any, ...]]]


def _rows(*numbers: int) -> str:
    return f"INSERT INTO item VALUES {', '.join(_ROW.format(it, it % 10) for it in numbers)}"


@contextmanager
def _load(run: Run) -> Iterator[None]:
    """Change rows until the end, a transaction after the other."""
    ended, failed = Event(), list[BaseException]()

    def write() -> None:
        try:
            for number in count(1000):
                if ended.is_set():
                    return
                run(_rows(number, number + 100_000), f"UPDATE item SET price = price + 1 WHERE id = {number % 40}")
                run(f"DELETE FROM item WHERE id = {number + 99_999}")
        except BaseException as error:
            failed.append(error)
            raise

    writer = Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()
    assert failed == []


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_rows_are_compared_under_load_and_repaired(
    kind: str, mariadb_shop: MariaDbServer, databases: DatabasesFactory, tmp_path: Path
) -> None:
    number = next(_databases)
    schema, there = f"compared{number}", f"subscriber{number}"
    mariadb_shop.execute(f"CREATE DATABASE {schema}", f"CREATE DATABASE {there}")

    def at_publisher(*statements: str) -> list[tuple[Any, ...]]:
        return mariadb_shop.execute(*statements, database=schema)

    ends = replace(databases(), publisher=mariadb_shop.connection(schema, "publisher"))
    destination = "public.item"
    if kind == "mariadb":
        if mariadb_shop.kind == "mysql":
            pytest.skip("nobody has run MySQL as a Subscriber")
        ends = replace(ends, subscriber=mariadb_shop.connection(there, "subscriber"))
        destination = f"{there}.item"
    at_publisher(_ITEM, _rows(*range(1, 200)))
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
    article = {"source": f"{schema}.item", "destination": destination}
    site = Site(ends, tmp_path / "store", [article], SparkHere(), [subscription])
    site.set_up()
    site.take_snapshot().raise_error()
    at_subscriber = _at(ends.subscriber, mariadb_shop, there)
    with _load(at_publisher):
        validated = site.validate()
        assert validated.error is None, validated.validation
        assert validated.validation is not None
        assert validated.validation.articles[0].publisher_rows > 199
        at_subscriber(
            "UPDATE item SET price = 0, data = NULL, yes = NOT yes WHERE id = 50",
            "DELETE FROM item WHERE id IN (60, 61)",
            "INSERT INTO item (id, sure, part, name) SELECT 70, sure, part, 'extra' FROM item WHERE id = 71",
        )
        found = site.validate()
        assert found.validation is not None
        rows = {it.key["id"]: (it.difference, it.columns) for it in found.validation.articles[0].rows}
        assert rows == {
            "50": (Difference.DIFFERENT, ("price", "data", "yes")),
            "60": (Difference.MISSING, ()),
            "61": (Difference.MISSING, ()),
            "70": (Difference.EXTRA, ()),
        }
        site.validate(repair=Repair.APPLY).raise_error()
    site.validate().raise_error()
    numbers = "SELECT id, name, price, many, sure, yes FROM item ORDER BY id, part"
    assert at_subscriber(numbers) == at_publisher(numbers)


def _at(connection: Connection, server: MariaDbServer, database: str) -> Run:
    if connection.kind == "mariadb":
        return lambda *statements: server.execute(*statements, database=database)
    return lambda *statements: execute(connection, *statements)
