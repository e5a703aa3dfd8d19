"""A delivery with schema changes among its commands: a transaction that holds one is a commit batch by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from pyspark.sql import SparkSession

from conftest import DatabaseFactory, DatabasesFactory
from support.child_job import STORED_DISTRIBUTION, ChildJob
from support.command_history import Column, History
from support.observed import distribution_rows
from support.site import Rows, Site, execute
from support.spark_here import SparkHere
from support.stored_history import StoredHistory
from tranrepl.admin.check import check
from tranrepl.connections import Connection
from tranrepl.failpoint import Failpoint
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.schema_change import ColumnAction, ColumnChange, SchemaChange

_ID = Column("id", "integer", key=1)
_ROWS = "SELECT * FROM t ORDER BY id"
_NAMES = "SELECT column_name::text FROM information_schema.columns WHERE table_name = 't' ORDER BY ordinal_position"
_DEFINITION = "SELECT article_id FROM mssubscription_articles WHERE article = 'public.t'"


def _site(
    databases: DatabasesFactory,
    folder: Path,
    spark: object,
    *subscriptions: Mapping[str, object],
    connections: Mapping[str, Connection] = MappingProxyType({}),
) -> Site:
    settings = subscriptions or [{"name": "reporting", "connection": "subscriber"}]
    site = Site(databases(), folder / "store", ["public.t", "public.other"], spark, settings)
    site.connections |= connections
    site.at_publisher("CREATE TABLE t (id integer PRIMARY KEY)", "CREATE TABLE other (id integer PRIMARY KEY)")
    site.set_up()
    return site


def _added(old: RegisteredArticle, new: RegisteredArticle, column: str, value: str) -> SchemaChange:
    part = ColumnChange(action=ColumnAction.ADD, column=column, type_name="integer", existing_value=value)
    return SchemaChange(
        source=old.source, article_id=old.article_id, new_article_id=new.article_id, tag="ALTER TABLE", columns=(part,)
    )


def _backlog(stored: StoredHistory, changes: int, rows: Sequence[tuple[Any, ...]] = ()) -> tuple[History, Rows]:
    """Return a history of two tables' rows, with schema changes of table t between them and within transactions; and
    the rows of t after it, which had `rows` before."""
    history, article, other = stored.history(), stored.articles["public.t"], stored.articles["public.other"]
    expected = [list(row) for row in rows]
    for _ in range(changes):
        known = len(article.columns) - 1
        first = 10 * known
        for row in range(first, first + 3):
            history.transaction().insert(article, [str(row)] + ["7"] * known).insert(other, [str(row)])
        expected += [[row] + [7] * known for row in range(first, first + 4)]
        new = stored.next_definition(article, [_ID, *(Column(f"c{at}", "integer") for at in range(known + 1))])
        history.transaction().insert(article, [str(first + 3)] + ["7"] * known)
        history.schema(_added(article, new, f"c{known}", str(known)))
        before = [str(first)] + ["7"] * known
        history.update(new, [*before, str(known)], [*before, "99"])
        expected = [[*row, 99 if row[0] == first else known] for row in expected]
        stored.articles["public.t"] = article = new
    return history, [tuple(it) for it in expected]


def test_subscriptions_pass_twenty_changes_each_at_its_own_pace(
    databases: DatabasesFactory, database: DatabaseFactory, tmp_path: Path
) -> None:
    subscriptions = [{"name": name, "connection": name} for name in ("subscriber", "second", "third")]
    connections = {name: database(name) for name in ("second", "third")}
    site = _site(databases, tmp_path, SparkHere(), *subscriptions, connections=connections)
    stored = StoredHistory(site)
    expected: Rows = []
    for changes, delivered in (
        (4, ["subscriber"]),
        (8, ["subscriber", "second"]),
        (8, ["second", "third", "subscriber"]),
    ):
        history, expected = _backlog(stored, changes, expected)
        stored.store(history)
        for name in delivered:
            site.deliver(name).raise_error()
            assert execute(site.connections[name], _ROWS) == expected
    assert site.probe_batches("third") is not None


def test_transactions_of_one_batch_are_divided_at_its_schema_changes(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases, tmp_path, SparkHere())
    stored = StoredHistory(site)
    history, expected = _backlog(stored, 3)
    stored.store(history, together=True)
    result = site.deliver()
    result.raise_error()
    assert site.at_subscriber(_ROWS) == expected
    assert result.transactions == 12
    ((comments,),) = distribution_rows(site, "SELECT comments FROM msdistribution_history ORDER BY time DESC LIMIT 1")
    assert 'Subscriber reporting: ALTER TABLE "public"."t" ADD COLUMN "c2" integer DEFAULT \'2\'' in comments


def test_one_session_goes_on_over_schema_changes(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases, tmp_path, SparkHere())
    site.at_subscriber(
        "CREATE TABLE session (pid integer)",
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN INSERT INTO session VALUES (pg_backend_pid()); RETURN NEW; END'",
        "CREATE TRIGGER note AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION note()",
    )
    stored = StoredHistory(site)
    history, expected = _backlog(stored, 3)
    stored.store(history)
    site.deliver().raise_error()
    assert site.at_subscriber(_ROWS) == expected
    assert site.at_subscriber("SELECT count(DISTINCT pid), count(*) FROM session") == [(1, 12)]


def test_commands_behind_a_schema_change_go_as_its_table_wants_it_then(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    # The Subscriber's own event trigger creates a trigger on the table that the schema change alters.
    site = _site(databases, tmp_path, SparkHere())
    site.at_subscriber(
        "CREATE TABLE seen (number serial, id integer)",
        "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN INSERT INTO seen (id) VALUES (NEW.id); RETURN NEW; END'",
        "CREATE FUNCTION watch() RETURNS event_trigger LANGUAGE plpgsql "
        "SET search_path = public AS "
        "'BEGIN CREATE OR REPLACE TRIGGER see AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION see(); END'",
        "CREATE EVENT TRIGGER watch ON ddl_command_end WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION watch()",
    )
    stored = StoredHistory(site)
    old = stored.articles["public.t"]
    new = stored.next_definition(old, [_ID, Column("c0", "integer")])
    history = stored.history().transaction().insert(old, ["1"]).insert(old, ["2"])
    history.transaction().schema(_added(old, new, "c0", "5"))
    stored.store(history.transaction().insert(new, ["9", "6"]).insert(new, ["3", "7"]))
    result = site.deliver()
    result.raise_error()
    assert site.at_subscriber(_ROWS) == [(1, 5), (2, 5), (3, 7), (9, 6)]
    assert site.at_subscriber("SELECT id FROM seen ORDER BY number") == [(9,), (3,)]
    assert result.in_bulk == 2


@pytest.mark.slow
@pytest.mark.spark
def test_streams_stop_on_either_side_of_a_schema_change(
    databases: DatabasesFactory, tmp_path: Path, spark: SparkSession
) -> None:
    subscription = {"name": "reporting", "connection": "subscriber", "subscription_streams": 2}
    site = _site(databases, tmp_path, spark, subscription)
    site.at_subscriber("CREATE UNIQUE INDEX ON t (id)")
    stored = StoredHistory(site)
    history, expected = _backlog(stored, 2)
    stored.store(history)
    result = site.deliver()
    result.raise_error()
    assert site.at_subscriber(_ROWS) == expected
    assert result.transactions == 8


def test_check_and_setup_leave_tables_alone_that_changes_are_on_their_way_to(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases, tmp_path, SparkHere())
    stored = StoredHistory(site)
    site.at_publisher("ALTER TABLE t ADD COLUMN c0 integer")
    old = stored.articles["public.t"]
    new = stored.published_definition(old)
    history = stored.history().transaction().insert(old, ["1"]).schema(_added(old, new, "c0", "5"))
    stored.store(history.insert(new, ["2", "6"]))
    assert any("stored schema changes will alter its table" in it for it in check(site.topology).warnings)
    assert [it for it in site.set_up() if "procedure" in it] == []
    site.deliver().raise_error()
    assert site.at_subscriber(_ROWS) == [(1, 5), (2, 6)]
    assert not any("stored schema changes will alter its table" in it for it in check(site.topology).warnings)
    assert [it for it in site.set_up() if "procedure" in it] == []


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    "failpoint",
    [Failpoint.BEGIN, Failpoint.APPLIED, Failpoint.BEFORE_COMMIT, Failpoint.WATERMARK_SET, Failpoint.AFTER_COMMIT],
)
def test_a_delivery_killed_at_a_schema_change_makes_it_once(
    failpoint: Failpoint, databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases, tmp_path, SparkHere())
    stored = StoredHistory(site)
    definitions = {1: stored.articles["public.t"].article_id}
    history, expected = _backlog(stored, 1)
    definitions[2] = stored.articles["public.t"].article_id
    stored.store(history)
    for turn in (2, 1):
        with ChildJob(STORED_DISTRIBUTION, site, f"{failpoint}:{turn}") as job:
            killed = job.killed()
        columns = [name for (name,) in site.at_subscriber(_NAMES)]
        definition = site.at_subscriber(_DEFINITION)
        assert definition == [(definitions[len(columns)],)]
        assert killed or site.at_subscriber(_ROWS) == expected
    site.deliver().raise_error()
    assert site.at_subscriber(_ROWS) == expected
