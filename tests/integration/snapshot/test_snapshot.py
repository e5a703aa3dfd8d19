"""The initial snapshot: what a subscription begins with, whom it waits for, and what it leaves alone."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from conftest import DatabaseFactory, DatabasesFactory
from support.child_job import SNAPSHOT, ChildJob
from support.in_process import read_log_into_store, replicate_stored
from support.site import Site, execute
from support.snapshot_site import TABLES, vendors_and_orders
from tranrepl.admin.check import check
from tranrepl.admin.cleanup import clean_up
from tranrepl.admin.status import status
from tranrepl.errors import ConfigurationError
from tranrepl.failpoint import Failpoint
from tranrepl.jobs.requests import SnapshotRequest
from tranrepl.publisher.postgres.lsn import lsn_number
from tranrepl.publisher.snapshot import TableRange
from tranrepl.settings.publication import Publication
from tranrepl.snapshot import copying, job, without_spark
from tranrepl.snapshot.copying import CopiedRange, RangeCopy
from tranrepl.snapshot.reinitialization import mark_for_reinitialization
from tranrepl.topology import Topology


def test_rows_come_by_snapshot_and_changes_by_the_log(
    databases: DatabasesFactory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tranrepl.snapshot")
    site = vendors_and_orders(databases(), tmp_path)
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
    assert re.search(r"public\.vendor: 500 rows, \d+\.\d kB in \d+.* m?s, .*B/s", caplog.text)
    assert site.differences() == []
    site.at_publisher(
        "UPDATE vendor SET vendor_id = vendor_id + 1000 WHERE vendor_id > 490 AND vendor_id NOT IN "
        "(SELECT vendor_id FROM orders)",
        "DELETE FROM orders WHERE order_id < 50",
    )
    replicate_stored(site)
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
    site = vendors_and_orders(databases(), tmp_path, ["public.vendor"])
    database = site.databases.subscriber.database
    # What autovacuum goes by; itself it is the whole server's.
    site.at_subscriber(f'ALTER DATABASE "{database}" SET track_counts = off')
    site.set_up()
    site.take_snapshot()
    assert site.at_subscriber("SELECT count(*) FROM pg_stats WHERE tablename = 'vendor'") == [(4,)]


@pytest.mark.parametrize("command", ["none", "drop", "delete", "truncate"])
def test_pre_creation_cmd(databases: DatabasesFactory, tmp_path: Path, command: str) -> None:
    articles = [{"source": "public.vendor", "filter": "vendor.rating > 1", "pre_creation_cmd": command}]
    site = vendors_and_orders(databases(), tmp_path, articles)
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


def test_rows_are_deleted_before_those_that_they_refer_to(databases: DatabasesFactory, tmp_path: Path) -> None:
    articles = [{"source": f"public.{it}", "pre_creation_cmd": "delete"} for it in ("vendor", "orders")]
    site = vendors_and_orders(databases(), tmp_path, articles)
    site.at_subscriber(
        TABLES,
        "INSERT INTO vendor VALUES (9000, 'theirs', 0)",
        "INSERT INTO orders VALUES (9000, 9000, 1)",
        "CREATE FUNCTION has_orders() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF EXISTS (SELECT FROM orders WHERE vendor_id = OLD.vendor_id) THEN RAISE 'vendor % has orders', "
        "OLD.vendor_id; END IF; RETURN OLD; END $$",
        "CREATE TRIGGER has_orders BEFORE DELETE ON vendor FOR EACH ROW EXECUTE FUNCTION has_orders()",
    )
    site.set_up()
    site.take_snapshot()
    assert site.at_subscriber("SELECT (SELECT count(*) FROM vendor), (SELECT count(*) FROM orders)") == [(500, 2000)]


def test_rows_in_the_way_are_told_by_check(databases: DatabasesFactory, tmp_path: Path) -> None:
    """Compare the warnings with the tables that a snapshot would be taken of, and no others."""
    site = vendors_and_orders(databases(), tmp_path, ["public.vendor"])

    def told(*sources: str, **subscription: object) -> list[str]:
        settings = site.publication.model_dump(mode="json")
        first = {**settings["subscriptions"][0], **subscription}
        changed = {"articles": [{"source": it} for it in sources], "subscriptions": [first]}
        other = Publication.model_validate({**settings, **changed})
        problems = check(Topology(other, site.connections)).problems
        named = [re.search(r"tables? (.+) holds? rows, and", it.message) for it in problems]
        return [it[1] if it else "" for it in named]

    site.at_subscriber(TABLES, "INSERT INTO vendor VALUES (1)", "INSERT INTO orders VALUES (1, 1)")
    assert told("public.vendor", "public.orders") == ["public.vendor, public.orders"]
    assert told("public.vendor", "public.orders", sync_type="replication_support_only") == []
    site.at_subscriber("TRUNCATE vendor CASCADE", "ALTER TABLE orders DROP CONSTRAINT orders_vendor_id_fkey")
    site.set_up()
    site.take_snapshot()
    site.at_subscriber("INSERT INTO orders VALUES (1, 1)")
    assert told("public.vendor", "public.orders") == ["public.orders"]


def test_whom_a_snapshot_waits_for_is_in_the_history(databases: DatabasesFactory, tmp_path: Path) -> None:
    site, said, deadline = vendors_and_orders(databases(), tmp_path), "", time.monotonic() + 20
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


def test_a_job_on_spark_goes_on_where_a_worker_was_killed(
    databases: DatabasesFactory, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(without_spark, "SMALL_BYTES", 0)
    monkeypatch.setattr(copying, "SMALLEST_RANGE", 16_384)
    monkeypatch.setattr(copying, "LARGEST_RANGE", 16_384)
    site = vendors_and_orders(databases(), tmp_path)
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
    """End a task's process at its third range, as one that is out of memory."""

    def copy_until_then(chosen: Iterable[TableRange]) -> Iterator[CopiedRange]:
        for it in chosen:
            if it.number == 3:
                os._exit(9)
            yield from copy([it])

    return copy_until_then


def _also(site: Site, **subscription: object) -> None:
    """Add a second subscription, in a database of its own."""
    settings = site.publication.model_dump(mode="json")
    second = {"name": "second", "connection": "second", **subscription}
    site.publication = Publication.model_validate({**settings, "subscriptions": [*settings["subscriptions"], second]})


def test_a_subscription_begins_at_an_lsn_whose_commands_are_kept(
    databases: DatabasesFactory, database: DatabaseFactory, tmp_path: Path
) -> None:
    site = vendors_and_orders(databases(), tmp_path)
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
    site = vendors_and_orders(databases(), tmp_path)
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
