"""`tranrepl teardown --publication NAME`: what is left of a publication whose file is gone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import DatabasesFactory
from support.databases import Databases, connection_environment
from support.in_process import replicate_stored
from support.shell import Outcome, typed
from support.site import Rows, Site, execute
from tranrepl.admin.publication_ends import LEFT_NOTHING, Left, find_ends
from tranrepl.admin.teardown import plan_teardown_at, tear_down

TABLES = """
    CREATE TABLE plain (id int PRIMARY KEY, note text);
    CREATE TABLE keyed (id int PRIMARY KEY, code int NOT NULL);
"""
_PUBLISHED = (
    "SELECT pubname::text FROM pg_publication UNION ALL "
    "SELECT slot_name::text FROM pg_replication_slots WHERE database = current_database() UNION ALL "
    "SELECT nspname::text FROM pg_namespace WHERE nspname = 'tranrepl' UNION ALL "
    "SELECT relname::text FROM pg_class WHERE relreplident = 'f' ORDER BY 1"
)
_AT_SUBSCRIBER = (
    "SELECT proname::text FROM pg_proc WHERE proname LIKE 'sp_MS%' UNION ALL "
    "SELECT relname::text FROM pg_class WHERE relname LIKE 'ms%' AND relkind = 'r' ORDER BY 1"
)

_KEYED = {"source": "public.keyed", "truncate": "ignore"}


@pytest.fixture
def ends(databases: DatabasesFactory) -> Databases:
    """Create the tables at both ends; the distribution database is empty."""
    made = databases(migrated=False)
    execute(made.publisher, TABLES)
    execute(made.subscriber, TABLES)
    return made


def _site(ends: Databases, folder: Path, articles: Any, **settings: Any) -> Site:
    site = Site(ends, folder / "store", articles, replicate_ddl=True, **settings)
    site.set_up()
    site.at_publisher("INSERT INTO keyed SELECT coalesce(max(id), 0) + 1, 1 FROM keyed")
    replicate_stored(site)
    return site


def _here(ends: Databases) -> list[Rows]:
    return [
        execute(ends.publisher, _PUBLISHED),
        execute(ends.subscriber, _AT_SUBSCRIBER),
        execute(ends.distribution, "SELECT relname::text FROM pg_class WHERE relname LIKE 'ms%' AND relkind = 'r'"),
    ]


def _typed(environment: dict[str, str], *options: str) -> Outcome:
    named = ("--publication", "purchasing", "--distributor", "distribution")
    return typed("teardown", *named, *options, environment=environment)


def test_only_that_publication_is_found_and_removed_everywhere(ends: Databases, tmp_path: Path) -> None:
    theirs = _site(ends, tmp_path / "theirs", [_KEYED], publication="their-s")
    before = _here(ends)
    two = [
        {"name": name, "connection": "subscriber", "sync_type": "replication_support_only"}
        for name in ("reporting", "two")
    ]
    _site(ends, tmp_path / "ours", ["public.plain", _KEYED], subscriptions=two)
    # Databases of the same names, which do not answer.
    others = [replace(it, connection_id=f"a_{it.connection_id}", port=1) for it in (ends.publisher, ends.subscriber)]
    environment = {**ends.environment, **connection_environment(others), "AIRFLOW_CONN_ODD": "{"}
    dry = _typed(environment, "--dry-run")
    assert dry.out.splitlines()[-1] == "purchasing: nothing was removed (--dry-run)", dry.err
    assert dry.out.count("  remove procedure sp_MSins_publicplain") == 1
    assert "warning: AIRFLOW_CONN_ODD is neither a connection in JSON nor a URI" in dry.err
    done = _typed(environment, "--yes")
    assert (done.status, done.out.splitlines()[-1]) == (0, "purchasing: removed"), done.err
    assert _here(ends) == before
    assert list((tmp_path / "ours" / "store").glob("[!_]*")) == []
    again = _typed(environment, "--yes")
    assert again.err.splitlines()[-1] == "  → registered: their-s"
    # Ours delivered it too.
    theirs.at_subscriber("DELETE FROM keyed WHERE id = 2")
    theirs.at_publisher("INSERT INTO keyed VALUES (10, 10)")
    replicate_stored(theirs)
    assert theirs.differences() == []


def test_an_end_that_is_not_found_keeps_everything_until_it_is_left(ends: Databases, tmp_path: Path) -> None:
    nothing = [*_here(ends)[:2], []]
    _site(ends, tmp_path, ["public.plain"])
    before = _here(ends)
    lonely = connection_environment([ends.distribution])
    (refused,) = _typed(lonely, "--yes").errors
    assert f"the Publisher, database {ends.publisher.database} of the server with system identifier" in refused
    assert "--leave-publisher" in refused
    (refused,) = _typed(lonely, "--yes", "--leave-publisher").errors
    assert f"the Subscriber of subscription reporting, database {ends.subscriber.database}, is not found" in refused
    assert "--leave reporting" in refused
    assert _here(ends) == before
    left = _typed(lonely, "--yes", "--leave-publisher", "--leave", "reporting")
    assert left.status == 0, left.err
    assert [*_here(ends)] == [*before[:2], []]
    # What was said, at the ends that were left.
    for said in [it for it in left.err.splitlines() if it.split(" ")[0] in ("SELECT", "DROP", "ALTER", "DELETE")]:
        at_subscriber = "msreplication" in said or "mssubscription" in said
        rows = execute(ends.subscriber if at_subscriber else ends.publisher, said)
        for (procedure,) in rows if "object_name" in said.split(" FROM ")[0] else ():
            execute(ends.subscriber, f'DROP PROCEDURE "{procedure}"')
    assert _here(ends)[0] == nothing[0]
    for table in ("msreplication_subscriptions", "msreplication_objects", "mssubscription_articles"):
        assert execute(ends.subscriber, f"SELECT * FROM {table}") == []
    assert execute(ends.subscriber, "SELECT proname FROM pg_proc WHERE proname LIKE 'sp_MS%'") == []


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_an_interrupted_one_goes_on(ends: Databases, tmp_path: Path, parts: int) -> None:
    nothing = [*_here(ends)[:2], []]
    site = _site(ends, tmp_path, ["public.keyed"])

    def planned() -> Any:
        connections = [ends.subscriber, ends.publisher]
        return plan_teardown_at(find_ends("purchasing", ends.distribution, connections, LEFT_NOTHING, "test"))

    found = planned()
    tear_down(replace(found, parts=found.parts[:parts]), lambda _: None)
    assert _here(ends) != nothing
    tear_down(planned(), lambda _: None)
    assert _here(ends) == nothing
    assert site.at_subscriber("SELECT * FROM keyed") == [(1, 1)]


@pytest.mark.parametrize(
    "arguments", [(), ("--publication", "purchasing"), ("shop.yaml", "--publication", "purchasing")]
)
def test_it_must_be_said_which_publication(arguments: tuple[str, ...]) -> None:
    (error,) = typed("teardown", *arguments, environment={}).errors
    assert error == (
        "which publication?\n  → give its file, or, where that is gone, --publication NAME --distributor CONNECTION"
    )


def test_a_publisher_that_is_gone_for_good_is_left(ends: Databases, tmp_path: Path) -> None:
    _site(ends, tmp_path, ["public.plain"])
    gone = replace(ends.publisher, port=1)
    left = Left(publisher=True)
    found = plan_teardown_at(find_ends("purchasing", ends.distribution, [gone, ends.subscriber], left, "test"), left)
    tear_down(found, lambda _: None)
    assert execute(ends.subscriber, _AT_SUBSCRIBER) == []
