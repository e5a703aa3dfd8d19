"""A published column that a Subscriber's table lacks: what is printed is pasted, and both ends have the same values."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from support.databases import shared_databases
from support.embedded_postgres import PostgresServer
from support.mariadb import MariaDbServer
from support.remedies import commands_of, execute_command
from support.site import Site
from support.spark_here import SparkHere
from support.subscribers import STATEMENTS
from support.whole_run import good_run, whole_run
from tranrepl.admin.check import check
from tranrepl.connections import Connection
from tranrepl.errors import ErrorReport
from tranrepl.remedies import Place, named

_STEP = re.compile(r"(?P<statement>(?:ALTER|EXEC) [^;]*);|(?P<command>`tranrepl [^`]*`)")

Execute = Callable[[str], Any]


_TABLES = ("renamed", "early", "dropped_and_checked", "dropped_and_run", "added")
"""Each test has one of its own."""


@pytest.fixture(scope="module", params=["postgres", "mariadb", "sqlite"])
def ends(
    request: pytest.FixtureRequest, postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Site, Execute]]:
    """Yield a site with a delivered order in each table, and what executes a statement at its Subscriber. Each test
    leaves both ends equal."""
    folder = tmp_path_factory.mktemp("missing_columns")
    with ExitStack() as stack:
        site = Site(
            stack.enter_context(shared_databases(postgres, "missing_columns")),
            folder / "store",
            [{"source": f"public.{it}", "pre_creation_cmd": "delete", **STATEMENTS} for it in _TABLES],
            SparkHere(),
            [{"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}],
        )
        execute: Execute = site.at_subscriber
        if request.param == "mariadb":
            server: MariaDbServer = request.getfixturevalue("mariadb")
            database = stack.enter_context(server.new_database())
            site = _to(site, server.connection(database, "subscriber"), database)
            execute = lambda statement: server.execute(statement, database=database)  # noqa: E731
        elif request.param == "sqlite":
            path = str(folder / "reporting.db")
            site = _to(site, Connection("subscriber", "sqlite", database=path), "public")
            execute = lambda statement: _in_file(path, statement)  # noqa: E731
        for table in _TABLES:
            site.at_publisher(
                f"CREATE TABLE {table} (id int PRIMARY KEY, total int, note text)",
                f"INSERT INTO {table} VALUES (1, 10, 'one')",
            )
        site.set_up()
        good_run(site)
        yield site, execute


def _to(site: Site, subscriber: Connection, schema: str) -> Site:
    articles = [
        {**it.model_dump(mode="json", exclude_unset=True), "destination": f"{schema}.{it.source.table}"}
        for it in site.publication.articles
    ]
    subscriptions = [it.model_dump(mode="json", exclude_unset=True) for it in site.publication.subscriptions]
    other = Site(site.databases, site.publication.distributor.store, articles, site.spark, subscriptions)
    other.connections["subscriber"] = subscriber
    return other


def _changes(table: str) -> tuple[str, str]:
    return f"INSERT INTO {table} VALUES (2, 20, 'two')", f"UPDATE {table} SET note = 'changed' WHERE id = 1"


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


def _assert_equal(site: Site, execute: Execute, table: str, columns: str) -> None:
    good_run(site)
    rows = f"SELECT {columns} FROM {table} ORDER BY id"
    assert list(execute(rows)) == site.at_publisher(rows)
    assert site.set_up() == []


def test_a_column_that_was_renamed_unannounced_keeps_its_values(ends: tuple[Site, Execute]) -> None:
    site, execute = ends
    site.at_publisher(*_changes("renamed"))
    site.read_log().raise_error()
    site.at_publisher(
        "INSERT INTO renamed VALUES (3, 3, 'before')", "ALTER TABLE renamed RENAME COLUMN total TO amount"
    )
    site.at_publisher("INSERT INTO renamed VALUES (4, 4, 'after')", "UPDATE renamed SET amount = 11 WHERE id = 1")
    assert _paste(site, execute, _checked(site)) == ["run", "ALTER", "setup"]
    _assert_equal(site, execute, "renamed", "id, amount, note")


def test_a_column_that_was_renamed_there_too_early_gets_what_is_stored(ends: tuple[Site, Execute]) -> None:
    site, execute = ends
    site.at_publisher(*_changes("early"))
    site.read_log().raise_error()
    site.at_publisher("ALTER TABLE early RENAME COLUMN total TO amount", "UPDATE early SET amount = 11 WHERE id = 1")
    execute("ALTER TABLE early RENAME COLUMN total TO amount")
    error = whole_run(site)["reporting"].error
    assert error is not None
    assert _paste(site, execute, error) == ["ALTER"]
    assert _paste(site, execute, _checked(site)) == ["run", "ALTER", "setup"]
    _assert_equal(site, execute, "early", "id, amount, note")


@pytest.mark.parametrize("told_by", ["check", "run"])
def test_a_column_that_was_dropped_at_the_subscriber_gets_its_values_again(
    told_by: str, ends: tuple[Site, Execute]
) -> None:
    site, execute = ends
    table = "dropped_and_checked" if told_by == "check" else "dropped_and_run"
    execute(f"ALTER TABLE {table} DROP COLUMN total")
    site.at_publisher(*_changes(table))
    if told_by == "check":
        error = _checked(site)
    else:
        found = whole_run(site)["reporting"].error
        assert found is not None
        error = found
    assert _paste(site, execute, error)[0] == "ALTER"
    _assert_equal(site, execute, table, "id, total, note")


def test_a_column_that_was_added_unannounced_gets_its_values(ends: tuple[Site, Execute]) -> None:
    site, execute = ends
    site.at_publisher(*_changes("added"), "ALTER TABLE added ADD COLUMN grade int DEFAULT 3")
    site.at_publisher("UPDATE added SET grade = 4 WHERE id = 2")
    assert _paste(site, execute, _checked(site)) == ["ALTER", "setup"]
    _assert_equal(site, execute, "added", "id, total, note, grade")
