"""Snapshots of articles whose tables were altered: what is registered, copied and delivered is of one definition."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.child_job import ChildJob
from support.killed_jobs import SiteJob
from support.site import Site
from support.spark_here import SparkHere
from support.stored_history import StoredHistory
from support.whole_run import good_run, whole_run
from tranrepl.admin.check import check
from tranrepl.admin.run import LOG_READER
from tranrepl.distributor.database import UnknownRows
from tranrepl.errors import ARTICLE_DOES_NOT_EXIST, ConfigurationError, ErrorKind, TransientError
from tranrepl.failpoint import Failpoint
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.schema_change import ColumnAction, ColumnChange, SchemaChange

_DOMAIN = "CREATE DOMAIN short AS text CHECK (length(VALUE) < 10)"
_TABLE = "CREATE TABLE t (id integer PRIMARY KEY, code text NOT NULL, other integer NOT NULL)"
_ROWS = "INSERT INTO t SELECT n, n::text, n / 2 FROM generate_series(1, 9) n"


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    articles = [{"source": "public.t", "pre_creation_cmd": "truncate"}, {"source": "public.beside"}]
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
    site = Site(databases(), tmp_path / "store", articles, SparkHere(), [subscription], replicate_ddl=True)
    site.at_publisher(_TABLE, "CREATE TABLE beside (id integer PRIMARY KEY)", _ROWS)
    site.set_up()
    site.take_snapshot()
    return site


def _waits(site: Site) -> None:
    """Mark the article as the log reader does where the log does not say which rows a table has."""
    with site.topology.distributor() as database:
        record = database.publications.get("purchasing")
        database.snapshots.subscribe(database.subscriptions.get(record, "reporting"), ["public.t"], whole=False)


def _change(old: RegisteredArticle, new: RegisteredArticle, *parts: ColumnChange) -> SchemaChange:
    return SchemaChange(
        source=old.source,
        article_id=old.article_id,
        new_article_id=new.article_id,
        tag="ALTER TABLE",
        columns=parts,
        rows_unknown="the table was rewritten",
    )


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    ("statement", "parts"),
    [
        (
            "ALTER TABLE t ADD COLUMN random double precision NOT NULL DEFAULT random()",
            [ColumnChange(action=ColumnAction.ADD, column="random", type_name="double precision")],
        ),
        (
            "ALTER TABLE t ALTER COLUMN code TYPE integer USING length(code)",
            [ColumnChange(action=ColumnAction.RETYPE, column="code", type_name="integer")],
        ),
        (
            "ALTER TABLE t ALTER COLUMN code TYPE uuid USING gen_random_uuid()",
            [ColumnChange(action=ColumnAction.RETYPE, column="code", type_name="uuid")],
        ),
        ("UPDATE t SET other = id; ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (other, code)", []),
    ],
)
def test_an_article_whose_rows_the_log_does_not_tell_is_copied_and_others_go_on(
    statement: str, parts: list[ColumnChange], site: Site
) -> None:
    stored = StoredHistory(site)
    old, beside = stored.articles["public.t"], stored.articles["public.beside"]
    site.at_publisher(*statement.split("; "), "INSERT INTO beside VALUES (1)")
    new = stored.published_definition(old)
    history = stored.history().transaction().insert(old, ["99", "99", "99"]).schema(_change(old, new, *parts))
    stored.store(history.transaction().insert(beside, ["1"]))
    _waits(site)
    site.deliver().raise_error()
    assert site.at_subscriber("SELECT * FROM beside") == [(1,)]
    site.take_snapshot()
    columns = "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 't' ORDER BY 1"
    assert site.at_subscriber(columns) == site.at_publisher(columns)
    assert (site.differences(), site.set_up()) == ([], [])
    keys = "SELECT indkey::text FROM pg_index WHERE indrelid = 't'::regclass AND indisprimary"
    assert site.at_subscriber(keys) == site.at_publisher(keys)
    later = stored.history().transaction()
    row = [str(it) if it is not None else None for it in site.at_publisher("SELECT * FROM t WHERE id = 9")[0]]
    stored.store(later.delete(new, row))
    site.at_publisher("DELETE FROM t WHERE id = 9")
    site.deliver().raise_error()
    assert site.differences() == []


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t ADD COLUMN extra integer",
        "ALTER TABLE t DROP COLUMN other",
        "ALTER TABLE t RENAME COLUMN other TO another",
        "ALTER TABLE t ALTER COLUMN code TYPE varchar(40)",
        "CREATE UNIQUE INDEX ON t (code)",
        "ALTER TABLE t ALTER COLUMN code DROP NOT NULL",
        "ALTER TABLE t ADD COLUMN made text GENERATED ALWAYS AS ('x') STORED",
    ],
)
def test_nothing_is_copied_before_the_log_reader_has_registered_a_change(statement: str, site: Site) -> None:
    _waits(site)
    site.at_publisher(statement)
    before = site.at_subscriber("SELECT * FROM t ORDER BY id")
    with pytest.raises(TransientError, match="regist") as refused:
        site.take_snapshot()
    assert "`tranrepl log-reader FILE` registers the schema change" in (refused.value.report.remedy or "")
    assert site.at_subscriber("SELECT * FROM t ORDER BY id") == before


def test_a_snapshot_names_setup_alone_where_schema_changes_are_not_replicated(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    article = {"source": "public.t", "pre_creation_cmd": "truncate"}
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
    site = Site(databases(), tmp_path / "store", [article], SparkHere(), [subscription])
    site.at_publisher(_TABLE, _ROWS)
    site.set_up()
    good_run(site)
    site.at_publisher("ALTER TABLE t ADD COLUMN added integer DEFAULT 3, ALTER COLUMN other TYPE bigint")
    for error in (site.validate().error, whole_run(site)["reporting snapshot"].error):
        assert error is not None
        assert error.kind is ErrorKind.CONFIGURATION
        assert "as `tranrepl check FILE` says; then `tranrepl setup FILE` registers" in (error.remedy or "")
    (problem,) = check(site.topology).problems
    statement = re.search(r"ALTER TABLE [^;`]+ ADD COLUMN [^;`]+", problem.report.remedy or "")
    assert statement is not None
    site.at_subscriber(statement[0])
    site.set_up()
    good_run(site)
    rows = "SELECT * FROM t ORDER BY id"
    assert site.at_subscriber(rows) == site.at_publisher(rows)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("statement", ["RENAME VALUE 'sad' TO 'blue'", "ADD VALUE 'blue'"])
def test_a_reinitialized_article_waits_for_the_labels_of_its_types(statement: str, site: Site) -> None:
    site.at_subscriber("CREATE TYPE mood AS ENUM ('sad')")
    site.at_publisher("CREATE TYPE mood AS ENUM ('sad')", "ALTER TABLE t ADD COLUMN mood mood DEFAULT 'sad'")
    for result in whole_run(site).values():
        result.raise_error()
    site.at_publisher(f"ALTER TYPE mood {statement}", "UPDATE t SET mood = 'blue' WHERE id = 1")
    _waits(site)
    with pytest.raises(TransientError, match=r"a label of type public\.mood is not registered yet"):
        site.take_snapshot()
    for result in whole_run(site).values():
        result.raise_error()
    assert site.differences() == []


def test_a_table_with_a_domain_and_an_array_of_it_is_copied(databases: DatabasesFactory, tmp_path: Path) -> None:
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
    articles = [{"source": "public.t"}]
    site = Site(databases(), tmp_path / "store", articles, SparkHere(), [subscription], replicate_ddl=True)
    table = "CREATE TABLE t (id integer PRIMARY KEY, code short NOT NULL, codes short[])"
    site.at_publisher(_DOMAIN, table, "INSERT INTO t VALUES (1, 'a', '{b,c}'), (2, '', NULL)")
    site.at_subscriber(_DOMAIN)
    site.set_up()
    site.take_snapshot()
    assert site.differences() == []
    assert len(site.at_subscriber("SELECT * FROM t")) == 2


def test_a_stopped_article_whose_table_is_dropped_stops_the_others_no_more(site: Site) -> None:
    with site.topology.distributor() as database:
        subscription = database.subscriptions.get(database.publications.get("purchasing"), "reporting")
        database.snapshots.stop_article(subscription, "public.t", UnknownRows("its rows are not known"))
    before = site.at_subscriber("SELECT * FROM t ORDER BY id")
    site.at_publisher("INSERT INTO t VALUES (10, '10', 5)", "INSERT INTO beside VALUES (1)")
    with pytest.raises(ConfigurationError, match="of subscription reporting is stopped"):
        site.run()
    site.at_publisher("DROP TABLE t", "INSERT INTO beside VALUES (2)")
    results = whole_run(site)
    assert {name: it.error and it.error.number for name, it in results.items()} == {
        LOG_READER: ARTICLE_DOES_NOT_EXIST,
        "reporting": None,
    }
    assert site.at_subscriber("SELECT * FROM beside ORDER BY id") == [(1,), (2,)]
    assert site.at_subscriber("SELECT * FROM t ORDER BY id") == before


def test_a_reinitialization_goes_on_where_streams_were_killed_between_their_commits(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    streams = {"subscription_streams": 2, "sync_type": "automatic"}
    subscription = {"name": "reporting", "connection": "subscriber", **streams}
    articles = [{"source": it, "pre_creation_cmd": "truncate"} for it in ("public.t", "public.beside")]
    site = Site(databases(), tmp_path / "store", articles, SparkHere(), [subscription], replicate_ddl=True)
    site.at_publisher(_TABLE, "CREATE TABLE beside (id integer PRIMARY KEY)", _ROWS)
    site.set_up()
    site.take_snapshot()
    changes = [f"UPDATE t SET other = other + 100 WHERE id = {number}" for number in range(1, 10)]
    site.at_publisher(*changes, *(f"INSERT INTO beside VALUES ({number})" for number in range(9)))
    site.read_log().raise_error()
    assert ChildJob(SiteJob("delivery", "reporting"), site, Failpoint.STREAM_COMMITTED).killed()
    site.at_publisher("ALTER TABLE t ADD COLUMN more integer NOT NULL DEFAULT 7", "UPDATE t SET more = id")
    site.read_log().raise_error()
    SiteJob("reinitialization", "reporting")(site).raise_error()
    for result in whole_run(site).values():
        result.raise_error()
    assert site.differences() == []
