"""Rights at SQL Server: the documented ones are enough, and a missing one is reported with its GRANT."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pymssql
import pytest

from conftest import DatabasesFactory
from support.command_history import Column, table_description
from support.databases import Databases
from support.in_process import replicate
from support.least_rights import documented_rights, with_login
from support.requirements import Requirement, lacking, require
from support.site import Site
from support.spark_here import SparkHere
from support.subscribers import KEY, STATEMENTS, mssql_execute
from tranrepl.admin.check import check
from tranrepl.connections import Connection
from tranrepl.errors import JobRightError, MissingRightError
from tranrepl.model.names import TableName
from tranrepl.settings.publication import Article
from tranrepl.settings.registration import PublishedTables
from tranrepl.subscriber.job_rights import RIGHTS_OF_JOBS
from tranrepl.subscriber.registry import dialect_of

_PART = "Subscriber, where it is SQL Server, after setup"
_IN_BULK = "Subscriber, where it is SQL Server, to apply in bulk"
_TABLES = (
    "CREATE TABLE customer (id int PRIMARY KEY, name text)",
    "CREATE TABLE orders (id int PRIMARY KEY, customer int REFERENCES customer, total numeric(9, 2))",
)
_ARTICLES = (
    {"source": "public.customer", "destination": "dbo.customer", "filter": "name <> 'hidden'"},
    {"source": "public.orders", "destination": "dbo.orders", **STATEMENTS},
)
_BEFORE = (
    "INSERT INTO customer VALUES (1, 'one'), (2, 'two'), (3, 'hidden')",
    "INSERT INTO orders VALUES (1, 1, 1.5), (2, 2, NULL), (3, 3, 4)",
)
_CHANGES = (
    "UPDATE customer SET name = 'first' WHERE id = 1; UPDATE orders SET total = 2, id = 20 WHERE id = 2",
    "DELETE FROM orders WHERE id = 3; INSERT INTO customer VALUES (4, 'four')",
)
_CUSTOMERS, _ORDERS = [(1, "first"), (2, "two"), (4, "four")], [1, 20]


@pytest.fixture
def password() -> str:
    return f"A1{uuid4().hex}"


def _site(ends: Databases, subscriber: Connection, tmp_path: Path) -> Site:
    """Return a subscription that takes a snapshot; its jobs run in this process."""
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
    return Site(
        replace(ends, subscriber=subscriber), tmp_path / "store", _ARTICLES, SparkHere(), subscriptions=[subscription]
    )


def _assert_replicates(site: Site, at_subscriber: Connection) -> int:
    """Take the snapshot, deliver changes, and validate; return how many commands went in bulk."""
    assert site.take_snapshot().error is None
    site.at_publisher(*_CHANGES)
    delivered = site.run()
    assert mssql_execute(at_subscriber, "SELECT * FROM customer ORDER BY 1") == _CUSTOMERS
    assert mssql_execute(at_subscriber, "SELECT id FROM orders ORDER BY 1") == [(it,) for it in _ORDERS]
    assert site.validate().error is None
    return delivered.in_bulk


def test_sql_server_jobs_need_no_more_than_the_documented_rights(
    databases: DatabasesFactory, mssql_login: str, mssql_database: Connection, password: str, tmp_path: Path
) -> None:
    ends = databases()
    owner = _site(ends, mssql_database, tmp_path)
    owner.at_publisher(*_TABLES, *_BEFORE)
    owner.set_up()
    mssql_execute(mssql_database, *documented_rights(_PART, password, {"repl_subscriber": mssql_login}))
    limited = _site(ends, with_login(mssql_database, mssql_login, password), tmp_path)
    # What keeps commands from going in bulk may be there, and the login may not see it.
    assert _assert_replicates(limited, mssql_database) == 0
    checked = check(limited.topology)
    assert checked.problems == []
    (warning,) = [it for it in checked.warnings if "in bulk" in it]
    assert warning == (
        f"Subscriber reporting: user {mssql_login} may not see the definitions of tables and procedures in schema dbo: "
        "commands on them are applied serially, not in bulk; GRANT VIEW DEFINITION ON SCHEMA::[dbo] TO "
        f"[{mssql_login}] allows it"
    )
    require(mssql_database, Requirement.VIEW_DEFINITION)
    mssql_execute(mssql_database, *documented_rights(_IN_BULK, password, {"repl_subscriber": mssql_login}))
    assert [it for it in check(limited.topology).warnings if "in bulk" in it] == []
    limited.at_publisher("UPDATE customer SET name = 'second' WHERE id = 2; DELETE FROM orders WHERE id = 1")
    assert limited.run().in_bulk == 2


def test_the_owner_of_a_sql_server_database_sets_up_and_delivers_in_bulk(
    databases: DatabasesFactory, mssql_login: str, mssql_database: Connection, password: str, tmp_path: Path
) -> None:
    # A database's owner needs no right at the server.
    mssql_execute(
        mssql_database,
        f"CREATE LOGIN {mssql_login} WITH PASSWORD = '{password}'",
        f"ALTER AUTHORIZATION ON DATABASE::{mssql_database.database} TO {mssql_login}",
    )
    owner = with_login(mssql_database, mssql_login, password)
    assert mssql_execute(owner, "select is_srvrolemember('sysadmin')") == [(0,)]
    site = _site(databases(), owner, tmp_path)
    site.at_publisher(*_TABLES, *_BEFORE)
    checked = check(site.topology)
    assert (checked.problems, [it for it in checked.warnings if "in bulk" in it]) == ([], [])
    site.set_up()
    assert _assert_replicates(site, mssql_database) == 5


def _limited(database: Connection, login: str, password: str) -> Connection:
    """Make a login that may connect, and nothing else."""
    mssql_execute(
        database, f"CREATE LOGIN {login} WITH PASSWORD = '{password}'", f"CREATE USER {login} FOR LOGIN {login}"
    )
    return with_login(database, login, password)


def _let_see(database: Connection, login: str, *tables: str) -> None:
    """Give the login the right to read each table: Babelfish shows no other one to it."""
    mssql_execute(database, *(f"GRANT SELECT ON [dbo].[{it}] TO [{login}]" for it in (*tables, *RIGHTS_OF_JOBS)))


def _lines(connection: Connection, tables: PublishedTables) -> list[str]:
    """Return the statements that are printed, without the user's name."""
    with dialect_of(connection).subscriber(connection, KEY, "test") as subscriber:
        problems = list(subscriber.right_problems(tables))
    to = f" TO [{connection.login}];"
    lines = [line for it in problems for line in (it.report.remedy or "").splitlines()[1:]]
    assert all(it.endswith(to) for it in lines)
    return [it.removesuffix(to) for it in lines]


def test_each_right_that_sql_server_jobs_lack_is_told_with_its_grant(
    databases: DatabasesFactory, mssql_login: str, mssql_database: Connection, password: str, tmp_path: Path
) -> None:
    ends = databases()
    owner = _site(ends, mssql_database, tmp_path)
    owner.at_publisher(*_TABLES, *_BEFORE)
    owner.set_up()
    login = _limited(mssql_database, mssql_login, password)
    limited = _site(ends, login, tmp_path)
    _let_see(mssql_database, mssql_login, "customer", "orders")
    checked = check(limited.topology)
    (problem,) = checked.problems
    assert isinstance(problem, JobRightError)
    assert problem.message == f"Subscriber reporting: user {mssql_login} may not apply commands"
    assert (problem.report.remedy or "").startswith(
        f"let an administrator run in the database [{mssql_database.database}]:\n"
    )
    lines = _lines(login, checked.tables)
    assert lines == [
        "GRANT UPDATE ON OBJECT::[dbo].[msreplication_subscriptions]",
        "GRANT INSERT, UPDATE, DELETE ON OBJECT::[dbo].[msreplication_snapshots]",
        "GRANT INSERT, UPDATE, DELETE ON OBJECT::[dbo].[mssubscription_articles]",
        "GRANT INSERT, UPDATE, DELETE ON OBJECT::[dbo].[customer]",
        "GRANT EXECUTE ON OBJECT::[dbo].[sp_MSins_dbocustomer]",
        "GRANT EXECUTE ON OBJECT::[dbo].[sp_MSupd_dbocustomer]",
        "GRANT EXECUTE ON OBJECT::[dbo].[sp_MSdel_dbocustomer]",
        "GRANT INSERT, UPDATE, DELETE ON OBJECT::[dbo].[orders]",
    ]
    mssql_execute(mssql_database, *(f"{it} TO [{mssql_login}]" for it in lines))
    assert check(limited.topology).problems == []
    for line in lines:
        rights, _, securable = line.removeprefix("GRANT ").partition(" ON ")
        for right in rights.split(", "):
            mssql_execute(mssql_database, f"REVOKE {right} ON {securable} FROM [{mssql_login}]")
            assert _lines(login, checked.tables) == [f"GRANT {right} ON {securable}"]
            mssql_execute(mssql_database, f"GRANT {right} ON {securable} TO [{mssql_login}]")
    _assert_replicates(limited, mssql_database)


def test_tables_that_a_sql_server_login_does_not_see_are_told_with_its_grants(
    databases: DatabasesFactory, mssql_login: str, mssql_database: Connection, password: str, tmp_path: Path
) -> None:
    ends = databases()
    owner = _site(ends, mssql_database, tmp_path)
    owner.at_publisher(*_TABLES, *_BEFORE)
    owner.set_up()
    limited = _site(ends, _limited(mssql_database, mssql_login, password), tmp_path)
    problems = check(limited.topology).problems
    names = ", ".join(f"[dbo].[{it}]" for it in sorted(["customer", "orders", *RIGHTS_OF_JOBS]))
    assert [(it.message, type(it)) for it in problems] == [
        (f"Subscriber reporting: user {mssql_login} may not see tables that are there: {names}", MissingRightError),
        (f"Subscriber reporting: user {mssql_login} may not apply commands", JobRightError),
    ]
    for problem in problems:
        first, *grants = (problem.report.remedy or "").splitlines()
        assert first == f"let an administrator run in the database [{mssql_database.database}]:"
        mssql_execute(mssql_database, *grants)
    assert check(limited.topology).problems == []
    _assert_replicates(limited, mssql_database)


def test_procedures_that_setup_will_make_take_the_right_to_execute_their_schema(
    mssql_login: str, mssql_database: Connection, password: str
) -> None:
    login = _limited(mssql_database, mssql_login, password)
    mssql_execute(mssql_database, "create table customer (id int primary key)")
    name = TableName("public", "customer")
    article = Article.model_validate({"source": name, "destination": TableName("dbo", "customer")})
    tables = [(article, table_description(name, [Column("id", "integer", key=1)]))]
    mssql_execute(mssql_database, f"GRANT SELECT, INSERT, UPDATE, DELETE ON [dbo].[customer] TO [{mssql_login}]")
    called = [f"GRANT EXECUTE ON OBJECT::[dbo].[sp_MS{it}_dbocustomer]" for it in ("ins", "upd", "del")]
    assert [it for it in _lines(login, tables) if "OBJECT" in it] == called
    require(mssql_database, Requirement.RIGHTS_ON_SCHEMAS)
    mssql_execute(mssql_database, f"GRANT EXECUTE ON SCHEMA::dbo TO [{mssql_login}]")
    assert [it for it in _lines(login, tables) if "OBJECT" in it] == []


def test_a_published_identity_takes_the_right_to_alter_its_table(
    databases: DatabasesFactory, mssql_login: str, mssql_database: Connection, password: str, tmp_path: Path
) -> None:
    articles = [{"source": f"public.{it}", "destination": f"dbo.{it}", **STATEMENTS} for it in ("ticket", "beside")]
    site = Site(replace(databases(), subscriber=mssql_database), tmp_path / "store", articles)
    site.at_publisher(*(f"CREATE TABLE {it} (id int PRIMARY KEY)" for it in ("ticket", "beside")))
    mssql_execute(
        mssql_database,
        "create table ticket (ID int identity primary key)",
        "create table beside (id int primary key, own int identity)",
    )
    assert check(site.topology).problems == []
    site.set_up()
    login = _limited(mssql_database, mssql_login, password)
    _let_see(mssql_database, mssql_login, "ticket", "beside")
    altering = [it for it in _lines(login, check(site.topology).tables) if "ALTER" in it]
    assert altering == ["GRANT INSERT, UPDATE, DELETE, ALTER ON OBJECT::[dbo].[ticket]"]


def test_what_a_sql_server_login_may_not_create_is_told_with_the_grant(
    databases: DatabasesFactory, mssql_login: str, mssql_database: Connection, password: str, tmp_path: Path
) -> None:
    login = _limited(mssql_database, mssql_login, password)
    mssql_execute(mssql_database, "CREATE SCHEMA sales")
    site = Site(
        replace(databases(), subscriber=login),
        tmp_path / "store",
        [{"source": f"public.{it}", "destination": f"{schema}.{it}"} for it, schema in _DESTINATIONS.items()],
    )
    site.at_publisher(*(f"CREATE TABLE {it} (id int PRIMARY KEY, name text)" for it in _DESTINATIONS))
    checked = check(site.topology)
    (problem,) = checked.problems
    assert problem.message == f"Subscriber reporting: user {mssql_login} may not create what setup creates"
    lines = [f"{it} TO [{mssql_login}]" for it in _lines(login, checked.tables)]
    assert lines == [
        f"GRANT CREATE TABLE, CREATE SCHEMA, CREATE PROCEDURE TO [{mssql_login}]",
        f"GRANT ALTER, SELECT, INSERT, UPDATE, DELETE ON SCHEMA::[sales] TO [{mssql_login}]",
        f"GRANT ALTER, SELECT, INSERT, UPDATE, DELETE, EXECUTE ON SCHEMA::[dbo] TO [{mssql_login}]",
    ]
    if Requirement.GRANTS_TO_CREATE in lacking(mssql_database):
        # It reads them, and says what it does not have.
        for line in lines:
            with pytest.raises(pymssql.Error, match="is not currently supported"):
                mssql_execute(mssql_database, line)
    require(mssql_database, Requirement.GRANTS_TO_CREATE)
    mssql_execute(mssql_database, *lines)
    assert check(site.topology).problems == []
    site.set_up()
    site.at_publisher(*(f"INSERT INTO {it} VALUES (1, 'one')" for it in _DESTINATIONS))
    replicate(site)
    for table, schema in _DESTINATIONS.items():
        assert mssql_execute(mssql_database, f"SELECT * FROM {schema}.{table}") == [(1, "one")]


_DESTINATIONS = {"ticket": "sales", "seat": "halls"}
