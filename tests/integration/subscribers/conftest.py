"""A Subscriber of each kind, new for every test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pymssql
import pytest
from _pytest.mark.structures import ParameterSet

from conftest import DatabaseFactory
from support.mariadb import MariaDbServer, installed
from support.observed import wait_until
from support.requirements import Requirement, lacking
from support.site import execute
from support.subscribers import KINDS, STATEMENTS, Kind, Site, mssql_execute, sqlite_execute
from tranrepl.connections import Connection, from_environment

MSSQL_VARIABLE = "TRANREPL_TEST_MSSQL"

_SLOW = ("postgres statements", "mariadb statements")
"""Left to `make test-all`: `make test` has these databases by procedures, and statements at SQLite."""


def _parameters(kinds: Iterable[Kind]) -> list[ParameterSet]:
    return [pytest.param(it, id=it.name, marks=[pytest.mark.slow] if it.name in _SLOW else []) for it in kinds]


_ONE_OF_EACH = [kind for kind in KINDS if "," not in kind.name]


@pytest.fixture(scope="session")
def mariadb(server_folder: Path) -> Iterator[MariaDbServer]:
    """Yield the run's MariaDB."""
    if not installed():
        pytest.skip("mariadbd is not installed; on Debian, as root: apt-get install mariadb-server-core")
    with MariaDbServer(server_folder / "mariadb") as server:
        yield server


@pytest.fixture
def mariadb_database(mariadb: MariaDbServer) -> Iterator[str]:
    """Yield a fresh database's name."""
    with mariadb.new_database() as name:
        yield name


@pytest.fixture
def mssql_login() -> Iterator[str]:
    """Yield the name of a login that a test creates. Request it before the database, which is dropped first: a login
    whose user has rights there stays.
    """
    server, name = _mssql_server(), f"repl_{uuid4().hex[:8]}"
    yield name
    if mssql_execute(server, f"select 1 from sys.server_principals where name = N'{name}'"):
        mssql_execute(server, f"drop login {name}")


@pytest.fixture
def mssql_database() -> Iterator[Connection]:
    """Yield a fresh database of the server in TRANREPL_TEST_MSSQL, as in mssql://sa:password@127.0.0.1:1433/master."""
    with _fresh_mssql_database() as connection:
        yield connection


@pytest.fixture(scope="module")
def shared_mssql_database() -> Iterator[Connection]:
    """Yield one database for all tests of a module."""
    with _fresh_mssql_database() as connection:
        yield connection


@pytest.fixture
def mssql_site(shared_mssql_database: Connection) -> Site:
    """Return a SQL Server Subscriber by procedures, without a subscription. Each test's tables and procedures have
    their own names: a database for each test would take seconds.
    """
    connection, kind = shared_mssql_database, Kind("mssql", {}, "mssql procedures")
    site = Site(kind, connection, lambda *statements: mssql_execute(connection, *statements), "dbo")
    site.execute(
        *(
            f"if object_id('{table}') is not null delete from {table}"
            for table in ("msreplication_subscriptions", "mssubscription_articles")
        ),
    )
    return site


def _mssql_server() -> Connection:
    if not os.environ.get(MSSQL_VARIABLE):
        pytest.skip(f"{MSSQL_VARIABLE} holds no connection to a SQL Server")
    return from_environment("subscriber", {"AIRFLOW_CONN_SUBSCRIBER": os.environ[MSSQL_VARIABLE]})


@contextmanager
def _fresh_mssql_database() -> Iterator[Connection]:
    server = _mssql_server()
    name = f"tranrepl_test_{uuid4().hex[:8]}"
    wait_until(lambda: _succeeds(server, f"create database {name}"))
    yield replace(server, database=name)
    _drop_mssql_database(server, name)


def _drop_mssql_database(server: Connection, name: str) -> None:
    if Requirement.SINGLE_USER not in lacking(server):
        mssql_execute(server, f"alter database {name} set single_user with rollback immediate")
    wait_until(lambda: _succeeds(server, f"drop database {name}"))


_IN_THE_WAY = ("in use", "tuple concurrently")
"""What another session does just now: one that was closed has not ended, or, at Babelfish, creates or drops a database
too."""


def _succeeds(server: Connection, statement: str) -> bool:
    """Return whether it executes; it does not as long as another session blocks it."""
    try:
        mssql_execute(server, statement)
    except pymssql.Error as error:
        if not any(it in str(error) for it in _IN_THE_WAY):
            raise
        return False
    return True


@pytest.fixture(params=_parameters(KINDS))
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    """Return a site for every database and every way to it."""
    return _site(request, request.param, tmp_path)


@pytest.fixture(params=_parameters(_ONE_OF_EACH))
def plain_site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    """Return a site for every database, by procedures and by statements, in one call syntax."""
    return _site(request, request.param, tmp_path)


@pytest.fixture
def make_site(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Site]:
    """Return a function that makes a Subscriber of the named kind."""
    return lambda name: _site(request, next(it for it in KINDS if it.name == name), tmp_path)


@pytest.fixture
def mariadb_site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    return _site(request, Kind("mariadb", STATEMENTS, "mariadb statements"), tmp_path)


@pytest.fixture
def sqlite_site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    return _site(request, Kind("sqlite", STATEMENTS, "sqlite statements"), tmp_path)


def _site(request: pytest.FixtureRequest, kind: Kind, tmp_path: Path) -> Site:
    match kind.database:
        case "postgres":
            create: DatabaseFactory = request.getfixturevalue("database")
            connection = create("subscriber")
            return Site(kind, connection, lambda *statements: execute(connection, *statements), "public")
        case "mariadb":
            server: MariaDbServer = request.getfixturevalue("mariadb")
            name: str = request.getfixturevalue("mariadb_database")
            connection = server.connection(name)
            return Site(kind, connection, lambda *it: server.execute(*it, database=name), name)
        case "mssql":
            connection = request.getfixturevalue("mssql_database")
            return Site(kind, connection, lambda *statements: mssql_execute(connection, *statements), "dbo")
        case _:
            path = str(tmp_path / "subscriber.db")
            return Site(kind, Connection("subscriber", "sqlite", database=path), sqlite_execute(path), "main")
