"""A snapshot that was interrupted goes on with the tables that were not whole; those that were stay as they are."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from conftest import DatabasesFactory
from support.child_job import SNAPSHOT, SNAPSHOT_OF_WHOLE_TABLES, ChildJob, Job
from support.databases import Databases
from support.embedded_postgres import PostgresServer
from support.in_process import read_log_into_store, replicate_stored
from support.mariadb import MariaDbServer
from support.publishers import SERVERS, new_mariadb_database
from support.site import Site
from tranrepl.admin.cleanup import clean_up
from tranrepl.errors import FencedError
from tranrepl.failpoint import Failpoint
from tranrepl.jobs.requests import SnapshotRequest
from tranrepl.jobs.results import JobResult
from tranrepl.snapshot import initialization
from tranrepl.snapshot.copied_before import CopiedBefore, copied_before
from tranrepl.snapshot.opening import OpenSnapshot
from tranrepl.snapshot.reinitialization import mark_for_reinitialization

_TABLES = [f"t{number}" for number in range(10)]
_ROWS = 60


def _site_of(ends: Databases, tmp_path: Path, *, keys: bool = False, ddl: bool = False) -> Site:
    """Return a site of ten tables; the last has several ranges, and its index is built after the load, like all."""
    schema = "public" if ends.publisher.kind == "postgres" else ends.publisher.database
    articles = [
        {"source": f"{schema}.{it}", "destination": f"public.{it}", "pre_creation_cmd": "truncate"} for it in _TABLES
    ]
    subscription = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic", "foreign_keys": keys}
    site = Site(ends, tmp_path / "store", articles, subscriptions=[subscription], replicate_ddl=ddl)
    for it in _TABLES:
        rows = ", ".join(f"({n}, 0, repeat('x', 40))" for n in range(1, _ROWS * (50 if it == "t9" else 1)))
        site.at_publisher(
            f"CREATE TABLE {it} (id int PRIMARY KEY, balance int NOT NULL, filler text NOT NULL)",
            f"INSERT INTO {it} VALUES {rows}",
        )
    return site


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    site = _site_of(databases(), tmp_path)
    site.set_up()
    return site


def _statements(random: Random) -> list[str]:
    """Return one transaction that changes, moves, removes and adds rows of several tables."""
    first, other = random.sample(_TABLES, 2)
    at, new = random.randint(1, _ROWS), random.randint(10_000, 1_000_000_000)
    return [
        "BEGIN",
        f"UPDATE {first} SET balance = balance + 1 WHERE id BETWEEN {at} AND {at + 20}",
        f"UPDATE {other} SET id = {new}, balance = balance + 1 WHERE id = {at}",
        f"DELETE FROM {first} WHERE id = {at + 3}",
        f"INSERT INTO {other} VALUES ({new + 1}, {at}, 'new')",
        "COMMIT",
    ]


@contextmanager
def _writing(site: Site) -> Iterator[None]:
    """Write without a pause."""
    over, random, problems = threading.Event(), Random(7), list[BaseException]()

    def work() -> None:
        try:
            while not over.is_set():
                site.at_publisher(*(it for _ in range(20) for it in _statements(random)))
        except BaseException as error:
            problems.append(error)
            raise

    writer = threading.Thread(target=work)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()
    assert problems == []


def _write(site: Site, seed: int) -> None:
    random = Random(seed)
    site.at_publisher(*(it for _ in range(30) for it in _statements(random)))


def _files(site: Site) -> dict[str, object]:
    """Return by table the file of its rows at the Subscriber: another one after a TRUNCATE."""
    found = site.at_subscriber("SELECT relname::text, relfilenode::bigint FROM pg_class WHERE relkind = 'r'")
    return {name: file for name, file in found if name in _TABLES}


def _interrupt(site: Site, ranges: int, kind: Job = SNAPSHOT) -> None:
    with ChildJob(kind, site, f"{Failpoint.RANGE_COMMITTED}:{ranges}") as job:
        assert job.killed()


def _rest(site: Site, kind: Job = SNAPSHOT) -> JobResult:
    with ChildJob(kind, site) as job:
        taken = job.result()
    taken.raise_error()
    return taken


def _copied(taken: JobResult) -> list[str]:
    return sorted(it.article.split(".")[1] for it in taken.snapshot)


def _require_equal(site: Site) -> None:
    replicate_stored(site)
    assert site.differences() == []
    assert site.at_subscriber("SELECT count(*) FROM msreplication_snapshots WHERE range_number <> 0") == [(0,)]
    keys = (
        "SELECT count(*) FROM pg_index JOIN pg_class c ON c.oid = indrelid WHERE indisprimary AND relname ~ '^t[0-9]$'"
    )
    assert site.at_subscriber(keys) == [(len(_TABLES),)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["postgres", *SERVERS])
def test_tables_that_were_whole_are_not_copied_again_while_others_write(
    kind: str, request: pytest.FixtureRequest, databases: DatabasesFactory, tmp_path: Path
) -> None:
    ends = databases()
    if kind in SERVERS:
        server: MariaDbServer = request.getfixturevalue("publishing")(kind)
        ends = replace(ends, publisher=server.connection(new_mariadb_database(server), "publisher"))
    site = _site_of(ends, tmp_path)
    site.set_up()
    with _writing(site):
        files = [_files(site)]
        for ranges in (4, 3):
            # Tables grow while others write: by ranges of few pages, nobody knows how many tables are whole.
            _interrupt(site, ranges, SNAPSHOT_OF_WHOLE_TABLES)
            read_log_into_store(site).raise_error()
            clean_up(site.topology)
            files.append(_files(site))
        taken = _rest(site, SNAPSHOT_OF_WHOLE_TABLES)
        files.append(_files(site))
        read_log_into_store(site).raise_error()
        clean_up(site.topology)
    assert _copied(taken) == _TABLES[7:]
    assert [it for it in _TABLES if files[1][it] == files[3][it]] == _TABLES[:4]
    assert [it for it in _TABLES if files[2][it] == files[3][it]] == _TABLES[:7]
    assert all(it.rows for it in taken.snapshot)
    _require_equal(site)


def _terminated(_: PostgresServer, job: ChildJob) -> None:
    """As Airflow does to the job of a run that is cancelled."""
    job._signal(signal.SIGTERM)


def _restarted(server: PostgresServer, _: ChildJob) -> None:
    server.restart()


def _crashed(server: PostgresServer, _: ChildJob) -> None:
    server.kill()
    server.start()


@pytest.mark.slow
@pytest.mark.parametrize("end", ["publisher", "subscriber"])
@pytest.mark.parametrize("interrupt", [_terminated, _restarted, _crashed])
def test_a_job_that_is_ended_or_whose_server_restarts_leaves_whole_tables(
    interrupt: Callable[[PostgresServer, ChildJob], None],
    end: str,
    own_server: PostgresServer,
    databases: DatabasesFactory,
    tmp_path: Path,
) -> None:
    ends = databases()
    site = _site_of(replace(ends, **{end: own_server.connection("publisher", end)}), tmp_path)
    site.set_up()
    with ChildJob(SNAPSHOT, site, f"{Failpoint.RANGE_COMMITTED}:5/stop") as job:
        job.wait_until_it_stands_still()
        # Commits of ranges wait for no disk.
        site.at_subscriber("CHECKPOINT")
        interrupt(own_server, job)
        job.go_on()
        if interrupt is _terminated:
            assert not job.killed()
        else:
            job.result()
    _write(site, 1)
    # Where the snapshot lives on, the other tables were copied over new sessions before the job ended.
    outlived = end == "subscriber" and interrupt is not _terminated
    assert _copied(_rest(site)) == (["t5"] if outlived else _TABLES[5:])
    _require_equal(site)


@pytest.mark.slow
def test_what_is_reinitialized_or_altered_meanwhile_is_copied_again(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site_of(databases(), tmp_path, ddl=True)
    # Nobody has looked at the labels when all but this table were whole.
    site.at_publisher("CREATE TYPE mood AS ENUM ('a', 'b')", "ALTER TABLE t3 ADD COLUMN mood mood DEFAULT 'a'")
    site.set_up()
    _interrupt(site, 5)
    request = SnapshotRequest(publication=site.publication, subscription="reporting")
    _reinitialize_alone(site, "public.t0")
    site.at_publisher("ALTER TABLE t1 ADD COLUMN added int DEFAULT 5", "UPDATE t1 SET added = id")
    site.at_subscriber("DROP TABLE t2")
    _write(site, 2)
    read_log_into_store(site).raise_error()
    taken = _rest(site)
    assert _copied(taken) == [*_TABLES[:4], *_TABLES[5:]]
    _require_equal(site)
    # Of an active subscription, all of it in the middle.
    for seed, names in enumerate([("public.t0", "public.t1", "public.t2"), ()]):
        chosen = request.model_copy(update={"articles": names})
        mark_for_reinitialization(chosen, site.topology)
        _interrupt(site, 2)
        _write(site, 10 + seed)
        assert _copied(_rest(site)) == (["t2"] if names else _TABLES[2:])
        _require_equal(site)
    _interrupt_and_reinitialize(site, request)
    assert _copied(_rest(site)) == _TABLES
    _require_equal(site)


def _reinitialize_alone(site: Site, article: str) -> None:
    """Mark an article as the log reader does where the log does not say which rows a table has."""
    with site.topology.distributor() as database:
        record = database.publications.get("purchasing")
        database.snapshots.subscribe(database.subscriptions.get(record, "reporting"), [article], whole=False)


def _interrupt_and_reinitialize(site: Site, request: SnapshotRequest) -> None:
    mark_for_reinitialization(request, site.topology)
    _interrupt(site, 4)
    mark_for_reinitialization(request, site.topology)


_END_OF_HOLDER = """
SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE relation = 't9'::regclass AND pid IN
(SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'tranrepl snapshot %')
"""


def test_a_table_that_nobody_held_when_it_was_read_is_copied_again(site: Site) -> None:
    with ChildJob(SNAPSHOT, site, f"{Failpoint.RANGE_COMMITTED}:3/stop") as job:
        job.wait_until_it_stands_still()
        assert site.at_publisher(_END_OF_HOLDER) == [(1,)]
        site.at_publisher("TRUNCATE t7")
        job.go_on()
        assert job.result().error is not None
    assert _copied(_rest(site)) == ["t7"]
    _require_equal(site)


@pytest.mark.slow
def test_all_that_was_copied_is_only_built(site: Site) -> None:
    with ChildJob(SNAPSHOT, site, Failpoint.SNAPSHOT_LOADED) as job:
        assert job.killed()
    files = _files(site)
    _write(site, 4)
    assert _copied(_rest(site)) == []
    assert _files(site) == files
    _require_equal(site)


@pytest.mark.slow
@pytest.mark.parametrize("foreign_keys", [True, False])
def test_tables_that_foreign_keys_tie_are_copied_at_one_position(
    databases: DatabasesFactory, tmp_path: Path, foreign_keys: bool
) -> None:
    site = _site_of(databases(), tmp_path, keys=foreign_keys)
    if foreign_keys:
        site.at_publisher(
            "UPDATE t1 SET balance = 1",
            "ALTER TABLE t1 ADD FOREIGN KEY (balance) REFERENCES t8",
            "ALTER TABLE t0 ADD FOREIGN KEY (id) REFERENCES t1",
        )
    site.set_up()
    _interrupt(site, 4)
    assert _copied(_rest(site)) == (["t0", "t1", *_TABLES[4:]] if foreign_keys else _TABLES[4:])
    _require_equal(site)


@pytest.mark.slow
def test_a_job_that_stood_still_before_it_kept_tables_does_nothing_when_another_has_ended(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    _interrupt(site, 4)

    def chosen_while_another_ends(plan: OpenSnapshot, say: Callable[[str], None], *, ranges: bool) -> CopiedBefore:
        kept = copied_before(plan, say, ranges=ranges)
        _write(site, 5)
        assert _copied(_rest(site)) == _TABLES[4:]
        replicate_stored(site)
        return kept

    with monkeypatch.context() as patch:
        patch.setattr(initialization, "copied_before", chosen_while_another_ends)
        with pytest.raises(FencedError):
            site.take_snapshot()
    _write(site, 6)
    assert _copied(_rest(site)) == []
    _require_equal(site)


@pytest.mark.slow
def test_a_table_that_was_emptied_meanwhile_is_copied_again(site: Site) -> None:
    site.at_publisher("DELETE FROM t1")
    _interrupt(site, 4)
    site.at_subscriber("TRUNCATE t2")
    assert _copied(_rest(site)) == ["t2", *_TABLES[4:]]
    _require_equal(site)


@pytest.mark.slow
def test_a_snapshot_that_was_called_off_meanwhile_does_not_end_at_the_subscriber(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    _interrupt(site, 4)

    def reach(point: Failpoint) -> None:
        if point is Failpoint.SNAPSHOT_BEGUN:
            _reinitialize_alone(site, "public.t0")

    with monkeypatch.context() as patch:
        patch.setattr(initialization, "reach", reach)
        with pytest.raises(FencedError):
            site.take_snapshot()
    assert _copied(_rest(site)) == ["t0"]
    _require_equal(site)
