"""Two Publishers whose databases, publications and subscriptions have the same names, and one that moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from conftest import DatabasesFactory
from support.databases import Databases
from support.embedded_postgres import PostgresServer
from support.item_site import assert_refused_everywhere, assert_reinitializes, command, grow, insert, run
from support.mariadb import MariaDbServer
from support.observed import item_article, stored_commands
from support.publishers import new_mariadb_database, publishing_mariadb
from support.site import Rows, Site
from tranrepl.errors import MustBeReinitializedError
from tranrepl.settings.publication import SyncType

_TABLE = "CREATE TABLE item (id bigint PRIMARY KEY, note text)"
_KINDS = ("postgres", *(pytest.param(it, marks=pytest.mark.slow) for it in ("mariadb", "mysql-9.7")))


def _site(databases: Databases, folder: Path) -> Site:
    """Return a site that is not set up, with its table at the Publisher."""
    folder.mkdir(exist_ok=True)
    article = {**item_article(databases.publisher), "pre_creation_cmd": "truncate", "truncate": "ignore"}
    site = Site(databases, folder / "store", [article])
    site.at_publisher(_TABLE)
    return site


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], list[MariaDbServer]]]:
    """Yield two servers of a kind, started when they are first asked for."""
    with ExitStack() as stack:

        def started(kind: str) -> list[MariaDbServer]:
            homes = [tmp_path_factory.mktemp("server") for _ in range(2)]
            return [stack.enter_context(publishing_mariadb(it, kind)) for it in homes]

        yield cache(started)


@pytest.fixture(params=_KINDS)
def shards(request: pytest.FixtureRequest, databases: DatabasesFactory, tmp_path: Path) -> tuple[Site, Site]:
    """Return equal names at two servers, each with a distribution database of its own, and one Subscriber."""
    here, there = databases(), databases()
    if request.param == "postgres":
        other: PostgresServer = request.getfixturevalue("own_server")
        name = here.publisher.database or ""
        other.create_database(name)
        first, second = here.publisher, other.connection(name, "publisher")
    else:
        both: list[MariaDbServer] = request.getfixturevalue("others")(request.param)
        name = new_mariadb_database(both[0])
        both[1].execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
        first, second = (it.connection(name, "publisher") for it in both)
    return (
        _site(replace(here, publisher=first), tmp_path / "one"),
        _site(Databases(second, here.subscriber, there.distribution), tmp_path / "two"),
    )


def _rows(*sites: Site) -> Rows:
    return sorted(row for site in sites for row in site.at_publisher("SELECT * FROM item"))


def _received(site: Site) -> Rows:
    return site.at_subscriber("SELECT * FROM item ORDER BY 1")


def test_two_publishers_of_one_name_deliver_to_one_subscriber(shards: tuple[Site, Site], tmp_path: Path) -> None:
    one, two = shards
    for site in shards:
        site.set_up()
    # The second one's log ends long before the first one's, whose watermark it must not see.
    grow(one, bytes.fromhex("0000000003000000"))
    for turn in range(3):
        insert(one, turn * 10 + 1, turn * 10 + 3, "one")
        insert(two, turn * 10 + 5, turn * 10 + 7, "two")
        for site in shards if turn % 2 else reversed(shards):
            run(site)
        assert _received(one) == _rows(one, two)
    for site in shards:
        assert command(site, tmp_path, "check").status == 0


def test_a_second_publisher_of_one_name_is_refused(shards: tuple[Site, Site], tmp_path: Path) -> None:
    one, two = shards
    one.set_up()
    insert(one, 1, 3, "one")
    run(one)
    two.databases = replace(two.databases, distribution=one.databases.distribution)
    two.connections["distribution"] = one.databases.distribution
    with pytest.raises(MustBeReinitializedError, match="belongs to the Publisher with the system identifier"):
        two.set_up()
    assert_refused_everywhere(two, tmp_path, "the connection leads to another server")
    insert(one, 4, 6, "one")
    run(one)
    assert _received(one) == _rows(one)


@pytest.fixture
def moved(shards: tuple[Site, Site]) -> Site:
    """Move a Publisher to another server, by dump and restore, after everything was delivered."""
    one, two = shards
    one.set_up()
    insert(one, 1, 3, "before")
    run(one)
    for row in one.at_publisher("SELECT id, note FROM item"):
        two.at_publisher(f"INSERT INTO item VALUES ({row[0]}, '{row[1]}')")
    one.databases = replace(one.databases, publisher=two.databases.publisher)
    one.connections["publisher"] = two.databases.publisher
    return one


def test_a_publisher_that_was_moved_goes_on_with_the_rows_that_are_there(moved: Site, tmp_path: Path) -> None:
    insert(moved, 4, 6, "after")
    moved.at_subscriber("INSERT INTO item VALUES (4, 'after'), (5, 'after'), (6, 'after')")
    assert_refused_everywhere(moved, tmp_path, "a dump was restored into")
    outcome = command(moved, tmp_path, "reinitialize", "--log-reader")
    assert outcome.status == 0, outcome.err
    insert(moved, 7, 9, "later")
    run(moved)
    assert _received(moved) == _rows(moved)
    assert [it.command for it in stored_commands(moved)] == [
        f"{{CALL [sp_MSins_publicitem] ({n},'later')}}" for n in (7, 8, 9)
    ]


@pytest.mark.slow
def test_a_publisher_that_was_moved_begins_anew(moved: Site, tmp_path: Path) -> None:
    moved.publication = moved.publication.model_copy(
        update={
            "subscriptions": [
                it.model_copy(update={"sync_type": SyncType.AUTOMATIC}) for it in moved.publication.subscriptions
            ]
        }
    )
    if moved.databases.publisher.kind != "postgres":
        # Its definition is another one, then, by which nothing was read.
        moved.at_publisher("ALTER TABLE item CONVERT TO CHARACTER SET latin1")
    insert(moved, 4, 6, "after")
    assert_refused_everywhere(moved, tmp_path, "the connection leads to another server")
    assert_reinitializes(moved, tmp_path)
