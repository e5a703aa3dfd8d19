"""A published column that a Subscriber's table lacks: what is printed is pasted, and both ends have the same values."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from conftest import DatabasesFactory
from support.mariadb import MariaDbServer
from support.remedies import commands_of, execute_command
from support.site import Site
from support.spark_here import SparkHere
from support.subscribers import STATEMENTS
from support.whole_run import good_run, whole_run
from tranrepl.admin.check import check
from tranrepl.connections import Connection
from tranrepl.errors import ErrorReport
from tranrepl.next_steps import Place, named

_STEP = re.compile(r"(?P<statement>(?:ALTER|EXEC) [^;]*);|(?P<command>`tranrepl [^`]*`)")
_WITH_A_CHANGE_READ = ("INSERT INTO orders VALUES (2, 20, 'two')", "UPDATE orders SET note = 'changed' WHERE id = 1")

Execute = Callable[[str], Any]


@pytest.fixture(params=["postgres", "mariadb", "sqlite"])
def ends(request: pytest.FixtureRequest, databases: DatabasesFactory, tmp_path: Path) -> tuple[Site, Execute]:
    """Return a site with a delivered order, and what executes a statement at its Subscriber."""
    site = Site(
        databases(),
        tmp_path / "store",
        [{"source": "public.orders", "destination": "public.orders", "pre_creation_cmd": "delete", **STATEMENTS}],
        SparkHere(),
        [{"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}],
    )
    execute: Execute = site.at_subscriber
    if request.param == "mariadb":
        server: MariaDbServer = request.getfixturevalue("mariadb")
        database: str = request.getfixturevalue("mariadb_database")
        site = _to(site, server.connection(database, "subscriber"), f"{database}.orders")
        execute = lambda statement: server.execute(statement, database=database)  # noqa: E731
    elif request.param == "sqlite":
        path = str(tmp_path / "reporting.db")
        site = _to(site, Connection("subscriber", "sqlite", database=path), "public.orders")
        execute = lambda statement: _in_file(path, statement)  # noqa: E731
    site.at_publisher(
        "CREATE TABLE orders (id int PRIMARY KEY, total int, note text)",
        "INSERT INTO orders VALUES (1, 10, 'one')",
    )
    site.set_up()
    good_run(site)
    return site, execute


def _to(site: Site, subscriber: Connection, destination: str) -> Site:
    article = {**site.publication.articles[0].model_dump(mode="json", exclude_unset=True), "destination": destination}
    subscriptions = [it.model_dump(mode="json", exclude_unset=True) for it in site.publication.subscriptions]
    other = Site(site.databases, site.publication.distributor.store, [article], site.spark, subscriptions)
    other.connections["subscriber"] = subscriber
    return other


def _in_file(path: str, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as session, session:
        return session.execute(statement).fetchall()


def _paste(site: Site, execute: Execute, error: ErrorReport) -> list[str]:
    """Do what the error's remedy says, in its order, up to the other way; return the first words of each step."""
    remedy = named(error.remedy or "", Place(subscription="reporting"), error.article)
    done = []
    for step in _STEP.finditer(remedy.partition(" else ")[0]):
        if step["statement"] is not None:
            execute(step["statement"])
            done.append(step["statement"].split(" ", 1)[0])
        else:
            ((command,),) = commands_of(step["command"])
            errors = execute_command(site, command)
            # Its log reader fails, as the remedy says.
            assert not errors or command.verb == "run", errors
            done.append(command.verb)
    return done


def _checked(site: Site) -> ErrorReport:
    (problem,) = check(site.topology).problems
    return problem.report


def _assert_equal(site: Site, execute: Execute, columns: str) -> None:
    good_run(site)
    rows = f"SELECT {columns} FROM orders ORDER BY id"
    assert list(execute(rows)) == site.at_publisher(rows)
    assert site.set_up() == []


def test_a_column_that_was_renamed_unannounced_keeps_its_values(ends: tuple[Site, Execute]) -> None:
    site, execute = ends
    site.at_publisher(*_WITH_A_CHANGE_READ)
    site.read_log().raise_error()
    site.at_publisher("INSERT INTO orders VALUES (3, 3, 'before')", "ALTER TABLE orders RENAME COLUMN total TO amount")
    site.at_publisher("INSERT INTO orders VALUES (4, 4, 'after')", "UPDATE orders SET amount = 11 WHERE id = 1")
    assert _paste(site, execute, _checked(site)) == ["run", "ALTER", "setup"]
    _assert_equal(site, execute, "id, amount, note")


def test_a_column_that_was_renamed_there_too_early_gets_what_is_stored(ends: tuple[Site, Execute]) -> None:
    site, execute = ends
    site.at_publisher(*_WITH_A_CHANGE_READ)
    site.read_log().raise_error()
    site.at_publisher("ALTER TABLE orders RENAME COLUMN total TO amount", "UPDATE orders SET amount = 11 WHERE id = 1")
    execute("ALTER TABLE orders RENAME COLUMN total TO amount")
    error = whole_run(site)["reporting"].error
    assert error is not None
    assert _paste(site, execute, error) == ["ALTER"]
    assert _paste(site, execute, _checked(site)) == ["run", "ALTER", "setup"]
    _assert_equal(site, execute, "id, amount, note")


@pytest.mark.parametrize("told_by", ["check", "run"])
def test_a_column_that_was_dropped_at_the_subscriber_gets_its_values_again(
    told_by: str, ends: tuple[Site, Execute]
) -> None:
    site, execute = ends
    execute("ALTER TABLE orders DROP COLUMN total")
    site.at_publisher(*_WITH_A_CHANGE_READ)
    if told_by == "check":
        error = _checked(site)
    else:
        found = whole_run(site)["reporting"].error
        assert found is not None
        error = found
    assert _paste(site, execute, error)[0] == "ALTER"
    _assert_equal(site, execute, "id, total, note")


def test_a_column_that_was_added_unannounced_gets_its_values(ends: tuple[Site, Execute]) -> None:
    site, execute = ends
    site.at_publisher(*_WITH_A_CHANGE_READ, "ALTER TABLE orders ADD COLUMN grade int DEFAULT 3")
    site.at_publisher("UPDATE orders SET grade = 4 WHERE id = 2")
    assert _paste(site, execute, _checked(site)) == ["ALTER", "setup"]
    _assert_equal(site, execute, "id, total, note, grade")
