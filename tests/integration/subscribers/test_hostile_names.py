"""Names and values that try to be SQL, wherever the file's text and the Publisher's values reach SQL: row filters,
custom procedures, TRUNCATE.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from conftest import DatabasesFactory
from support.in_process import deliver_stored, read_log_into_store, replicate
from support.mariadb import MariaDbServer
from support.observed import stored_commands
from support.site import Site, execute
from support.spark_here import SparkHere
from support.subscribers import STATEMENTS, Execute, mssql_execute, sqlite_execute
from tranrepl.admin.check import check
from tranrepl.connections import Connection
from tranrepl.model.names import TableName
from tranrepl.settings.registration import registered_article
from tranrepl.subscriber.procedure_names import Scripted

NAME = "a\"b`c;'\\ -- %s %(x)s :y {} $$"
VALUE = "x'); DROP TABLE canary; -- \\' OR 1=1 \\\\' %s %(x)s :y {} $$ /*\n\t\\"

FORMAT = "%(tranrepl_0)s %s 50%"


def _name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _value(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@pytest.mark.parametrize("kind", ["postgres", "mariadb", "mssql"])
def test_names_and_values_are_no_sql(
    request: pytest.FixtureRequest, databases: DatabasesFactory, tmp_path: Path, kind: str
) -> None:
    ends, schema = databases(), "public"
    run: Execute = _executing(ends.subscriber)
    quoted = _name(NAME)
    if kind == "mariadb":
        server: MariaDbServer = request.getfixturevalue("mariadb")
        schema = request.getfixturevalue("mariadb_database")
        ends, quoted = replace(ends, subscriber=server.connection(schema)), "`" + NAME.replace("`", "``") + "`"
        run = _of_mariadb(server, schema)
    if kind == "mssql":
        ends, schema, quoted = replace(ends, subscriber=request.getfixturevalue("mssql_database")), "dbo", f"[{NAME}]"
        run = partial(mssql_execute, ends.subscriber)
    article = {
        "source": str(TableName("public", NAME)),
        "destination": str(TableName(schema, NAME)),
        "filter": f"{_name(NAME)} <> {_value(VALUE)} OR id < 5",
        # In SQL Server no procedure has a table's name.
        "upd_cmd": f"XCALL {_name(NAME + ' p')}",
    }
    site = Site(ends, tmp_path / "store", [article])
    table = _name(NAME)
    site.at_publisher(f"CREATE TABLE {table} (id int PRIMARY KEY, {_name(NAME)} varchar(90), other varchar(90))")
    run("CREATE TABLE canary (id int)")
    site.set_up()
    for script in _custom_procedures(site):
        run(script)
    assert check(site.topology).problems == []

    site.at_publisher(
        f"INSERT INTO {table} VALUES (1, {_value(VALUE)}, 'a'), (2, 'b', {_value(VALUE)}), (6, {_value(VALUE)}, 'no')",
        f"INSERT INTO {table} VALUES (7, 'c', 'c'), (8, 'd', NULL), (9, 'e', 'e')",
        f"UPDATE {table} SET other = {_value(VALUE + '!')} WHERE id IN (1, 7)",
        f"UPDATE {table} SET {_name(NAME)} = {_value(VALUE)} WHERE id = 8",
        f"DELETE FROM {table} WHERE id = 9",
    )
    replicate(site)
    arrived = [(1, VALUE, VALUE + "!"), (2, "b", VALUE), (7, "c", VALUE + "!")]
    assert run(f"SELECT * FROM {quoted} ORDER BY 1") == arrived
    # Of the Subscriber's own rows, TRUNCATE takes those that the filter lets through.
    run(f"INSERT INTO {quoted} SELECT id + 50, {quoted}, 'own' FROM {quoted}")
    site.at_publisher(f"TRUNCATE {table}")
    replicate(site)
    assert run(f"SELECT * FROM {quoted} ORDER BY 1") == [(51, VALUE, "own")]
    assert run("SELECT * FROM canary") == []


@pytest.mark.parametrize("kind", ["postgres", "mariadb", "sqlite"])
def test_an_altered_tables_names_and_values_are_no_sql(
    request: pytest.FixtureRequest, databases: DatabasesFactory, tmp_path: Path, kind: str
) -> None:
    ends, schema, settings = databases(), "public", dict[str, str]()
    run: Execute = _executing(ends.subscriber)
    if kind == "mariadb":
        server: MariaDbServer = request.getfixturevalue("mariadb")
        schema = request.getfixturevalue("mariadb_database")
        ends, run = replace(ends, subscriber=server.connection(schema)), _of_mariadb(server, schema)
    if kind == "sqlite":
        schema, settings = "main", STATEMENTS
        file = str(tmp_path / "subscriber.db")
        ends, run = replace(ends, subscriber=Connection("subscriber", "sqlite", database=file)), sqlite_execute(file)
    article = {"source": "public.t", "destination": f"{schema}.t", **settings}
    site = Site(ends, tmp_path / "store", [article], SparkHere(), replicate_ddl=True)
    site.at_publisher(f"CREATE TABLE t (id int PRIMARY KEY, {_name(FORMAT)} text NOT NULL DEFAULT {_value(FORMAT)})")
    with _unformatted_ddl():
        site.set_up()
        site.at_publisher("INSERT INTO t VALUES (1)")
        site.run()
        site.at_publisher(
            "INSERT INTO t VALUES (2)",
            "ALTER TABLE t ADD COLUMN \"%(p)s%\" text DEFAULT 'x'",
            f"ALTER TABLE t ADD COLUMN {_name(NAME)} text DEFAULT {_value(VALUE)}",
            "INSERT INTO t VALUES (3)",
            f"ALTER TABLE t RENAME COLUMN {_name(NAME)} TO {_name(NAME + '2')}",
            f"ALTER TABLE t ADD COLUMN more varchar(40) NOT NULL DEFAULT {_value(FORMAT)}",
        )
        site.run()
    assert run("SELECT * FROM t ORDER BY 1") == [(it, FORMAT, "x", VALUE, FORMAT) for it in (1, 2, 3)]


@contextmanager
def _unformatted_ddl() -> Iterator[None]:
    """See to it that no statement that defines something has parameters, or a percent sign that a driver would read."""
    defines = ("ALTER", "CREATE", "DROP", "RENAME")

    def look(_: sa.Connection, __: Any, statement: str, parameters: Any, context: Any, ___: bool) -> None:
        if statement.lstrip().upper().startswith(defines):
            as_it_is = context.execution_options.get("no_parameters") or context.dialect.paramstyle == "qmark"
            assert not parameters, statement
            assert as_it_is or "%" not in statement.replace("%%", ""), statement

    sa.event.listen(sa.Engine, "before_cursor_execute", look)
    try:
        yield
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", look)


@pytest.mark.parametrize(("kind", "letters"), [("postgres", 31), ("mariadb", 35)])
def test_a_commands_text_names_the_procedure_that_is_called(
    request: pytest.FixtureRequest, databases: DatabasesFactory, tmp_path: Path, kind: str, letters: int
) -> None:
    # PostgreSQL counts bytes, and cuts; MariaDB counts characters, and has room.
    ends, schema = databases(), "public"
    run: Execute = _executing(ends.subscriber)
    if kind == "mariadb":
        server: MariaDbServer = request.getfixturevalue("mariadb")
        schema = request.getfixturevalue("mariadb_database")
        ends = replace(ends, subscriber=server.connection(schema))
        run = _of_mariadb(server, schema)
    table = "ü" * letters
    site = Site(ends, tmp_path / "store", [{"source": "public.t", "destination": f"{schema}.{table}"}])
    site.at_publisher("CREATE TABLE t (id int PRIMARY KEY, note text)")
    site.set_up()
    site.at_publisher("INSERT INTO t VALUES (1, 'a')")
    assert read_log_into_store(site).error is None
    run(f"INSERT INTO {table} VALUES (1, 'already')")
    error = deliver_stored(site).error
    procedures = {name for (name,) in run("SELECT routine_name FROM information_schema.routines")}
    (stored,) = stored_commands(site)
    assert error is not None
    assert error.command == stored.command
    called = stored.command.removeprefix("{CALL [").split("]")[0]
    assert called in procedures
    assert called.endswith("ü") == (kind == "mariadb")


def _executing(connection: Connection) -> Execute:
    return lambda *statements: execute(connection, *statements)


def _of_mariadb(server: MariaDbServer, database: str) -> Execute:
    return lambda *statements: server.execute(*statements, database=database)


def _custom_procedures(site: Site) -> list[str]:
    """Return custom procedures, as `tranrepl script --custom` prints them."""
    ((article, table),) = check(site.topology).tables
    with site.topology.subscriber("reporting", None, "test") as opened:
        return opened.scripts(registered_article(article, table), table, Scripted.CUSTOM)
