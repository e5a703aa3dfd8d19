"""A continuous log reader: what it follows, what it leaves to the draining, and who may read the log beside it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import DatabasesFactory
from support.child_job import LOG_READER, ChildJob, read_for
from support.continuous_reader import (
    DUMPS,
    ContinuousReader,
    continuous_reader,
    follows,
    read_continuously,
    registered_commands,
    wait_for,
)
from support.databases import Databases
from support.mariadb import MariaDbServer
from support.object_server import Bucket
from support.observed import (
    AUDIT,
    ITEM,
    assert_each_change_is_stored_once,
    assert_each_change_was_made_once,
    assert_each_change_was_made_once_in_any_order,
    audited_site,
    distribution_rows,
    make_transactions,
)
from support.publishers import SERVERS, new_mariadb_database
from support.remedies import reinitialize_all
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.admin.exec_script import exec_script
from tranrepl.admin.reinitialization import Rows
from tranrepl.errors import ErrorKind, FencedError
from tranrepl.failpoint import Failpoint
from tranrepl.jobs.requests import LogReaderRequest
from tranrepl.jobs.shutdown import heeding_shutdown
from tranrepl.log_reader import job
from tranrepl.log_reader.draining import LogDraining
from tranrepl.log_reader.job import LogReaderRun
from tranrepl.log_reader.opening import open_log_reader
from tranrepl.model.tracer_token import TracerToken
from tranrepl.postgres.session import connect
from tranrepl.publisher.postgres import log_stream
from tranrepl.publisher.postgres.publisher import PostgresPublisher

pytestmark = pytest.mark.new_sessions

_WALSENDERS = "FROM pg_stat_replication WHERE application_name = 'tranrepl log reader'"
_HISTORY = "SELECT runstatus, delivered_transactions, delivered_commands FROM mslogreader_history"
_CONFIRMED = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name LIKE 'tranrepl_purchasing_%'"


PUBLISHERS = (
    *("postgres", "mariadb"),
    *(pytest.param(it, marks=pytest.mark.slow) for it in ("mariadb-11.8", "mysql-9.7")),
)


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    return _site(databases, tmp_path / "store")


def _site(databases: DatabasesFactory, store: Path | Bucket, **log_reader: int) -> Site:
    settings: dict[str, Any] = {"polling_interval": 0.2, "replicate_ddl": True, "log_reader": log_reader}
    site = Site(databases(), store, ["public.item"], SparkHere(), **settings)
    site.at_publisher(ITEM)
    site.set_up()
    site.at_publisher(AUDIT)
    site.at_subscriber(AUDIT)
    return site


@pytest.fixture(params=PUBLISHERS)
def site_of_each_kind(request: pytest.FixtureRequest, databases: DatabasesFactory, tmp_path: Path) -> Site:
    """Return a site whose Publisher is of each kind of database that has a log to be followed."""
    ends = databases()
    if request.param in SERVERS:
        ends = _of_mariadb(ends, request)
    return audited_site(ends, tmp_path / "store", SparkHere(), step=None)


def _of_mariadb(ends: Databases, request: pytest.FixtureRequest) -> Databases:
    server: MariaDbServer = request.getfixturevalue("publishing")(request.param)
    return replace(ends, publisher=server.connection(new_mariadb_database(server), "publisher"))


@pytest.fixture(params=PUBLISHERS[1:])
def mariadb_site(request: pytest.FixtureRequest, databases: DatabasesFactory, tmp_path: Path) -> Site:
    """Return a site that replicates schema changes of MariaDB and MySQL."""
    ends = _of_mariadb(databases(), request)
    article = {"source": f"{ends.publisher.database}.item", "destination": "public.item"}
    settings: dict[str, Any] = {"polling_interval": 0.2, "replicate_ddl": True}
    site = Site(ends, tmp_path / "store", [article], SparkHere(), **settings)
    site.at_publisher(ITEM, "CREATE TABLE other (note longtext)")
    site.set_up()
    return site


def _write(site: Site, *numbers: int) -> None:
    """Commit a transaction for each number: it inserts the item, updates it, and deletes the one before the last."""
    for n in numbers:
        site.at_publisher(
            "BEGIN",
            f"INSERT INTO item VALUES ({n}, {n}, 'item')",
            f"UPDATE item SET note = repeat('x', {n % 50}) WHERE id = {n}",
            f"DELETE FROM item WHERE id = {n} - 2",
            "COMMIT",
        )


def _write_and_wait(site: Site, *numbers: int) -> None:
    _write(site, *numbers)
    wait_for(lambda: _all_are_registered(site), 20.0)


def _all_are_registered(site: Site) -> bool:
    ((made,),) = site.at_publisher("SELECT count(*) FROM audit")
    return registered_commands(site) >= int(made)


def _assert_delivered(site: Site) -> None:
    assert_each_change_is_stored_once(site)
    site.deliver().raise_error()
    assert_each_change_was_made_once(site)


def test_what_is_committed_meanwhile_is_stored_at_once_and_in_order(site_of_each_kind: Site) -> None:
    site = site_of_each_kind
    make_transactions(site, 70)
    with continuous_reader(site) as reader:
        wait_for(lambda: _all_are_registered(site))
        for n in range(100, 110):
            _write_and_wait(site, n)
        result = reader.stop()
    assert result.error is None
    assert result.batches >= 11
    assert result.transactions == 80
    assert distribution_rows(site, _HISTORY) == [(2, 80, result.commands)]
    assert not list(Path(site.publication.distributor.store).rglob("_[!t]*"))
    _assert_delivered(site)


def test_what_is_committed_before_its_end_is_stored_by_then(site_of_each_kind: Site) -> None:
    site = site_of_each_kind
    with continuous_reader(site) as reader:
        _write(site, *range(1, 20))
        reader.stop().raise_error()
    assert _all_are_registered(site)
    with continuous_reader(site, seconds=1.5) as reader:
        begun, n = time.monotonic(), 20
        while reader.runs():
            _write(site, n := n + 1)
        reader.result().raise_error()
        assert time.monotonic() - begun < 10
    site.read_log().raise_error()
    _assert_delivered(site)


def test_a_stop_in_a_long_log_ends_it_after_the_batch_at_hand(
    databases: DatabasesFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LogReaderRun, "shutdown_grace_seconds", 0.0)
    site = audited_site(databases(), tmp_path / "store", SparkHere(), step=5)
    make_transactions(site, 50)
    with heeding_shutdown() as asked:
        asked.ask()
        reader = ContinuousReader(site, asked, 3600.0)
        reader.start()
        result = reader.result()
    assert result.error is None
    assert 0 < result.transactions < 50
    site.read_log().raise_error()
    _assert_delivered(site)


def test_a_stop_ends_it_in_the_log_that_announces_how_a_table_is_altered(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases, tmp_path / "store", read_batch_size=5)
    _write(site, *range(1, 10))
    with open_log_reader(site.topology) as opened:
        reader = LogDraining(site.spark, LogReaderRequest(publication=site.publication), opened)
        site.at_publisher("ALTER TABLE item ALTER xact TYPE bigint")
        _write(site, *range(10, 40))
        reader.is_to_end = lambda: reader.result.schema_changes > 0
        reader.drain()
    assert 9 < reader.result.transactions < 40
    rest = site.read_log()
    rest.raise_error()
    assert reader.result.transactions + rest.transactions == 40


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE item ADD COLUMN more int DEFAULT 5",
        "INSERT INTO item SELECT n, n, repeat('x', 1000) FROM generate_series(1000000, 1010000) n",
        "TRUNCATE item",
        f"SELECT pg_terminate_backend(pid, 5000) {_WALSENDERS}",
    ],
)
def test_what_is_out_of_the_ordinary_is_read_as_it_always_was(site: Site, statement: str) -> None:
    with continuous_reader(site) as reader:
        _write_and_wait(site, 1, 2)
        site.at_publisher(statement)
        _write(site, 3, 4, 5)
        wait_for(lambda: follows(site) and (4,) in _stored_items(site), 30.0)
        _write(site, 6)
        reader.stop().raise_error()
    site.deliver().raise_error()
    assert site.differences() == []


def _stored_items(site: Site) -> list[tuple[int]]:
    ((count,),) = site.at_publisher("SELECT count(*) FROM item WHERE id = 4")
    return [(4,)] if count and registered_commands(site) >= 10 else []


_LARGE = "WITH RECURSIVE n(n) AS (SELECT 100 UNION ALL SELECT n + 1 FROM n WHERE n < 999)"


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE item ADD COLUMN more int DEFAULT 5",
        f"INSERT INTO item {_LARGE} SELECT n, n, repeat('x', 10000) FROM n",
        f"INSERT INTO other {_LARGE} SELECT repeat('x', 10000) FROM n",
        "TRUNCATE TABLE item",
        "FLUSH BINARY LOGS",
        "KILL",
    ],
)
def test_what_is_out_of_the_ordinary_in_a_binary_log_is_read_as_it_always_was(
    mariadb_site: Site, statement: str
) -> None:
    site = mariadb_site
    with continuous_reader(site) as reader:
        site.at_publisher("INSERT INTO item VALUES (1, 1, 'x'), (2, 2, 'y')")
        wait_for(lambda: registered_commands(site) == 2, 20.0)
        if statement == "KILL":
            # Rows that came before it followed were read without.
            wait_for(lambda: follows(site), 20.0)
            ((number,),) = site.at_publisher(f"SELECT id {DUMPS}")
            statement = f"KILL {number}"
        site.at_publisher(statement, "INSERT INTO item (id, xact, note) VALUES (3, 3, 'z')")
        wait_for(lambda: follows(site) and _is_registered(site), 30.0)
        site.at_publisher("UPDATE item SET note = 'again' WHERE id = 3")
        reader.stop().raise_error()
    site.deliver().raise_error()
    assert site.at_subscriber("SELECT note FROM item WHERE id = 3") == [("again",)]
    assert site.differences() == []


def _is_registered(site: Site) -> bool:
    """Return whether all is registered that is in the log."""
    with open_log_reader(site.topology) as opened:
        end = opened.publisher.end_of_log()
        return opened.record.registered_to is not None and opened.record.registered_to >= end


def test_a_tracer_token_and_a_script_pass_at_their_places(site: Site, tmp_path: Path) -> None:
    script = tmp_path / "change.sql"
    script.write_text("UPDATE item SET note = note || '!'")
    with continuous_reader(site) as reader:
        _write(site, 1)
        with site.topology.publisher("test") as publisher:
            publisher.post_token(TracerToken.new(publisher.name))
        exec_script(site.topology, script)
        _write(site, 2)
        wait_for(lambda: distribution_rows(site, "SELECT count(*) FROM mstracer_tokens") == [(1,)], 10.0)
        wait_for(lambda: registered_commands(site) == 6, 10.0)
        reader.stop().raise_error()
    site.deliver().raise_error()
    assert site.at_subscriber("SELECT id, note FROM item ORDER BY 1") == [(1, "x!"), (2, "xx")]


def test_log_without_changes_of_ours_is_let_go(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_stream, "_WORTH_CONFIRMING", 10_000)
    with continuous_reader(site):
        site.at_publisher("CREATE TABLE other (filler text)")
        ((before,),) = site.at_publisher("SELECT pg_current_wal_lsn()::text")
        for _ in range(20):
            site.at_publisher("INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, 10)")
        wait_for(lambda: site.at_publisher(f"SELECT ({_CONFIRMED})::pg_lsn > '{before}'") == [(True,)], 10.0)
    assert distribution_rows(site, "SELECT count(*) FROM msrepl_batches") == [(0,)]


def test_a_publisher_that_is_down_from_the_start_is_an_error_of_the_run(site: Site) -> None:
    site.connections["publisher"] = replace(site.connections["publisher"], port=1)
    error = read_continuously(site, 3600.0).error
    assert error is not None
    assert error.kind is ErrorKind.TRANSIENT
    rows = distribution_rows(site, "SELECT runstatus, error_id IS NOT NULL FROM mslogreader_history")
    assert rows == [(5, True)]


def test_other_jobs_read_the_log_beside_it(site_of_each_kind: Site) -> None:
    site = site_of_each_kind
    with continuous_reader(site) as reader:
        for n in range(1, 4):
            _write(site, n)
            _read_beside(site)
            assert _all_are_registered(site)
        validated = site.validate()
        validated.raise_error()
        wait_for(lambda: follows(site), 10.0)
        _write_and_wait(site, 4)
        reader.stop().raise_error()
    _assert_delivered(site)


def _read_beside(site: Site) -> None:
    """Read the log by a job of its own, which asks for PostgreSQL's slot. A binary log is nobody's: the slower of two
    that read it at once is fenced."""
    try:
        site.read_log().raise_error()
    except FencedError:
        assert site.databases.publisher.kind != "postgres"
        wait_for(lambda: _all_are_registered(site), 10.0)


@pytest.mark.slow
def test_a_publication_is_reinitialized_beside_it(site: Site) -> None:
    with continuous_reader(site) as reader:
        _write_and_wait(site, 1)
        site.deliver().raise_error()
        reinitialize_all(site, Rows.KEPT)
        wait_for(lambda: follows(site), 20.0)
        _write(site, 2, 3)
        # What was stored before is forgotten.
        wait_for(lambda: registered_commands(site) == 5, 10.0)
        reader.stop().raise_error()
    site.deliver().raise_error()
    assert_each_change_was_made_once(site)


def test_a_transaction_that_stays_open_ends_no_stream(site: Site) -> None:
    with continuous_reader(site) as reader, connect(site.databases.publisher, "open") as open_:
        open_.execute("SET search_path = public; INSERT INTO item VALUES (0, 0, 'open')")
        streams = site.at_publisher(f"SELECT pid {_WALSENDERS}")
        for n in range(1, 10):
            _write(site, n)
        wait_for(lambda: registered_commands(site) >= 25, 10.0)
        open_.commit()
        wait_for(lambda: _all_are_registered(site), 10.0)
        assert site.at_publisher(f"SELECT pid {_WALSENDERS}") == streams
        reader.stop().raise_error()
    _assert_delivered_in_any_order(site)


def _assert_delivered_in_any_order(site: Site) -> None:
    assert_each_change_is_stored_once(site)
    site.deliver().raise_error()
    assert_each_change_was_made_once_in_any_order(site)


def test_a_partition_that_nobody_announced_is_found(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = Site(databases(), tmp_path / "store", ["public.part"], SparkHere(), polling_interval=0.2)
    site.at_publisher(
        "CREATE TABLE part (id int PRIMARY KEY, note text) PARTITION BY RANGE (id)",
        "CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (100)",
    )
    site.set_up()
    with continuous_reader(site) as reader:
        site.at_publisher("INSERT INTO part VALUES (1, 'a')")
        wait_for(lambda: registered_commands(site) == 1, 10.0)
        site.at_publisher(
            "CREATE TABLE part_2 PARTITION OF part FOR VALUES FROM (100) TO (200)",
            "INSERT INTO part VALUES (2, 'b'), (101, 'c')",
        )
        wait_for(lambda: registered_commands(site) == 3, 10.0)
        reader.stop().raise_error()
    site.deliver().raise_error()
    assert site.differences() == []


def test_where_the_log_cannot_be_followed_it_is_looked_at(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PostgresPublisher, "log_stream", lambda *_: None)
    with heeding_shutdown() as asked:
        reader = ContinuousReader(site, asked, 3600.0)
        reader.start()
        for n in range(1, 4):
            _write_and_wait(site, n)
        assert not follows(site)
        reader.stop().raise_error()
    _assert_delivered(site)


def test_one_that_polls_records_now_and_then_that_it_runs(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PostgresPublisher, "log_stream", lambda *_: None)
    monkeypatch.setattr(job, "AGAIN_SECONDS", 0.2)
    seen = set[object]()

    def recorded() -> int:
        seen.update(distribution_rows(site, "SELECT time FROM mslogreader_history"))
        return len(seen)

    with heeding_shutdown() as asked:
        reader = ContinuousReader(site, asked, 3600.0)
        reader.start()
        # Its beginning and the first draining are two of them.
        wait_for(lambda: recorded() > 4, 20.0)
        reader.stop().raise_error()


@pytest.mark.slow
@pytest.mark.parametrize("articles", [["public.item", "public.added"], [{"source": "public.item", "upd_cmd": "CALL"}]])
def test_what_setup_changes_is_read_from_its_place_on(site: Site, articles: list[Any]) -> None:
    site.at_publisher("CREATE TABLE added (id int PRIMARY KEY)")
    site.at_subscriber("CREATE TABLE added (id int PRIMARY KEY)")
    store = site.publication.distributor.store
    changed = Site(site.databases, store, articles, SparkHere(), polling_interval=0.2, replicate_ddl=True)
    with continuous_reader(site) as reader:
        _write_and_wait(site, 1)
        changed.set_up()
        site.at_publisher("INSERT INTO added VALUES (1)", "INSERT INTO added VALUES (2)")
        _write(site, 2)
        result = reader.result()
    assert result.error is None
    assert any("the publication was set up again" in it for it in result.notices)
    changed.read_log().raise_error()
    changed.deliver().raise_error()
    assert changed.differences() == []


def test_two_that_deliver_continuously_store_all_once(site: Site) -> None:
    with continuous_reader(site) as first:
        second = ContinuousReader(site, first.asked, 3600.0)
        second.start()
        for n in range(1, 15):
            _write(site, n)
            time.sleep(0.1)
        first.stop().raise_error()
        second.result().raise_error()
    _assert_delivered(site)


def test_one_that_finds_its_slot_moved_by_another_is_overtaken(site: Site) -> None:
    _write(site, 1)
    with open_log_reader(site.topology) as opened:
        slower = LogDraining(site.spark, LogReaderRequest(publication=site.publication), opened)
        site.read_log().raise_error()
        with pytest.raises(FencedError, match="another log reader"):
            slower.drain()
    _assert_delivered(site)


@pytest.mark.parametrize(
    "failpoint",
    [
        pytest.param(Failpoint.FETCHED, marks=pytest.mark.slow),
        Failpoint.STORED,
        Failpoint.REGISTERED,
        pytest.param(Failpoint.ADVANCED, marks=pytest.mark.slow),
    ],
)
def test_one_that_is_killed_anywhere_stores_all_once_when_run_again(
    databases: DatabasesFactory, store: Path | Bucket, failpoint: Failpoint
) -> None:
    site = _site(databases, store)
    site.spark = None
    numbers = iter(range(1, 1000))
    for nth in (4, 5):
        with ChildJob(read_for(60), site, f"{failpoint}:{nth}") as job:
            wait_for(lambda: follows(site), 20.0)
            while job.runs():
                _write(site, next(numbers))
            assert job.killed()
    LOG_READER(site).raise_error()
    site.spark = SparkHere()
    _assert_delivered(site)
