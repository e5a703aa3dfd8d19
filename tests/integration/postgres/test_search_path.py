"""What a session with the safe search path finds: PostgreSQL's own, and what is named with its schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conftest import DatabaseFactory, DatabasesFactory
from support.databases import Databases
from support.embedded_postgres import PostgresServer
from support.site import Site, execute
from support.spark_here import SparkHere
from support.spies import calls, make_spies
from tranrepl.admin.check import check
from tranrepl.admin.cleanup import clean_up
from tranrepl.admin.status.publication import status
from tranrepl.admin.teardown import plan_teardown, tear_down
from tranrepl.errors import ConfigurationError
from tranrepl.jobs.requests import Repair
from tranrepl.model.names import TableName
from tranrepl.postgres.catalogue import describe_table
from tranrepl.postgres.session import SAFE_PATH, connect
from tranrepl.publisher.postgres.row_filter_check import filter_problems
from tranrepl.settings.publication import Article

pytestmark = pytest.mark.new_sessions

_TYPES = {
    '"e xt".citext': ('OPERATOR("e xt".=)', "'A'"),
    '"e xt".hstore': ('OPERATOR("e xt".=)', "'a=>1'"),
    '"e xt".ltree': ('OPERATOR("e xt".=)', "'a.b'"),
    '"e xt".isbn': ('OPERATOR("e xt".=)', "'978-0-11-000533-1'"),
    "public.label": ('OPERATOR("e xt".=)', "'A'"),
    "public.mood": ("=", "'glad'"),
    "integer": ("=", "1"),
    "varchar(3)": ("=", "'a'"),
    '"e xt".citext[]': ("=", "'{A}'"),
    "int4range": ("=", "'[1,2)'"),
}
"""By type of a key: its operator, and a value."""


def test_each_types_keys_are_compared_by_the_operator_of_their_index(
    database: DatabaseFactory, debian_postgres: PostgresServer
) -> None:
    publisher = database("publisher", debian_postgres)
    execute(publisher, 'CREATE SCHEMA "e xt"', "CREATE TYPE mood AS ENUM ('glad')")
    execute(publisher, *(f'CREATE EXTENSION {it} SCHEMA "e xt"' for it in ("citext", "hstore", "ltree", "isn")))
    execute(publisher, 'CREATE DOMAIN word AS "e xt".citext', "CREATE DOMAIN label AS word")
    for number, (name, (_, value)) in enumerate(_TYPES.items()):
        execute(
            publisher, f"CREATE TABLE t{number} (key {name} PRIMARY KEY)", f"INSERT INTO t{number} VALUES ({value})"
        )
    with connect(publisher, "test", autocommit=True) as session:
        session.execute("SET enable_seqscan = off")
        for number, (name, (operator, value)) in enumerate(_TYPES.items()):
            described = describe_table(session, TableName("public", f"t{number}"))
            assert described is not None
            assert described.columns[0].equality == operator, name
            condition = f"FROM public.t{number} WHERE key {operator} {value}::{name}"
            assert session.execute(f"SELECT count(*) {condition}".encode()).fetchone() == (1,)
            plan = session.execute(f"EXPLAIN SELECT {condition}".encode()).fetchall()
            assert any("Index Cond" in line for (line,) in plan), (name, plan)


def test_rows_are_found_by_keys_of_extensions(
    databases: DatabasesFactory, debian_postgres: PostgresServer, tmp_path: Path
) -> None:
    made = databases(publisher=debian_postgres, subscriber=debian_postgres)
    site = Site(made, tmp_path / "store", ["public.t"], SparkHere())
    types = ("citext", "hstore", "ltree")
    for here in (site.at_publisher, site.at_subscriber):
        here("CREATE SCHEMA ext", *(f"CREATE EXTENSION {it} SCHEMA ext" for it in types))
        here("CREATE TABLE t (a ext.citext, b ext.hstore, c ext.ltree, note text, PRIMARY KEY (a, b, c))")
    site.at_publisher("INSERT INTO t VALUES ('A', 'x=>1', 'p.q', 'found'), ('B', 'x=>1', 'p.q', 'not')")
    site.set_up()
    with site.topology.distributor() as database:
        (article,) = database.articles.by_id(database.publications.get("purchasing")).values()
    with (
        site.topology.publisher("test") as publisher,
        publisher.snapshot(30, print) as snapshot,
        snapshot.source.session("test") as session,
    ):
        key = ("A", '"x"=>"1"', "p.q")
        assert session.rows_of_keys(article, [[*key]]) == {key: [*key, "found"]}


@pytest.fixture
def watched(databases: DatabasesFactory, postgres: PostgresServer) -> Iterator[Databases]:
    """Yield databases with spies at the Publisher and the Distributor."""
    made = databases()
    roles = [(it, make_spies(it)) for it in (made.publisher, made.distribution)]
    yield made
    for connection, role in roles:
        execute(connection, f"DROP OWNED BY {role} CASCADE", f"DROP ROLE {role}")


def test_nothing_of_ours_calls_what_others_made_in_public(
    watched: Databases, postgres: PostgresServer, tmp_path: Path
) -> None:
    # Constants are computed while a statement is planned.
    condition = "kind = 'x' AND ('a'::varchar = 'a'::varchar OR note IS NULL)"
    site = _site(watched, tmp_path, condition)
    site.at_publisher(
        "CREATE TABLE t (kind varchar(10), number int, note text, PRIMARY KEY (kind, number))",
        "CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100)",
        "INSERT INTO t VALUES ('x', 1, 'a'), ('y', 2, 'b')",
        "INSERT INTO p VALUES (1, 'a')",
    )
    before = len(calls(postgres))
    assert any("public" in str(it) for it in check(site.topology).blocking)
    assert calls(postgres)[before:] == []
    site = _site(watched, tmp_path, condition.replace(" = ", " OPERATOR(pg_catalog.=) "))

    def change() -> None:
        execute(
            watched.publisher,
            "UPDATE t SET note = 'c'",
            "INSERT INTO t VALUES ('x', 3, 'd')",
            "ALTER TABLE t ADD COLUMN more varchar DEFAULT 'm'",
            "DELETE FROM t WHERE number OPERATOR(pg_catalog.=) 2",
            "INSERT INTO p VALUES (2, 'b')",
            "TRUNCATE p1",
        )

    verbs: dict[str, Callable[[], object]] = {
        "check": lambda: check(site.topology),
        "setup": site.set_up,
        "snapshot": lambda: site.take_snapshot().raise_error(),
        "changes": change,
        "run": site.run,
        "validate": lambda: site.validate().raise_error(),
        "a row is lost": lambda: site.at_subscriber("DELETE FROM t WHERE number = 1"),
        "repair": lambda: site.validate(repair=Repair.APPLY),
        "setup again": site.set_up,
        "status": lambda: status(site.topology),
        "cleanup": lambda: clean_up(site.topology),
        "equal": lambda: _require_equal(site),
        "teardown": lambda: tear_down(plan_teardown(site.topology), print),
    }
    for verb, do in verbs.items():
        before = len(calls(postgres))
        do()
        if verb != "equal":
            assert calls(postgres)[before:] == [], verb


def _require_equal(site: Site) -> None:
    found = "SELECT kind::text, number, note, more FROM t WHERE kind::text = 'x'::text ORDER BY number"
    assert site.at_subscriber(found) == site.at_publisher(found) != []


def _site(databases: Databases, tmp_path: Path, condition: str) -> Site:
    return Site(
        databases,
        tmp_path / "store",
        [{"source": "public.t", "filter": condition}, {"source": "public.p"}],
        SparkHere(),
        [{"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}],
        replicate_ddl=True,
    )


def test_a_filter_that_the_logins_own_path_would_change_is_refused(
    database: DatabaseFactory, debian_postgres: PostgresServer
) -> None:
    publisher = database("publisher", debian_postgres)
    execute(
        publisher,
        "CREATE SCHEMA ext",
        "CREATE EXTENSION citext SCHEMA ext",
        f'ALTER DATABASE "{publisher.database}" SET search_path = public, ext',
        "CREATE TABLE t (id int PRIMARY KEY, kind ext.citext, note text)",
        "CREATE FUNCTION ext.is_good(text) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT $1 <> ''bad'''",
    )
    texts, same = "((kind)::text = 'x'::text)", "(kind OPERATOR(ext.=) 'x'::ext.citext)"
    with connect(publisher, "test", autocommit=True) as session:
        table = describe_table(session, TableName("public", "t"))
        assert table is not None

        def problems(text: str) -> list[ConfigurationError]:
            article = Article.model_validate({"source": "public.t", "filter": text})
            return list(filter_problems(session, article, table))

        (silent,) = problems("kind = 'x'")
        assert f"it means {texts}; by this login's own search_path it would mean {same}" in silent.message
        assert silent.report.remedy == (
            f"write the filter as what it shall mean: {texts}\nor, where you trust those schemas: {same}"
        )
        (lacking,) = problems("is_good(t.note) AND id > 1")
        assert lacking.report.remedy == ("write the filter with their schemas: (ext.is_good(note) AND (id > 1))")
        assert "is_bad" in problems("is_bad(note)")[0].message
        for text in (texts, same, "ext.is_good(t.note) AND id > 1", "id > 1 AND note LIKE 'a%' AND lower(note) <> ''"):
            assert problems(text) == []
        assert session.execute("SHOW search_path").fetchone() == (SAFE_PATH,)
