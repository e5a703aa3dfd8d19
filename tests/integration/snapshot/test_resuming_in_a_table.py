"""A snapshot that was interrupted within a table goes on with the ranges of keys that were not copied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from conftest import DatabasesFactory
from support.child_job import SNAPSHOT_OF_KEY_RANGES, ChildJob
from support.databases import Databases
from support.embedded_postgres import PostgresServer
from support.in_process import read_log_into_store, replicate_stored
from support.mariadb import MariaDbServer
from support.publishers import SERVERS, new_mariadb_database
from support.site import Site, content, execute
from tranrepl.admin.cleanup import clean_up
from tranrepl.failpoint import Failpoint
from tranrepl.jobs.requests import SnapshotRequest
from tranrepl.publisher.snapshot import TableRange
from tranrepl.snapshot import copying, without_spark
from tranrepl.snapshot.copying import CopiedRange, RangeCopy
from tranrepl.snapshot.job import OnSpark
from tranrepl.snapshot.reinitialization import mark_for_reinitialization

_ROWS = 4000
_TABLES = {
    "account": "id bigint PRIMARY KEY, code int UNIQUE, note varchar(60)",
    "entry": "id int, part varchar(20), code int, note varchar(60), PRIMARY KEY (id, part)",
}


@dataclass
class _World:
    """Random transactions, and the ranges that jobs have committed."""

    site: Site
    random: Random
    code: int = _ROWS

    def write(self, transactions: int) -> None:
        """Add, change and remove rows, move keys to other ranges, and let rows exchange unique values."""
        self.site.at_publisher(*(it for _ in range(transactions) for it in self._transaction()))

    def _transaction(self) -> list[str]:
        random, self.code = self.random, self.code + 3
        at, other = random.sample(range(1, _ROWS + 200), 2)
        code, new = self.code, random.choice([random.randint(1, _ROWS), random.randint(-500, 3 * _ROWS)])
        add = "ON CONFLICT DO NOTHING" if self.site.databases.publisher.kind == "postgres" else ""
        ignore = "" if add else "IGNORE"
        return [
            "BEGIN",
            *random.choice(
                [
                    [f"UPDATE account SET note = 'n{code}' WHERE id BETWEEN {at} AND {at + 9}"],
                    [f"DELETE FROM account WHERE id IN ({at}, {at + 1})", f"DELETE FROM entry WHERE id = {other}"],
                    [
                        f"INSERT {ignore} INTO account VALUES ({new}, {code}, 'a'), ({other}, {code + 1}, 'b') {add}",
                        f"INSERT {ignore} INTO entry VALUES ({new}, 'tab\t\\\\x{code}', 1, 'a') {add}",
                    ],
                    [
                        f"DELETE FROM account WHERE id = {new}",
                        f"UPDATE account SET id = {new}, note = 'moved' WHERE id = {at}",
                        f"UPDATE entry SET part = 'moved{code}' WHERE id = {at}",
                        f"UPDATE entry SET id = {new} WHERE id = {other} AND part LIKE 'p%'",
                    ],
                    [
                        f"UPDATE account SET code = -{code} WHERE id = {at}",
                        f"UPDATE account SET code = -{code} - 1 WHERE id = {other}",
                        f"UPDATE account SET code = {code} WHERE id = {other}",
                    ],
                ]
            ),
            random.choice(["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"]),
            # By itself it stays an UPDATE, and what is unchanged of the key does not travel.
            f"UPDATE entry SET id = {-code} WHERE id = {random.randint(1, _ROWS)}",
        ]

    def interrupt(self, point: str) -> bool:
        """Take the snapshot up to a failpoint; return whether it was reached."""
        with ChildJob(SNAPSHOT_OF_KEY_RANGES, self.site, point) as job:
            killed = job.killed()
            if not killed:
                job.result().raise_error()
        return killed

    def loaded(self) -> dict[str, int]:
        """Return by article how many ranges are committed."""
        query = "SELECT article, count(*) FROM msreplication_snapshots WHERE range_number <> 0 GROUP BY article"
        return {str(name): int(count) for name, count in execute(self.site.databases.subscriber, query)}

    def require_equal(self) -> None:
        """Take the rest of the snapshot, deliver, and compare both ends."""
        with ChildJob(SNAPSHOT_OF_KEY_RANGES, self.site) as job:
            job.result().raise_error()
        self.write(20)
        replicate_stored(self.site)
        ends = self.site.databases
        for it in self.site.publication.articles:
            assert content(ends.subscriber, it.destination_table) == content(ends.publisher, it.source), it.source


def _world(ends: Databases, tmp_path: Path, seed: int, *, foreign_keys: bool = False) -> _World:
    schema = "public" if ends.publisher.kind == "postgres" else ends.publisher.database
    there = "public" if ends.subscriber.kind == "postgres" else ends.subscriber.database
    articles = [
        {"source": f"{schema}.{it}", "destination": f"{there}.{it}", "pre_creation_cmd": "truncate"} for it in _TABLES
    ]
    articles[1]["update_policy"] = "singleton_update"
    subscription = {
        "name": "reporting",
        "connection": "subscriber",
        "sync_type": "automatic",
        "foreign_keys": foreign_keys,
    }
    site = Site(ends, tmp_path / "store", articles, subscriptions=[subscription], replicate_ddl=False)
    for name, columns in _TABLES.items():
        key = "{n}, {n}" if name == "account" else "{n}, 'p{n}', {n}"
        rows = ", ".join(
            f"({key}, 'some text of a row')".format(n=n) for n in range(1, _ROWS if name == "entry" else _ROWS // 2)
        )
        site.at_publisher(f"CREATE TABLE {name} ({columns})", f"INSERT INTO {name} VALUES {rows}")
        if ends.publisher.kind != "postgres":
            site.at_publisher(f"ANALYZE TABLE {name}")
    if foreign_keys:
        site.at_publisher(f"DELETE FROM entry WHERE id >= {_ROWS // 2}")
        site.at_publisher("ALTER TABLE entry ADD FOREIGN KEY (id) REFERENCES account (id)")
    site.set_up()
    return _World(site, Random(seed))


_KINDS = [("postgres", "postgres"), ("mariadb", "postgres"), ("postgres", "mariadb"), ("mysql-9.7", "mariadb")]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("publisher", "subscriber"), _KINDS)
def test_ranges_that_were_copied_are_not_copied_again_and_show_one_point(
    publisher: str,
    subscriber: str,
    seed: int,
    request: pytest.FixtureRequest,
    databases: DatabasesFactory,
    tmp_path: Path,
) -> None:
    ends = databases()
    if publisher in SERVERS:
        server: MariaDbServer = request.getfixturevalue("publishing")(publisher)
        ends = replace(ends, publisher=server.connection(new_mariadb_database(server), "publisher"))
    if subscriber != "postgres":
        server = request.getfixturevalue("publishing")("mariadb")
        ends = replace(ends, subscriber=server.connection(new_mariadb_database(server), "subscriber"))
    world = _world(ends, tmp_path, seed)
    site, random = world.site, world.random
    before: dict[str, int] = {}
    for _ in range(3):
        ranges = random.randint(4, 11)
        point = random.choice(
            [
                f"{Failpoint.RANGE_COMMITTED}:{ranges}",
                f"{Failpoint.RANGE_LOADED}:{ranges + 1}",
                Failpoint.RANGES_BROUGHT_FORWARD,
            ]
        )
        first = not before
        if first:
            point = f"{Failpoint.RANGE_COMMITTED}:{ranges}"
        if not world.interrupt(point):
            # There were fewer ranges left.
            assert not first
            break
        copied = 0 if point == Failpoint.RANGES_BROUGHT_FORWARD else ranges
        now = world.loaded()
        assert sum(now.values()) == sum(before.values()) + copied, (point, before, now)
        before = now
        world.write(random.choice([0, 40]))
        if random.random() < 0.5:
            read_log_into_store(site).raise_error()
            clean_up(site.topology)
            world.write(20)
    else:
        assert world.interrupt(Failpoint.SNAPSHOT_LOADED)
        world.write(20)
        assert not world.interrupt(Failpoint.RANGE_COMMITTED)
    world.require_equal()


@pytest.mark.slow
def test_what_cannot_be_brought_forward_is_copied_again(
    databases: DatabasesFactory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    world = _world(databases(), tmp_path, 3)
    site = world.site
    request = SnapshotRequest(publication=site.publication, subscription="reporting")
    assert world.interrupt(f"{Failpoint.RANGE_COMMITTED}:4")
    site.at_publisher("TRUNCATE account", "INSERT INTO account SELECT n, n, 'new' FROM generate_series(1, 2000) n")
    assert world.interrupt(f"{Failpoint.RANGE_COMMITTED}:2")
    assert world.loaded() == {"public.account": 2}
    site.at_publisher("INSERT INTO account SELECT n, n, 'many' FROM generate_series(20001, 30001) n")
    assert world.interrupt(f"{Failpoint.RANGE_COMMITTED}:3")
    assert world.loaded() == {"public.account": 3}
    site.at_subscriber("TRUNCATE account")
    assert world.interrupt(f"{Failpoint.RANGE_COMMITTED}:1")
    assert world.loaded() == {"public.account": 1}
    mark_for_reinitialization(request, site.topology)
    assert world.interrupt(f"{Failpoint.RANGE_COMMITTED}:2")
    assert world.loaded() == {"public.account": 2}
    tied = _world(databases(), tmp_path / "tied", 3, foreign_keys=True)
    for ranges in (3, 1):
        assert tied.interrupt(f"{Failpoint.RANGE_COMMITTED}:{ranges}")
        assert tied.loaded() == {"public.account": ranges}
    # Small tables are copied without a look at the log.
    assert world.interrupt(f"{Failpoint.RANGE_COMMITTED}:2")
    for it in (tied, world):
        it.site.take_snapshot().raise_error()
    again = "article public.account: copied by an interrupted snapshot, and copied again: "
    said = [it.removeprefix(again) for it in caplog.messages if it.startswith(again)]
    assert said == [
        "a foreign key refers to or from a table that is copied now",
        "it was not whole, and which of its rows have changed since is not looked for",
    ]
    world.require_equal()


@pytest.mark.slow
def test_a_server_that_crashes_and_a_job_on_spark_that_goes_on(
    own_server: PostgresServer,
    databases: DatabasesFactory,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log reader of the second job runs in its Spark session."""
    world = _world(replace(databases(), subscriber=own_server.connection("publisher", "subscriber")), tmp_path, 4)
    with ChildJob(SNAPSHOT_OF_KEY_RANGES, world.site, f"{Failpoint.RANGE_LOADED}:6/stop") as job:
        job.wait_until_it_stands_still()
        # Commits of ranges wait for no disk.
        world.site.at_subscriber("CHECKPOINT")
        own_server.kill()
    own_server.start()
    assert world.loaded() == {"public.account": 5}
    world.write(50)
    committed: list[int] = []
    monkeypatch.setattr(OnSpark, "__call__", _counting(OnSpark.__call__, committed))
    monkeypatch.setattr(without_spark, "SMALL_BYTES", 0)
    for name in ("SMALLEST_RANGE", "LARGEST_RANGE"):
        monkeypatch.setattr(copying, name, 16_384)
    (ranges,) = execute(
        world.site.databases.subscriber,
        "SELECT range_count FROM msreplication_snapshots WHERE article = 'public.account' AND range_number = 0",
    )
    world.site.spark = spark
    world.site.take_snapshot().raise_error()
    # Nobody can send it to a child.
    world.site.spark = None
    assert committed[0] == int(str(ranges[0])) - 5
    world.require_equal()


def _counting(call: Callable[..., list[CopiedRange]], committed: list[int]) -> Callable[..., list[CopiedRange]]:
    def counted(self: OnSpark, copy: RangeCopy, ranges: Sequence[TableRange]) -> list[CopiedRange]:
        committed.append(sum(it.name == "public.account" for it in ranges))
        return call(self, copy, ranges)

    return counted
