"""A continuous delivery: what is registered meanwhile arrives once and in order, whatever happens beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Event

import pytest

from conftest import DatabasesFactory
from support.continuous_delivery import delivering, is_delivered
from support.continuous_reader import ContinuousReader
from support.observed import (
    ITEM,
    assert_each_change_was_made_once,
    audited_site,
    distribution_rows,
    insert_transactions,
    make_transactions,
    wait_until,
)
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.admin.exec_script import exec_script
from tranrepl.admin.skip_and_retry import retry_from_transaction, skip_transaction
from tranrepl.admin.trace import post_token
from tranrepl.distribution import following, job as distribution_job
from tranrepl.distribution.draining import DeliveryDraining
from tranrepl.distributor.database import Batch
from tranrepl.errors import SNAPSHOT_NOT_AVAILABLE, ErrorKind
from tranrepl.failpoint import Failpoint
from tranrepl.jobs.requests import SnapshotRequest
from tranrepl.jobs.results import JobResult
from tranrepl.snapshot import initialization
from tranrepl.snapshot.reinitialization import mark_for_reinitialization
from tranrepl.spark.lasting_task import DriverConnection, Ending, LastingTask, TaskServer, Why
from tranrepl.subscriber.base.applier import Applier

_CRASH = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'tranrepl reporting'"


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path) -> Site:
    return audited_site(databases(), tmp_path / "store", SparkHere(), step=None)


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many deliveries were made outside of the lasting task."""
    made: list[JobResult] = []
    original = DeliveryDraining.run

    def run(job: DeliveryDraining) -> JobResult:
        made.append(original(job))
        return made[-1]

    monkeypatch.setattr(DeliveryDraining, "run", run)
    return lambda: len(made)


@pytest.fixture
def endings(monkeypatch: pytest.MonkeyPatch) -> list[Why]:
    """Why lasting tasks have ended."""
    seen: list[Why] = []
    original = TaskServer.run

    def run(self: TaskServer, task: LastingTask) -> Ending:
        ending = original(self, task)
        seen.append(ending.why)
        return ending

    monkeypatch.setattr(TaskServer, "run", run)
    return seen


def _change(site: Site, *sizes: int) -> None:
    insert_transactions(site, *sizes or (1,))
    site.read_log().raise_error()


def test_what_is_registered_while_it_stays_arrives_at_once(
    site: Site, jobs: Callable[[], int], endings: list[Why]
) -> None:
    _change(site, 3)
    with delivering(site) as delivery:
        delivery.wait_until_delivered()
        for _ in range(5):
            _change(site, 1, 2, 3)
            delivery.wait_until_delivered()
        result = delivery.result()
    assert result.error is None
    assert (result.transactions, result.commands) == (16, 33)
    assert (jobs(), endings) == (1, [Why.ASKED])
    assert_each_change_was_made_once(site)
    rows = distribution_rows(site, "SELECT runstatus, delivered_transactions, error_id FROM msdistribution_history")
    assert rows == [(2, 16, None)]
    measured = distribution_rows(site, "SELECT sum(transactions), sum(commands) FROM msrepl_deliveries")
    assert measured == [(16, 33)]


def test_its_session_is_opened_a_few_times_for_many_articles_that_come_one_by_one(
    databases: DatabasesFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [f"t{number}" for number in range(8)]
    site = Site(databases(), tmp_path / "store", [f"public.{it}" for it in tables], SparkHere())
    site.at_publisher(*(f"CREATE TABLE {it} (id int PRIMARY KEY)" for it in tables))
    site.set_up()
    known: list[int] = []
    original = following._CachedApplier.get

    def get(self: following._CachedApplier, batches: Iterable[Batch]) -> Applier:
        applier = original(self, batches)
        known.append(len(self._articles))
        return applier

    monkeypatch.setattr(following._CachedApplier, "get", get)
    monkeypatch.setattr(following, "_FEW_ARTICLES", 2)
    with delivering(site) as delivery:
        for it in tables:
            site.at_publisher(f"INSERT INTO {it} VALUES (1)")
            site.read_log().raise_error()
            delivery.wait_until_delivered()
        assert delivery.result().commands == len(tables)
    assert known == [1, 2, 5, 5, 5, 8, 8, 8]
    assert site.differences() == []


def test_changes_of_every_kind_under_load_arrive_once_and_in_order(site: Site) -> None:
    with delivering(site) as delivery, ThreadPoolExecutor(1) as writer:
        written = writer.submit(make_transactions, site, 400)
        while not written.done():
            site.read_log().raise_error()
        site.read_log().raise_error()
        delivery.wait_until_delivered()
        assert delivery.result().transactions == 400
    assert_each_change_was_made_once(site)


def test_it_ends_at_its_time_with_all_that_a_log_reader_beside_it_stores(site: Site) -> None:
    with site.topology.distributor() as database:
        database.history.begin_run(database.publications.get("purchasing"))
    with delivering(site, lasts=timedelta(seconds=1)) as delivery:
        time.sleep(2)
        assert not delivery.job.done()
        # Its row is the newest one then, and ended.
        _change(site, 4)
        assert delivery.job.result(30).commands == 4
    assert_each_change_was_made_once(site)


def test_tracer_tokens_arrive_without_another_job(site: Site, jobs: Callable[[], int]) -> None:
    with delivering(site) as delivery:
        _change(site)
        delivery.wait_until_delivered()
        post_token(site.topology)
        site.read_log().raise_error()
        wait_until(lambda: distribution_rows(site, "SELECT count(*) FROM mstracer_history") == [(1,)])
        delivery.wait_until_delivered()
        _change(site)
        delivery.wait_until_delivered()
        assert jobs() == 1


def test_a_skipped_transaction_and_one_that_is_delivered_again_are_noticed(site: Site, endings: list[Why]) -> None:
    _change(site, 1, 1)
    ((first, last),) = distribution_rows(site, "SELECT first_xact_seqno, last_xact_seqno FROM msrepl_batches")
    skip_transaction(site.topology, "reporting", bytes(first))
    with delivering(site) as delivery:
        delivery.wait_until_delivered()
        assert site.at_subscriber("SELECT count(*) FROM item") == [(1,)]
        site.at_subscriber("TRUNCATE item, audit RESTART IDENTITY")
        retry_from_transaction(site.topology, "reporting", bytes(first))
        wait_until(lambda: site.at_subscriber("SELECT count(*) FROM item") == [(2,)])
        assert delivery.result().error is None
    # It may be asked to end before the next task begins.
    assert endings in ([Why.CHANGED, Why.ASKED], [Why.CHANGED])
    assert bytes(last) > bytes(first)
    assert_each_change_was_made_once(site)


def test_a_stop_before_its_task_has_found_its_driver_is_no_error(
    site: Site, endings: list[Why], monkeypatch: pytest.MonkeyPatch
) -> None:
    join, begun = DriverConnection.__init__, Event()

    def join_late(connection: DriverConnection, host: str, port: int) -> None:
        begun.set()
        time.sleep(1.0)
        join(connection, host, port)

    monkeypatch.setattr(DriverConnection, "__init__", join_late)
    with delivering(site) as delivery:
        assert begun.wait(60)
        assert delivery.result().error is None
    assert endings == [Why.ASKED]


def test_a_lost_session_at_the_subscriber_is_met_once(site: Site, endings: list[Why]) -> None:
    with delivering(site) as delivery:
        _change(site)
        delivery.wait_until_delivered()
        site.at_subscriber(_CRASH)
        _change(site)
        delivery.wait_until_delivered()
        assert delivery.result().error is None
    # Drained, what the error kept from being delivered; asked then, perhaps before another task begins.
    assert endings in ([Why.ERROR], [Why.ERROR, Why.ASKED])
    assert_each_change_was_made_once(site)


def test_a_command_that_fails_ends_the_run_with_what_came_before_it(site: Site) -> None:
    with delivering(site) as delivery:
        _change(site)
        delivery.wait_until_delivered()
        site.at_subscriber("INSERT INTO item VALUES (3, 0, 'in the way')")
        _change(site, 1, 1, 1)
        result = delivery.job.result(60)
    assert result.error is not None
    assert (result.error.kind, result.error.key, result.transactions) == (ErrorKind.DATA, "id = 3", 2)
    rows = distribution_rows(site, "SELECT runstatus, delivered_transactions FROM msdistribution_history")
    assert rows == [(6, 2)]
    site.at_subscriber("DELETE FROM item WHERE xact = 0", "DELETE FROM audit WHERE xact = 0")
    site.deliver().raise_error()
    assert_each_change_was_made_once(site)


def test_a_subscriber_that_is_down_from_the_start_is_an_error_of_the_run(site: Site) -> None:
    site.connections["subscriber"] = replace(site.connections["subscriber"], port=1)
    with delivering(site) as delivery:
        result = delivery.job.result(60)
    assert result.error is not None
    assert result.error.kind is ErrorKind.TRANSIENT
    rows = distribution_rows(site, "SELECT runstatus, error_id IS NOT NULL FROM msdistribution_history")
    assert rows == [(5, True)]


def test_no_row_of_history_stays_in_progress_where_spark_has_died(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(_: DeliveryDraining) -> JobResult:
        raise ConnectionError("Answer from Java side is empty")

    monkeypatch.setattr(DeliveryDraining, "run", die)
    with delivering(site) as delivery, pytest.raises(ConnectionError):
        delivery.job.result(60)
    rows = distribution_rows(site, "SELECT runstatus, comments FROM msdistribution_history")
    assert rows == [(6, "the run ended by ConnectionError")]


def test_two_for_one_subscription_apply_each_change_once(site: Site) -> None:
    with delivering(site) as one, ThreadPoolExecutor(1) as other:
        for _ in range(10):
            insert_transactions(site, 1, 1)
            site.read_log().raise_error()
            # It is fenced off, or fences the other one off.
            done = other.submit(site.deliver).result()
            assert done.error is None or done.error.kind is ErrorKind.FENCED
        wait_until(lambda: is_delivered(site) or one.job.done())
        result = one.result()
    assert result.error is None or result.error.kind is ErrorKind.FENCED
    site.deliver()
    assert_each_change_was_made_once(site)


def test_a_procedure_that_is_edited_meanwhile_is_called(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "_CATALOGUE_HOLDS_SECONDS", 0.0)
    with delivering(site) as delivery:
        _change(site)
        delivery.wait_until_delivered()
        ((body,),) = site.at_subscriber(
            "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE prosrc LIKE '%INSERT INTO%item%' AND prokind = 'p'"
        )
        edited = str(body).replace("BEGIN\n", "BEGIN\n  INSERT INTO public.trail VALUES (1);\n", 1)
        site.at_subscriber("CREATE TABLE trail (id int)", edited)
        _change(site)
        delivery.wait_until_delivered()
        assert site.at_subscriber("SELECT count(*) FROM trail") == [(1,)]


@pytest.mark.slow
def test_a_validation_beside_both_agents_compares_both_ends_at_one_transaction(site: Site) -> None:
    over = Event()
    with delivering(site) as delivery, ThreadPoolExecutor(1) as writer:
        log_reader = ContinuousReader(site, delivery.asked, 600.0)
        log_reader.start()
        log_reader.wait_until_it_follows()
        written = writer.submit(_write, site, over)
        try:
            site.validate().raise_error()
        finally:
            over.set()
        written.result()
        count = "SELECT count(*) FROM audit"
        wait_until(lambda: site.at_subscriber(count) == site.at_publisher(count), lambda: not delivery.job.done())
        assert delivery.result().error is None
        assert log_reader.result().error is None
    assert_each_change_was_made_once(site)


def _write(site: Site, over: Event) -> None:
    while not over.is_set():
        insert_transactions(site, 1)


def test_many_commands_and_articles_that_wait_are_left_to_other_jobs(
    site: Site, endings: list[Why], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "_BACKLOG", 50)
    with delivering(site) as delivery:
        _change(site, 60)
        delivery.wait_until_delivered()
        assert_each_change_was_made_once(site)
        with site.topology.distributor() as database:
            subscription = database.subscriptions.get(database.publications.get("purchasing"), "reporting")
            database.snapshots.subscribe(subscription, ["public.item"], whole=False)
        _change(site, 1)
        delivery.wait_until_delivered()
        _change(site, 1)
        delivery.wait_until_delivered()
        assert delivery.result().error is None
    assert endings == [Why.BACKLOG, Why.CHANGED, Why.ASKED]
    # They will be in the article's snapshot.
    assert site.at_subscriber("SELECT count(*) FROM item") == [(60,)]


def test_schema_changes_and_scripts_among_changes_are_delivered_in_their_place(
    databases: DatabasesFactory, tmp_path: Path, endings: list[Why]
) -> None:
    site = Site(databases(), tmp_path / "store", ["public.item"], SparkHere(), replicate_ddl=True)
    site.at_publisher(ITEM)
    site.set_up()
    script = tmp_path / "script.sql"
    script.write_text("CREATE TABLE made_by_script (id int)", encoding="utf-8")
    with delivering(site) as delivery:
        _change(site, 2)
        delivery.wait_until_delivered()
        site.at_publisher("ALTER TABLE item ADD COLUMN more int")
        _change(site, 2)
        delivery.wait_until_delivered()
        exec_script(site.topology, script)
        _change(site, 2)
        delivery.wait_until_delivered()
        site.at_publisher("UPDATE item SET more = id")
        site.read_log().raise_error()
        delivery.wait_until_delivered()
        result = delivery.result()
    assert (result.error, result.schema_changes) == (None, 0)
    assert set(endings) <= {Why.SCHEMA_CHANGE, Why.CHANGED, Why.ASKED}
    assert endings[-1] is Why.ASKED
    assert site.at_subscriber("SELECT count(*) FROM made_by_script") == [(0,)]
    query = "SELECT id, xact, note, more FROM item ORDER BY id"
    assert site.at_subscriber(query) == site.at_publisher(query)
    assert site.at_subscriber("SELECT count(more) FROM item") == [(6,)]


def test_a_snapshot_beside_it_is_waited_for(
    databases: DatabasesFactory, tmp_path: Path, endings: list[Why], monkeypatch: pytest.MonkeyPatch
) -> None:
    reporting = {"name": "reporting", "connection": "subscriber", "sync_type": "automatic"}
    item = {"source": "public.item", "pre_creation_cmd": "truncate"}
    site = Site(databases(), tmp_path / "store", [item], SparkHere(), [reporting], polling_interval=0.1)
    site.at_publisher(ITEM)
    site.set_up()
    site.take_snapshot().raise_error()
    reached, go_on = Event(), Event()

    def reach(point: Failpoint, _stream: int = 0) -> None:
        if point is Failpoint.SNAPSHOT_BEGUN:
            reached.set()
            assert go_on.wait(60)

    monkeypatch.setattr(initialization, "reach", reach)
    monkeypatch.setattr(distribution_job, "_SNAPSHOT_AWAITED_SECONDS", 1.0)
    with delivering(site) as delivery, ThreadPoolExecutor(1) as other:
        _change(site)
        delivery.wait_until_delivered()
        request = SnapshotRequest(publication=site.publication, subscription="reporting")
        mark_for_reinitialization(request, site.topology)
        _change(site)
        # It waits for somebody to begin the snapshot, and then for its end.
        time.sleep(0.3)
        taken = other.submit(site.take_snapshot)
        assert reached.wait(60)
        _change(site, 1, 1)
        time.sleep(1.2)
        assert not delivery.job.done()
        go_on.set()
        taken.result().raise_error()
        _change(site)
        delivery.wait_until_delivered()
        result = delivery.result()
    assert result.error is None
    assert endings[0] is Why.CHANGED
    assert site.differences() == []


def test_a_snapshot_that_nobody_takes_ends_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution_job, "_SNAPSHOT_AWAITED_SECONDS", 0.5)
    with delivering(site) as delivery:
        with site.topology.distributor() as database:
            subscription = database.subscriptions.get(database.publications.get("purchasing"), "reporting")
            database.snapshots.subscribe(subscription, ["public.item"], whole=True)
        _change(site)
        error = delivery.job.result(60).error
    assert error is not None
    assert error.number == SNAPSHOT_NOT_AVAILABLE
