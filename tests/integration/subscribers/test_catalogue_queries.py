"""How often a SQL Server Subscriber's catalogue is queried: as often for fifty articles as for one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from conftest import DatabasesFactory
from support.databases import Databases
from support.observed import sent_statements
from support.shell import publication_file, typed
from support.site import execute
from support.subscribers import KEY, mssql_execute
from tranrepl.admin.check import check
from tranrepl.connections import Connection
from tranrepl.settings.loading import load_publication
from tranrepl.settings.registration import registered_article
from tranrepl.subscriber.registry import dialect_of
from tranrepl.topology import Topology

_CUSTOM = "create procedure my_update @c1 int, @c2 nvarchar(max), @pkc1 int, @bitmap binary(1) as return"


def test_many_articles_ask_a_sql_server_catalogue_as_often_as_one(
    databases: DatabasesFactory, mssql_database: Connection, tmp_path: Path
) -> None:
    mssql_execute(mssql_database, _CUSTOM)
    _asked(databases(), mssql_database, tmp_path / "before", 1)
    one = _asked(databases(), mssql_database, tmp_path / "one", 1)
    many = _asked(databases(), mssql_database, tmp_path / "many", 50)
    assert {what: len(it) for what, it in many.items()} == {what: len(it) for what, it in one.items()}, many


def _asked(ends: Databases, subscriber: Connection, folder: Path, count: int) -> dict[str, list[str]]:
    """Return each command's queries of the Subscriber's catalogue, for so many articles of a database of their own."""
    folder.mkdir()
    names = [f"t{number}" for number in range(count)]
    execute(ends.publisher, *(f"CREATE TABLE {it} (id int PRIMARY KEY, name text)" for it in names))
    file = publication_file(
        folder,
        [
            {"source": f"public.{it}", "destination": f"dbo.{folder.name}_{it}", "upd_cmd": "MCALL my_update"}
            for it in names
        ],
        subscriptions=[{"name": "reporting", "connection": "subscriber"}],
    )
    ends = replace(ends, subscriber=replace(subscriber, connection_id="subscriber"))
    asked: dict[str, list[str]] = {}
    for command in ("check", "setup", "setup again", "check again", "script"):
        with _questions() as asked[command]:
            outcome = typed(command.split()[0], file, environment=ends.environment)
        assert outcome.status == 0, outcome.err
    connections = {"publisher": ends.publisher, "subscriber": ends.subscriber, "distribution": ends.distribution}
    tables = check(Topology(load_publication(file), connections)).tables
    made = [
        registered_article(*it).model_copy(update={"article_id": number}) for number, it in enumerate(tables, start=1)
    ]
    dialect = dialect_of(subscriber)
    with _questions() as asked["validation"], dialect.comparison(subscriber, KEY, made, 1) as comparison:
        assert comparison.problems == ()
    with _questions() as asked["delivery"], dialect.applier(subscriber, KEY, {it.article_id: it for it in made}) as to:
        assert len(to.bulk_operations) == count
    with _questions() as asked["constraints"], dialect.subscriber(subscriber, KEY, "test") as opened:
        opened.constraints(made)
    with _questions() as asked["teardown"]:
        outcome = typed("teardown", file, "--yes", environment=ends.environment)
    assert outcome.status == 0, outcome.err
    return asked


@contextmanager
def _questions() -> Iterator[list[str]]:
    """Collect the queries of a SQL Server's catalogue."""
    asked: list[str] = []
    with sent_statements("mssql") as sent:
        yield asked
    asked += [it for it in sent if "sys." in it or "INFORMATION_SCHEMA" in it.upper()]
