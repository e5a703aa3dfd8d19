"""The initial snapshot: what a subscription begins with, and the hand-over to the log."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from conftest import DatabaseFactory, DatabasesFactory
from support.child_job import SNAPSHOT, ChildJob
from support.embedded_postgres import PostgresServer
from support.in_process import deliver_stored, read_log_into_store
from support.shell import in_a_terminal, publication_file, typed
from support.site import Site, execute
from tranrepl.admin.check import check
from tranrepl.admin.cleanup import clean_up
from tranrepl.admin.reinitialization import reinitialize
from tranrepl.admin.status import status
from tranrepl.errors import ConfigurationError
from tranrepl.failpoint import Failpoint
from tranrepl.jobs.requests import SnapshotRequest
from tranrepl.publisher.postgres.lsn import lsn_number
from tranrepl.publisher.snapshot import TableRange
from tranrepl.settings.publication import Publication
from tranrepl.snapshot import agent, job, ranges
from tranrepl.snapshot.copying import CopiedRange, RangeCopy
from tranrepl.snapshot.reinitialization import mark_for_reinitialization
from tranrepl.topology import Topology

_TABLES = """
CREATE TABLE vendor (vendor_id int PRIMARY KEY, name text UNIQUE, rating int, note text);
CREATE TABLE orders (order_id int PRIMARY KEY, vendor_id int NOT NULL REFERENCES vendor, total numeric);
"""


def automatic_site(
    databases: DatabasesFactory, tmp_path: Path, articles: Sequence[Mapping[str, object] | str], **subscription: object
) -> Site:
    """With one subscription, which takes a snapshot. No table is there."""
    settings = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic", **subscription}
    return Site(databases(), tmp_path / "store", articles, subscriptions=[settings])


def _site(
    databases: DatabasesFactory,
    tmp_path: Path,
    articles: Sequence[Mapping[str, object] | str] = ("public.vendor", "public.orders"),
) -> Site:
    site = automatic_site(databases, tmp_path, articles)
    site.at_publisher(
        _TABLES,
        "INSERT INTO vendor SELECT n, 'v' || n, n % 5, CASE WHEN n % 3 > 0 THEN E'tab\\tline\\n\\\\ \\b\\f\\v' END "
        "FROM generate_series(1, 500) n",
        "INSERT INTO orders SELECT n, n % 500 + 1, n / 7.0 FROM generate_series(1, 2000) n",
    )
    return site


def _deliver(site: Site) -> None:
    read_log_into_store(site).raise_error()
    deliver_stored(site).raise_error()


def _state(site: Site) -> str | None:
    return status(site.topology).subscriptions[0].state


def test_rows_come_by_snapshot_and_changes_by_the_log(
    databases: DatabasesFactory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tranrepl.snapshot")
    site = _site(databases, tmp_path)
    site.set_up()
    site.at_publisher("UPDATE vendor SET rating = 9 WHERE vendor_id = 1")
    read_log_into_store(site).raise_error()
    with pytest.raises(ConfigurationError, match="snapshot of subscription reporting is not yet available"):
        site.deliver()
    taken = site.take_snapshot()
    assert [(it.article, it.rows, it.share) for it in taken.snapshot] == [
        ("public.vendor", 500, 1.0),
        ("public.orders", 2000, 1.0),
    ]
    assert re.search(r"public\.vendor: 500 rows, \d+ bytes in 0\.\d s, \d+ bytes/s", caplog.text)
    assert site.differences() == []
    site.at_publisher(
        "UPDATE vendor SET vendor_id = vendor_id + 1000 WHERE vendor_id > 490 AND vendor_id NOT IN "
        "(SELECT vendor_id FROM orders)",
        "DELETE FROM orders WHERE order_id < 50",
    )
    _deliver(site)
    assert site.differences() == []
    assert site.take_snapshot().snapshot == ()
    # As a Subscriber does that was restored from a backup of before.
    site.at_subscriber("UPDATE msreplication_subscriptions SET transaction_timestamp = '\\x0000000000000000'")
    with pytest.raises(ConfigurationError, match="before the snapshot that it began with"):
        site.deliver()
    assert site.at_subscriber("SELECT count(*) FROM msreplication_snapshots WHERE range_number <> 0") == [(0,)]


def test_a_subscriber_that_does_not_analyse_by_itself_has_statistics(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases, tmp_path, ["public.vendor"])
    database = site.databases.subscriber.database
    # What autovacuum goes by; itself it is the whole server's.
    site.at_subscriber(f'ALTER DATABASE "{database}" SET track_counts = off')
    site.set_up()
    site.take_snapshot()
    assert site.at_subscriber("SELECT count(*) FROM pg_stats WHERE tablename = 'vendor'") == [(4,)]


@pytest.mark.parametrize("command", ["none", "drop", "delete", "truncate"])
def test_pre_creation_cmd(databases: DatabasesFactory, tmp_path: Path, command: str) -> None:
    articles = [{"source": "public.vendor", "filter": "vendor.rating > 1", "pre_creation_cmd": command}]
    site = _site(databases, tmp_path, articles)
    site.at_subscriber(
        "CREATE TABLE vendor (note text, vendor_id int PRIMARY KEY, name text, rating int, own int DEFAULT 7)",
        "INSERT INTO vendor VALUES ('theirs', 9000, 'x', 0), ('theirs', 3, 'y', 3)",
    )
    if command == "none":
        with pytest.raises(ConfigurationError, match="holds rows") as refusal:
            site.set_up()
        assert "delete, truncate or drop" in str(refusal.value)
        site.at_subscriber("ALTER TABLE vendor RENAME TO before")
        site.set_up()
        site.at_subscriber("DROP TABLE vendor", "ALTER TABLE before RENAME TO vendor")
        with pytest.raises(ConfigurationError, match="holds rows"):
            site.take_snapshot()
        assert site.at_subscriber("SELECT count(*) FROM vendor") == [(2,)]
        site.at_subscriber("DELETE FROM vendor")
    site.set_up()
    site.take_snapshot()
    ((total, theirs),) = site.at_subscriber("SELECT count(*), count(*) FILTER (WHERE note = 'theirs') FROM vendor")
    ((own,),) = site.at_subscriber(
        "SELECT count(*) FROM pg_attribute WHERE attrelid = 'vendor'::regclass AND attname = 'own'"
    )
    assert (total, theirs, own) == (300 + (command == "delete"), int(command == "delete"), int(command != "drop"))
    assert site.at_publisher("SELECT count(*) FROM vendor WHERE rating > 1") == [(300,)]


def test_rows_in_the_way_are_told_by_check(databases: DatabasesFactory, tmp_path: Path) -> None:
    """Of what a snapshot would be taken of, and of nothing else."""
    site = _site(databases, tmp_path, ["public.vendor"])

    def told(*sources: str, **subscription: object) -> list[str | None]:
        settings = site.publication.model_dump(mode="json")
        first = {**settings["subscriptions"][0], **subscription}
        changed = {"articles": [{"source": it} for it in sources], "subscriptions": [first]}
        other = Publication.model_validate({**settings, **changed})
        problems = check(Topology(other, site.connections)).problems
        assert all("holds rows" in it.message for it in problems), problems
        return [it.report.article for it in problems]

    site.at_subscriber(_TABLES, "INSERT INTO vendor VALUES (1)", "INSERT INTO orders VALUES (1, 1)")
    assert told("public.vendor", "public.orders") == ["public.vendor", "public.orders"]
    assert told("public.vendor", "public.orders", sync_type="replication_support_only") == []
    site.at_subscriber("TRUNCATE vendor CASCADE", "ALTER TABLE orders DROP CONSTRAINT orders_vendor_id_fkey")
    site.set_up()
    site.take_snapshot()
    site.at_subscriber("INSERT INTO orders VALUES (1, 1)")
    assert told("public.vendor", "public.orders") == ["public.orders"]


def _with_articles(site: Site, *sources: str) -> Site:
    articles = [{"source": source, "pre_creation_cmd": "truncate"} for source in sources]
    settings = site.publication.model_dump(mode="json")
    site.publication = Publication.model_validate({**settings, "articles": articles})
    return site


def test_an_article_that_joins_is_copied_alone_and_loses_nothing(
    databases: DatabasesFactory, tmp_path: Path, spark: Any
) -> None:
    site = _site(databases, tmp_path, ["public.vendor"])
    site.spark = spark
    site.set_up()
    site.take_snapshot()
    # Setup would wait for the open writer before it altered the table.
    site.at_publisher("UPDATE vendor SET rating = 1 WHERE vendor_id < 10", "ALTER TABLE orders REPLICA IDENTITY FULL")
    with psycopg.connect(**site.databases.publisher.libpq_parameters("open")) as still_open:  # type: ignore[arg-type]
        still_open.execute("INSERT INTO orders VALUES (5000, 1, 1)")
        _with_articles(site, "public.vendor", "public.orders").set_up()
        site.at_publisher("UPDATE orders SET total = 0 WHERE order_id < 10")
        read_log_into_store(site).raise_error()
        # The article's commands are left out until its snapshot is there, the others' are not.
        site.deliver().raise_error()
        assert site.at_subscriber("SELECT count(*) FROM vendor WHERE rating = 1 AND vendor_id < 10") == [(9,)]
        assert site.at_subscriber("SELECT count(*) FROM orders") == [(0,)]
        threading.Timer(0.5, still_open.commit).start()
        taken = site.take_snapshot()
    assert [(it.article, it.rows) for it in taken.snapshot] == [("public.orders", 2001)]
    site.at_publisher(
        "UPDATE orders SET order_id = order_id + 10000 WHERE order_id BETWEEN 100 AND 200",
        "UPDATE vendor SET note = 'later' WHERE vendor_id = 3",
        "DELETE FROM orders WHERE order_id = 5000",
    )
    # Commands that the snapshot has in it are stored only now.
    read_log_into_store(site).raise_error()
    site.deliver().raise_error()
    assert site.differences() == []
    assert site.deliver().commands == 0

    site.at_publisher("INSERT INTO orders VALUES (6000, 1, 1)")
    _with_articles(site, "public.vendor").set_up()
    site.at_publisher("UPDATE vendor SET note = 'alone'", "INSERT INTO orders VALUES (6001, 1, 1)")
    read_log_into_store(site).raise_error()
    deliver_stored(site).raise_error()
    assert site.differences() == []
    assert site.at_subscriber("SELECT count(*) FROM orders WHERE order_id IN (6000, 6001)") == [(0,)]


def test_a_subscriber_of_before_an_articles_snapshot_is_known(
    databases: DatabasesFactory, postgres: PostgresServer, tmp_path: Path
) -> None:
    site = _site(databases, tmp_path, ["public.vendor"])
    site.set_up()
    site.take_snapshot()
    subscriber = site.databases.subscriber.database or ""
    with postgres.connect() as server:
        server.execute(f'CREATE DATABASE before_join TEMPLATE "{subscriber}"')
    _with_articles(site, "public.vendor", "public.orders").set_up()
    site.take_snapshot()
    with postgres.connect() as server:
        server.execute(f'CREATE DATABASE after_join TEMPLATE "{subscriber}"')
    site.at_publisher("DELETE FROM orders WHERE order_id < 50", "UPDATE vendor SET rating = 9 WHERE vendor_id = 1")
    _deliver(site)

    _restore(postgres, subscriber, "after_join")
    deliver_stored(site).raise_error()
    assert site.differences() == []

    _restore(postgres, subscriber, "before_join")
    with pytest.raises(ConfigurationError, match="does not know the snapshot"):
        deliver_stored(site)
    with pytest.raises(ConfigurationError, match="does not know the snapshot") as refusal:
        site.deliver()
    assert refusal.value.report.number == "21074"
    assert "reinitialize FILE -s reporting --article public.orders" in (refusal.value.report.remedy or "")
    assert site.at_subscriber("SELECT rating FROM vendor WHERE vendor_id = 1") == [(1,)]
    site.set_up()
    request = SnapshotRequest(publication=site.publication, subscription="reporting", articles=("public.orders",))
    mark_for_reinitialization(request, site.topology)
    site.take_snapshot()
    deliver_stored(site).raise_error()
    assert site.differences() == []


def test_rows_loaded_by_hand_take_the_place_of_snapshots(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases, tmp_path)
    site.set_up()
    site.take_snapshot()
    # As in another database, where somebody has loaded the same rows.
    site.at_subscriber("DELETE FROM msreplication_snapshots")
    settings = site.publication.model_dump(mode="json")
    by_hand = {**settings["subscriptions"][0], "sync_type": "replication_support_only"}
    site.publication = Publication.model_validate({**settings, "subscriptions": [by_hand]})
    with pytest.raises(ConfigurationError, match="does not know the snapshot"):
        site.deliver()
    read_log_into_store(site).raise_error()
    reinitialize(site.topology, "reporting")
    site.at_publisher("DELETE FROM orders WHERE order_id < 50")
    _deliver(site)
    assert site.differences() == []


def test_whom_a_snapshot_waits_for_is_in_the_history(databases: DatabasesFactory, tmp_path: Path) -> None:
    site, said, deadline = _site(databases, tmp_path), "", time.monotonic() + 20
    site.set_up()
    with (
        ThreadPoolExecutor(1) as executor,
        psycopg.connect(**site.databases.publisher.libpq_parameters("open")) as still_open,  # type: ignore[arg-type]
    ):
        still_open.execute("INSERT INTO vendor VALUES (5000)")
        taken = executor.submit(site.take_snapshot)
        while "waits for" not in said and time.monotonic() < deadline:
            time.sleep(0.1)
            rows = execute(site.databases.distribution, "SELECT comments FROM msdistribution_history")
            said = rows[0][0] if rows else ""
        still_open.commit()
        assert [it.rows for it in taken.result().snapshot] == [501, 2000]
    assert re.search(r"the snapshot waits for a transaction of process \d+ \(postgres, open\)", said)


def _restore(server: PostgresServer, database: str, backup: str) -> None:
    server.drop_database(database)
    with server.connect() as session:
        session.execute(f'ALTER DATABASE {backup} RENAME TO "{database}"')


def test_one_article_is_mended_alone(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _with_articles(_site(databases, tmp_path), "public.vendor", "public.orders")
    site.set_up()
    site.take_snapshot()
    site.at_subscriber("DELETE FROM orders WHERE order_id > 7", "UPDATE vendor SET rating = 77 WHERE vendor_id = 5")
    site.at_publisher("INSERT INTO orders VALUES (7000, 1, 1)", "UPDATE vendor SET note = 'n' WHERE vendor_id = 6")
    read_log_into_store(site).raise_error()
    request = SnapshotRequest(publication=site.publication, subscription="reporting", articles=("public.orders",))
    mark_for_reinitialization(request, site.topology)
    assert [it.article for it in site.take_snapshot().snapshot] == ["public.orders"]
    deliver_stored(site).raise_error()
    assert site.differences() == ["public.vendor"]
    assert site.at_subscriber("SELECT vendor_id FROM vendor WHERE rating = 77") == [(5,)]


def test_a_job_on_spark_goes_on_where_a_worker_was_killed(
    databases: DatabasesFactory, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "SMALL_BYTES", 0)
    monkeypatch.setattr(ranges, "SMALLEST_RANGE", 16_384)
    monkeypatch.setattr(ranges, "LARGEST_RANGE", 16_384)
    site = _site(databases, tmp_path)
    site.spark = spark
    site.set_up()
    attempts: list[int] = []
    whole_attempt = job.OnSpark.__call__

    def attempt(self: job.OnSpark, copy: RangeCopy, chosen: Sequence[TableRange]) -> list[CopiedRange]:
        attempts.append(len(chosen))
        return whole_attempt(self, copy if len(attempts) > 1 else _dying_worker(copy), chosen)

    monkeypatch.setattr(job.OnSpark, "__call__", attempt)
    assert [it.rows for it in site.take_snapshot().snapshot] == [500, 2000]
    # What was committed before is not copied again.
    assert len(attempts) == 2
    assert attempts[1] < attempts[0]
    assert site.differences() == []


def _dying_worker(copy: RangeCopy) -> Any:
    """A task's process ends with its third range, as one that is out of memory."""

    def copy_until_then(chosen: Iterable[TableRange]) -> Iterator[CopiedRange]:
        for it in chosen:
            if it.number == 3:
                os._exit(9)
            yield from copy([it])

    return copy_until_then


def test_the_shell_runs_a_new_publication_with_its_snapshot(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases, tmp_path)
    articles = [{"source": it, "pre_creation_cmd": "delete"} for it in ("public.vendor", "public.orders")]
    subscription = {"name": "reporting", "connection": "subscriber"}
    file = publication_file(tmp_path, articles, subscriptions=[subscription])
    environment = site.databases.environment
    site.set_up()
    shown = typed("status", file, environment=environment).out
    assert "reporting: Uninitialized\n" in shown
    assert "  waits for the snapshot of public.vendor, public.orders\n" in shown
    # So little is copied without Spark.
    ran = typed("run", file, "--master", "spark://127.0.0.1:1", "--json", environment=environment)
    assert ran.status == 0, ran
    assert [it["rows"] for it in json.loads(ran.out)["reporting snapshot"]["snapshot"]] == [500, 2000]
    assert "snapshot for reporting: public.orders: 100%, 2,000 rows" in ran.err
    assert site.differences() == []
    assert "Not running" in typed("status", file, environment=environment).out

    site.at_subscriber("DELETE FROM orders", "UPDATE vendor SET name = 'wrong' WHERE vendor_id = 3")
    one = ("-s", "reporting", "--article", "public.orders")
    assert re.search(r"reporting\b.* 2,000 ", typed("reinitialize", file, *one, environment=environment).out)
    assert site.differences() == ["public.vendor"]
    assert typed("reinitialize", file, "-s", "reporting", environment=environment).status == 0
    assert site.differences() == []
    assert "nothing to do" in typed("snapshot", file, environment=environment).out
    wrong = typed("snapshot", file, "--article", "public.order", environment=environment)
    assert (wrong.status, "allowed: public.vendor, public.orders" in wrong.err) == (1, True)


_SOURCES = [{"source": "public.vendor"}, {"source": "public.orders"}]


def test_a_terminal_shows_a_bar_for_each_table(databases: DatabasesFactory, tmp_path: Path) -> None:
    site = _site(databases, tmp_path)
    subscription = {"name": "reporting", "connection": "subscriber"}
    file = publication_file(tmp_path, _SOURCES, subscriptions=[subscription])
    site.set_up()
    shown, current = "", ""
    with (
        psycopg.connect(**site.databases.subscriber.libpq_parameters("lock")) as lock,  # type: ignore[arg-type]
        in_a_terminal("run", file, environment=site.databases.environment) as terminal,
    ):
        lock.execute("SET idle_in_transaction_session_timeout = '20s'")
        lock.execute("LOCK TABLE vendor IN EXCLUSIVE MODE")
        for some in terminal:
            shown += some
            if not current and "1 of 2 tables" in shown:
                current = typed("status", file, environment=site.databases.environment).out
                lock.commit()
    lines = [it.strip() for it in re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown))]
    assert any(re.fullmatch(r"public\.orders ━+ 100% +2,000 +\S+ kB +\S+ kB/s +done", it) for it in lines), shown
    assert any(re.fullmatch(r"public\.vendor ━+ +waits", it) for it in lines), shown
    last = max(at for at, line in enumerate(lines) if line.startswith("public."))
    assert re.fullmatch(r"public\.orders ━+ 100% +2,000 +\S+ kB +\S+ kB/s +done", lines[last]), shown
    assert re.fullmatch(r"public\.vendor ━+ 100% +500 +\S+ kB +\S+ kB/s +done", lines[last - 1]), shown
    assert "Snapshot: 1 of 2 tables, 2,000 rows" in current
    ((comments, tables),) = execute(
        site.databases.distribution, "SELECT comments, snapshot FROM msdistribution_history WHERE snapshot IS NOT NULL"
    )
    assert comments.startswith("Snapshot: 2 of 2 tables, 2,500 rows")
    assert [(it["article"], it["rows"], it["share"]) for it in tables] == [
        ("public.vendor", 500, 1.0),
        ("public.orders", 2000, 1.0),
    ]


def _also(site: Site, **subscription: object) -> None:
    """With a second subscription of the same Subscriber's kind, in a database of its own."""
    settings = site.publication.model_dump(mode="json")
    second = {"name": "second", "connection": "second", **subscription}
    site.publication = Publication.model_validate({**settings, "subscriptions": [*settings["subscriptions"], second]})


def test_a_subscription_begins_at_an_lsn_whose_commands_are_kept(
    databases: DatabasesFactory, database: DatabaseFactory, tmp_path: Path
) -> None:
    site = _site(databases, tmp_path)
    site.connections["second"] = database("second")
    first = site.publication
    _also(site, sync_type="initialize_from_lsn", subscription_lsn="binlog.000001:4")
    assert [str(it) for it in check(site.topology).problems] == [
        "subscription second: subscription_lsn: 'binlog.000001:4'\nallowed: an LSN, as in 16/B374D848"
    ]
    site.publication = first
    _also(site, sync_type="initialize_from_lsn", subscription_lsn="0/1")
    with pytest.raises(ConfigurationError, match="commands from there on are not stored"):
        site.set_up()
    ((lsn,),) = site.at_publisher("SELECT pg_current_wal_insert_lsn()::text")
    site.publication = first
    _also(site, sync_type="initialize_from_lsn", subscription_lsn=lsn)
    site.set_up()
    assert site.set_up() == []
    current = {it.subscription: it.watermark for it in status(site.topology).subscriptions}
    assert int(current["second"] or "", 16) == lsn_number(lsn) - 1
    assert site.take_snapshot(subscription="second").snapshot == ()


def test_an_interrupted_snapshots_commands_are_kept_for_the_maximum(
    databases: DatabasesFactory, tmp_path: Path
) -> None:
    site = _site(databases, tmp_path)
    site.set_up()
    with ChildJob(SNAPSHOT, site, Failpoint.SNAPSHOT_LOADED) as killed:
        assert killed.killed()
    site.at_publisher("UPDATE vendor SET rating = 9")
    read_log_into_store(site).raise_error()
    assert clean_up(site.topology).batches == 0
    execute(site.databases.distribution, "UPDATE msrepl_batches SET entry_time = now() - interval '100 hours'")
    assert list(clean_up(site.topology).deactivated) == ["reporting"]
    with pytest.raises(ConfigurationError, match="must be reinitialized"):
        site.take_snapshot()
    mark_for_reinitialization(SnapshotRequest(publication=site.publication, subscription="reporting"), site.topology)
    site.take_snapshot()
    assert site.differences() == []
