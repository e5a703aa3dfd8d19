"""The hand-over from snapshot to log, while others write: wherever it is killed, nothing is missing or comes twice."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import psycopg
import pytest

from conftest import DatabasesFactory
from support.child_job import SNAPSHOT, ChildJob
from support.databases import Databases
from support.embedded_postgres import PostgresServer
from support.equality import differing_rows
from support.in_process import read_log_into_store, replicate_stored
from support.mariadb import MariaDbServer
from support.publishers import SERVERS, new_mariadb_database
from support.site import Site
from support.snapshot_site import automatic_site
from support.spark_here import SparkHere
from tranrepl.admin.cleanup import clean_up
from tranrepl.distributor.database import DistributionDatabase
from tranrepl.distributor.tables import SubscriptionStatus
from tranrepl.errors import ReplicationError
from tranrepl.failpoint import Failpoint
from tranrepl.jobs.requests import SnapshotRequest
from tranrepl.snapshot.reinitialization import mark_for_reinitialization

_ACCOUNTS = 3000
_TABLE = "CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL, filler text NOT NULL)"
_AUDIT = """
CREATE TABLE doubled (id int);
CREATE FUNCTION note_doubled() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM account WHERE id = NEW.id) THEN INSERT INTO doubled VALUES (NEW.id); END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER audit BEFORE INSERT ON account FOR EACH ROW EXECUTE FUNCTION note_doubled();
"""


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    """Return a site with an account table of some ten ranges, and an audit of rows that come twice."""
    return _account_site(databases(), tmp_path)


@pytest.fixture(params=["postgres", *SERVERS])
def site_of_each_kind(request: pytest.FixtureRequest, databases: DatabasesFactory, tmp_path: Path) -> Site:
    """Return the same for each kind of Publisher. The table is one range at MariaDB."""
    ends = databases()
    if request.param in SERVERS:
        server: MariaDbServer = request.getfixturevalue("publishing")(request.param)
        ends = replace(ends, publisher=server.connection(new_mariadb_database(server), "publisher"))
    return _account_site(ends, tmp_path)


def _account_site(ends: Databases, tmp_path: Path) -> Site:
    schema = "public" if ends.publisher.kind == "postgres" else ends.publisher.database
    article = {"source": f"{schema}.account", "destination": "public.account", "pre_creation_cmd": "truncate"}
    site = automatic_site(ends, tmp_path, [article])
    rows = ", ".join(f"({n}, 0, repeat('x', 40))" for n in range(1, _ACCOUNTS + 1))
    site.at_publisher(_TABLE, f"INSERT INTO account VALUES {rows}")
    site.set_up()
    site.at_subscriber(_AUDIT)
    return site


def _mariadb_transaction(random: Random) -> list[str]:
    """Return what `_write` does, for MariaDB."""
    old, new = random.randint(1, _ACCOUNTS), random.randint(_ACCOUNTS, 100_000)
    return [
        "BEGIN",
        f"UPDATE account SET balance = balance + 1 WHERE id BETWEEN {old} AND {old + 20}",
        f"UPDATE IGNORE account SET id = {new} WHERE id = {old + 5}",
        f"DELETE FROM account WHERE id = {old + 7}",
        f"INSERT IGNORE INTO account VALUES ({old + 7}, 1, 'y')",
        "COMMIT",
    ]


def _write(session: psycopg.Connection[tuple[object, ...]], random: Random) -> None:
    """Commit one transaction that changes, moves, removes and adds rows."""
    old, new = random.randint(1, _ACCOUNTS), random.randint(_ACCOUNTS, 100_000)
    with session.transaction():
        session.execute("UPDATE account SET balance = balance + 1 WHERE id BETWEEN %s AND %s + 20", [old, old])
        session.execute(
            "UPDATE account SET id = %s WHERE id = %s AND NOT EXISTS (SELECT FROM account WHERE id = %s)",
            [new, old + 5, new],
        )
        session.execute("DELETE FROM account WHERE id = %s", [old + 7])
        session.execute("INSERT INTO account VALUES (%s, 1, 'y') ON CONFLICT DO NOTHING", [old + 7])


@contextmanager
def _writers(site: Site, count: int) -> Iterator[list[int]]:
    """Write without a pause; transactions so far, by writer."""
    over, written = threading.Event(), [0] * count

    def work(number: int) -> None:
        random = Random(number)
        with psycopg.connect(**site.databases.publisher.libpq_parameters("writer"), autocommit=True) as session:  # type: ignore[arg-type]
            while not over.is_set():
                try:
                    _write(session, random)
                    written[number] += 1
                except (psycopg.errors.DeadlockDetected, psycopg.errors.UniqueViolation):
                    pass

    with ThreadPoolExecutor(count) as executor:
        working = [executor.submit(work, number) for number in range(count)]
        try:
            yield written
        finally:
            over.set()
        for it in working:
            it.result()


_PGBENCH_ARTICLES = (
    {"source": "public.pgbench_accounts", "pre_creation_cmd": "truncate", "order": "own_article"},
    {"source": "public.pgbench_branches"},
    {"source": "public.pgbench_tellers"},
    {"source": "public.pgbench_history", "pre_creation_cmd": "truncate", "order": "own_article"},
)
# Of keys: an odd account's changes its sign, an even account goes and comes back.
_KEY_CHANGES = r"""
\set aid 2 * random(1, 50000) - 1
UPDATE pgbench_accounts SET aid = -aid, abalance = abalance + 1 WHERE aid IN (:aid, -:aid);
\set aid 2 * random(1, 50000)
BEGIN;
DELETE FROM pgbench_accounts WHERE aid = :aid;
INSERT INTO pgbench_accounts VALUES (:aid, 1, 7, 'again') ON CONFLICT DO NOTHING;
END;
"""
# Nothing there keeps a row from coming twice, and all that comes is written down.
_PGBENCH_AUDIT = """
CREATE TABLE pgbench_accounts (aid int, bid int, abalance int, filler char(84));
CREATE INDEX ON pgbench_accounts (aid);
CREATE TABLE pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22), hid bigint);
CREATE TABLE doubled (id bigint);
CREATE TABLE arrived (hid bigint);
CREATE FUNCTION note_doubled() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM pgbench_accounts WHERE aid = NEW.aid) THEN INSERT INTO doubled VALUES (NEW.aid); END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION note_arrived() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN INSERT INTO arrived SELECT hid FROM came; RETURN NULL; END $$;
CREATE TRIGGER audit BEFORE INSERT ON pgbench_accounts FOR EACH ROW EXECUTE FUNCTION note_doubled();
CREATE TRIGGER audit AFTER INSERT ON pgbench_history REFERENCING NEW TABLE AS came
    FOR EACH STATEMENT EXECUTE FUNCTION note_arrived();
"""
_ROUNDS = 4


@contextmanager
def _pgbench(server: PostgresServer, database: str, script: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run TPC-B at full speed by two clients; one transaction in six changes keys."""
    options = ("--no-vacuum", "--client=2", "--time=3600", "--random-seed=6", "--builtin=tpcb-like@5")
    with server.started("pgbench", *options, f"--file={script}@1", database=database) as process:
        yield process


@pytest.mark.slow
def test_pgbench_runs_through_snapshot_four_rounds_and_validation(
    databases: DatabasesFactory, postgres: PostgresServer, tmp_path: Path
) -> None:
    site = automatic_site(databases(), tmp_path, _PGBENCH_ARTICLES)
    publisher = site.databases.publisher.database or ""
    postgres.run("pgbench", "--initialize", "--init-steps=dtgp", "--quiet", database=publisher)
    site.at_publisher("ALTER TABLE pgbench_history ADD COLUMN hid bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY")
    site.at_subscriber(_PGBENCH_AUDIT)
    site.set_up()
    script = tmp_path / "keys.sql"
    script.write_text(_KEY_CHANGES, encoding="utf-8")

    with _pgbench(postgres, publisher, script) as load:
        time.sleep(0.5)
        with ChildJob(SNAPSHOT, site) as job:
            taken = job.result()
        assert taken.error is None
        copied = {it.article: it.rows for it in taken.snapshot}
        assert copied["public.pgbench_history"] > 0
        site.spark = SparkHere()
        delivered = [site.run().commands for _ in range(_ROUNDS)]
        validated = site.validate()
        assert load.poll() is None
    assert min(delivered) > 100
    assert validated.error is None, validated
    assert validated.validation is not None
    assert [it.equal for it in validated.validation.articles] == [True] * len(_PGBENCH_ARTICLES)

    site.run()
    assert differing_rows(site) == {}
    assert site.at_publisher("SELECT count(*) FROM pgbench_accounts WHERE aid < 0 OR filler LIKE 'again%'") > [(100,)]
    assert site.at_subscriber("SELECT count(*) FROM doubled") == [(0,)]
    assert site.at_subscriber("SELECT count(*), count(DISTINCT hid) FROM arrived") == site.at_publisher(
        "SELECT count(*), count(*) FROM pgbench_history"
    )


def _write_some(site: Site, seed: int) -> None:
    random = Random(seed)
    if site.databases.publisher.kind != "postgres":
        site.at_publisher(*(it for _ in range(5) for it in _mariadb_transaction(random)))
        return
    with psycopg.connect(**site.databases.publisher.libpq_parameters("writer"), autocommit=True) as session:  # type: ignore[arg-type]
        for _ in range(5):
            _write(session, random)


def _status(site: Site) -> SubscriptionStatus:
    with DistributionDatabase(site.databases.distribution) as database:
        return database.subscriptions.get(database.publications.get("purchasing"), "reporting").status


def _deliver(site: Site) -> None:
    replicate_stored(site)


def _require_equal(site: Site) -> None:
    assert site.differences() == []
    assert site.at_subscriber("SELECT count(*) FROM doubled") == [(0,)]
    assert site.at_subscriber("SELECT count(*) FROM pg_index WHERE indrelid = 'account'::regclass") == [(1,)]


@pytest.mark.slow
def test_writers_do_not_pause(site: Site) -> None:
    with _writers(site, 2) as written:
        with ChildJob(SNAPSHOT, site) as job:
            taken = job.result()
        assert taken.error is None
        for _ in range(4):
            _deliver(site)
            time.sleep(0.1)
    assert min(written) > 10
    _deliver(site)
    _require_equal(site)


_BEFORE_ACTIVE = (
    Failpoint.SNAPSHOT_INITIATED,
    Failpoint.SNAPSHOT_EXPORTED,
    Failpoint.SNAPSHOT_BEGUN,
    Failpoint.RANGE_LOADED,
    Failpoint.RANGE_COMMITTED,
    Failpoint.SNAPSHOT_LOADED,
    Failpoint.SNAPSHOT_ENDED,
)


@pytest.mark.slow
def test_killed_anywhere_it_begins_again_and_is_never_active_by_halves(site_of_each_kind: Site) -> None:
    site = site_of_each_kind
    has_ranges = site.databases.publisher.kind == "postgres"
    for seed, point in enumerate([*_BEFORE_ACTIVE, Failpoint.SNAPSHOT_ACTIVATED]):
        mark_for_reinitialization(
            SnapshotRequest(publication=site.publication, subscription="reporting"), site.topology
        )
        with ChildJob(SNAPSHOT, site, f"{point}:3" if has_ranges and point.startswith("range") else point) as job:
            assert job.killed(), point
        _write_some(site, seed)
        read_log_into_store(site).raise_error()
        clean_up(site.topology)
        if point is not Failpoint.SNAPSHOT_ACTIVATED:
            assert _status(site) is SubscriptionStatus.INITIATED, point
            with pytest.raises(ReplicationError, match="not yet available"):
                site.deliver()
            with ChildJob(SNAPSHOT, site) as job:
                assert job.result().error is None, point
        assert _status(site) is SubscriptionStatus.ACTIVE
        _deliver(site)
        _require_equal(site)


_RACES = (
    Failpoint.SNAPSHOT_INITIATED,
    Failpoint.SNAPSHOT_BEGUN,
    Failpoint.RANGE_COMMITTED,
    Failpoint.SNAPSHOT_LOADED,
    Failpoint.SNAPSHOT_ENDED,
)


def test_writes_at_each_race_point_arrive_once(site: Site) -> None:
    for seed, point in enumerate(_RACES):
        mark_for_reinitialization(
            SnapshotRequest(publication=site.publication, subscription="reporting"), site.topology
        )
        with (
            psycopg.connect(**site.databases.publisher.libpq_parameters("open")) as still_open,  # type: ignore[arg-type]
            ChildJob(SNAPSHOT, site, f"{point}{':3' if point.startswith('range') else ''}/stop") as job,
        ):
            if point is not Failpoint.SNAPSHOT_INITIATED:
                job.wait_until_it_stands_still()
            # A transaction that begins at this point, and commits when all is over.
            still_open.execute("INSERT INTO account VALUES (%s, 2, 'z')", [200_000 + seed])
            _write_some(site, 100 + seed)
            read_log_into_store(site).raise_error()
            clean_up(site.topology)
            if point is Failpoint.SNAPSHOT_INITIATED:
                job.wait_until_it_stands_still()
                still_open.execute("PREPARE TRANSACTION 'open'")
                threading.Timer(1.5, lambda: site.at_publisher("COMMIT PREPARED 'open'")).start()
            job.go_on()
            assert job.result().error is None, point
        _deliver(site)
        _require_equal(site)
