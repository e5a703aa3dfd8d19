"""Rows that the next commands change are read ahead, where that may pay, and whatever goes wrong with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import psycopg
import pytest

from conftest import DatabasesFactory
from support.databases import Databases, shared_databases
from support.embedded_postgres import PostgresServer
from support.hostile_schema import hostile_login
from support.in_process import ReadCommands, deliver_stored, read_commands, read_log_into_store, replicate_stored
from support.observed import wait_for_sessions_to_end
from support.site import Site
from tranrepl.connections import Connection
from tranrepl.postgres.session import Session, connect
from tranrepl.subscriber.postgres.prefetch import Prefetch
from tranrepl.subscriber.subscription import SubscriptionKey

pytestmark = pytest.mark.new_sessions

_KEY = SubscriptionKey("publisher", "7711267684752729751", "purchasing", "purchasing", "reporting")
_ROWS = 40_000
_CHANGED = 1_000
_SPARSE, _NEIGHBOURS = "id % 40 = 0", f"id <= {_CHANGED}"
_FILLER = 1_000
"""Bytes a row, so that the Subscriber's table outgrows a quarter of its buffers."""


_PUBLISHED = (
    f"INSERT INTO t SELECT n, 0 FROM generate_series(1, {_ROWS}) n",
    f"INSERT INTO named SELECT 'p ' || n % 7, 'n' || n, 0 FROM generate_series(1, {_CHANGED}) n",
    """INSERT INTO named VALUES ('a"b', 'c', 0), (E'd\\\\e', 'f', 0)""",
)


def _large_site(databases: Databases, store: Path) -> Site:
    """Return a site of tables that are large at the Subscriber: one has a key of a number, the other of two texts."""
    subscription = {"name": "reporting", "connection": "subscriber", "apply": "serial", "commit_batch_size": 1}
    site = Site(databases, store, ["public.t", "public.named"], subscriptions=[subscription])
    site.at_publisher("CREATE TABLE t (id int PRIMARY KEY, n int)")
    site.at_publisher("CREATE TABLE named (place text, name text, n int, PRIMARY KEY (name, place))")
    site.set_up()
    site.at_publisher(*_PUBLISHED)
    replicate_stored(site)
    for table in ("t", "named"):
        site.at_subscriber(f"ALTER TABLE {table} ADD filler text")
    site.at_subscriber(f"UPDATE t SET filler = repeat('x', {_FILLER})")
    site.at_subscriber(
        f"INSERT INTO named SELECT 'q', n::text, 0, repeat('x', {_FILLER}) FROM generate_series(1, {_ROWS}) n"
    )
    # From now on the indexes alone could say which rows there are.
    site.at_subscriber("VACUUM t, named")
    return site


@pytest.fixture(scope="module")
def undelivered(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with shared_databases(postgres, "prefetch") as databases:
        yield _large_site(databases, tmp_path_factory.mktemp("prefetch"))


@pytest.fixture
def site(undelivered: Site) -> Iterator[Site]:
    """Yield a large site with commands that are read but not delivered; the Publisher's rows are restored after the
    test.
    """
    yield undelivered
    undelivered.at_publisher("TRUNCATE t, named", *_PUBLISHED)
    read_commands(undelivered)


@contextmanager
def _prefetch(site: Site, read: ReadCommands, connect_to: Callable[[], Session] | None = None) -> Iterator[Prefetch]:
    """Yield a prefetch that has read once."""
    subscriber = partial(connect, site.databases.subscriber, "test", autocommit=True)
    prefetch = Prefetch(connect_to or subscriber, _KEY, read.articles)
    prefetch.read(read.commands)
    try:
        yield prefetch
    finally:
        prefetch.close()


def _counts(site: Site, table: str) -> tuple[int, int]:
    """Return how many rows an index found, and how many pages of the table itself were read."""
    ((rows, pages),) = site.at_subscriber(
        "SELECT idx_tup_fetch, heap_blks_read + heap_blks_hit FROM pg_stat_user_tables JOIN pg_statio_user_tables "
        f"USING (relid) WHERE pg_stat_user_tables.relname = '{table}'"
    )
    return int(str(rows)), int(str(pages))


def _read_ahead(site: Site, commands: ReadCommands, table: str = "t") -> tuple[int, int]:
    """Prefetch for these commands, and return what was read, by the server's own count."""
    before = _counts(site, table)
    with _prefetch(site, commands) as prefetch:
        prefetch.read(commands.commands)
    wait_for_sessions_to_end(site.databases.subscriber)
    after = _counts(site, table)
    return after[0] - before[0], after[1] - before[1]


@pytest.mark.parametrize("change", ["UPDATE t SET n = n + 1 WHERE", "DELETE FROM t WHERE"])
def test_each_row_that_will_be_changed_is_read(site: Site, change: str) -> None:
    site.at_publisher(f"{change} {_SPARSE}")
    rows, pages = _read_ahead(site, read_commands(site))
    assert rows == _CHANGED
    assert pages >= _CHANGED


def test_a_row_that_is_changed_often_is_read_once(site: Site) -> None:
    for _ in range(3):
        site.at_publisher(f"UPDATE t SET n = n + 1 WHERE {_SPARSE}")
    rows, _ = _read_ahead(site, read_commands(site))
    assert rows == _CHANGED


def test_keys_are_compared_by_postgresqls_operators_whatever_the_logins_path_holds(site: Site) -> None:
    site.at_publisher("UPDATE named SET n = 1")
    read = read_commands(site)
    before = _counts(site, "named")
    with hostile_login(site.databases.subscriber) as login:
        with _prefetch(site, read, partial(connect, login, "test", autocommit=True)) as prefetch:
            prefetch.read(read.commands)
        wait_for_sessions_to_end(site.databases.subscriber)
    assert _counts(site, "named")[0] - before[0] == _CHANGED


def test_a_key_of_texts_is_found_but_for_what_an_array_would_escape(site: Site) -> None:
    site.at_publisher("UPDATE named SET n = 1")
    rows, pages = _read_ahead(site, read_commands(site), "named")
    assert rows == _CHANGED
    assert pages >= _CHANGED


@pytest.mark.parametrize(
    "change",
    [
        f"UPDATE t SET n = 1 WHERE {_NEIGHBOURS}",
        "UPDATE t SET n = 1 WHERE id % 4000 = 0",
        f"INSERT INTO t SELECT 10 * n, 0 FROM generate_series({_ROWS}, {2 * _ROWS}) n",
        "TRUNCATE t",
    ],
)
def test_nothing_is_read_where_it_would_not_pay(site: Site, change: str) -> None:
    site.at_publisher(change)
    assert _read_ahead(site, read_commands(site)) == (0, 0)


def test_a_small_table_is_not_read(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _large_site(databases(), tmp_path / "store")
    site.at_subscriber(f"DELETE FROM t WHERE NOT ({_SPARSE})")
    site.at_subscriber("VACUUM FULL t")
    site.at_publisher(f"UPDATE t SET n = 1 WHERE {_SPARSE}")
    assert _read_ahead(site, read_commands(site)) == (0, 0)


def test_a_lock_that_the_delivery_holds_ends_it_at_once(site: Site) -> None:
    site.at_publisher(f"UPDATE t SET n = 1 WHERE {_SPARSE}")
    read = read_commands(site)
    before = _counts(site, "t")
    with (
        psycopg.connect(**site.databases.subscriber.libpq_parameters("delivery")) as delivery,  # type: ignore[arg-type]
        _prefetch(site, read) as prefetch,
    ):
        delivery.execute("LOCK TABLE t")
        started = time.monotonic()
        prefetch.read(read.commands)
        # Whatever the machine does meanwhile: waiting for the lock would end after 10 s.
        assert time.monotonic() - started < 8
        delivery.rollback()
        prefetch.read(read.commands)
    wait_for_sessions_to_end(site.databases.subscriber)
    assert _counts(site, "t") == before


def test_a_subscriber_that_gives_no_further_session_is_asked_once(site: Site) -> None:
    site.at_publisher(f"UPDATE t SET n = 1 WHERE {_SPARSE}")
    read = read_commands(site)
    refused: list[Connection] = []

    def connect_as_nobody() -> Session:
        refused.append(replace(site.databases.subscriber, login="nobody"))
        return connect(refused[0], "test", autocommit=True)

    with _prefetch(site, read, connect_as_nobody) as prefetch:
        prefetch.read(read.commands)
        prefetch.read(read.commands)
    assert len(refused) == 1


def test_a_delivery_reads_ahead(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _large_site(databases(), tmp_path / "store")
    site.at_publisher(*[f"UPDATE t SET n = n + {it} + 1 WHERE {_SPARSE}" for it in range(4)])
    read_log_into_store(site).raise_error()
    before, _ = _counts(site, "t")
    delivered = deliver_stored(site)
    delivered.raise_error()
    wait_for_sessions_to_end(site.databases.subscriber)
    assert (delivered.batches, delivered.commands) == (4, 4 * _CHANGED)
    after, _ = _counts(site, "t")
    assert after - before == 4 * _CHANGED + 3 * _CHANGED
    assert "public.t" not in site.differences()
