"""Whole runs of a publication's DAG: the measured truth table, the run's bound, Asset events."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.models import dagrun
from airflow.models.asset import AssetEvent
from airflow.models.dagrun import DagRun, DagRunNote
from airflow.sdk import DAG, Context
from airflow.utils.session import create_session
from airflow.utils.types import DagRunType
from sqlalchemy import insert, select

from tranrepl.errors import (
    INCONSISTENT_DISTRIBUTION_DATABASE,
    ConfigurationError,
    DataError,
    FencedError,
    ReplicationError,
    TransientError,
)
from tranrepl.jobs.results import JobResult, TableProgress
from tranrepl_airflow import run_note
from tranrepl_airflow.run_note import on_dag_run_success

if TYPE_CHECKING:
    from airflow.conftest import FakeSpark, IdleChecks, PublicationWriter

DELIVERED = JobResult(
    transactions=2,
    commands=5,
    commands_by_article={"purchasing.vendor": 5},
    last_xact_seqno="0000000000000010",
    latency_ms=3120,
)
LATE = datetime(2026, 1, 2, 3, 7, tzinfo=UTC)
END_OF_INTERVAL = "2026-01-02T03:05:00Z"
SUCCEEDED, FAILED, SKIPPED, NOT_RUN = "success", "failed", "skipped", "upstream_failed"


def failing(error: ReplicationError, delivered: JobResult | None = None) -> JobResult:
    return (delivered or JobResult()).model_copy(update={"error": error.report})


@pytest.fixture
def dag(
    publications: Path, write_publication: PublicationWriter, idle_checks: IdleChecks, fake_spark: FakeSpark
) -> DAG:
    """Return the DAG of one subscription as Airflow parses it, with retries that do not wait."""
    write_publication(subscriptions=[{"name": "reporting", "connection": "subscriber"}])
    bag = DagBag(publications.parent)
    assert bag.import_errors == {}
    parsed: DAG = bag.dags["purchasing"]
    for task in parsed.tasks:
        task.retry_delay = timedelta(0)
    fake_spark.answer("streams", DELIVERED)
    return parsed


@pytest.fixture
def run(dag: DAG, monkeypatch: pytest.MonkeyPatch) -> Callable[..., DagRun]:
    """Run the DAG once; `dag.test()` itself only makes manual runs."""
    create = dagrun.get_or_create_dagrun

    def run_as(
        run_type: DagRunType = DagRunType.MANUAL, logical_date: datetime | None = None, **arguments: Any
    ) -> DagRun:
        def create_as(**given: Any) -> DagRun:
            created = create(**given)
            created.run_type = run_type
            given["session"].commit()
            return created

        monkeypatch.setattr(dagrun, "get_or_create_dagrun", create_as)
        finished: DagRun = dag.test(logical_date=logical_date, **arguments)
        return finished

    return run_as


def states(finished: DagRun) -> dict[str, str]:
    return {
        instance.task_id.removeprefix("reporting."): str(instance.state) for instance in finished.get_task_instances()
    }


def outcome(
    log_reader: str, distribute: str, retry: str, delivered: str, initialize: str = "success"
) -> dict[str, str]:
    return {
        "log_reader": log_reader,
        "log_was_read": SUCCEEDED if log_reader == SUCCEEDED else NOT_RUN,
        "initialize": initialize,
        "distribute": distribute,
        "retry_on_single_connection": retry,
        "delivered": delivered,
    }


Run = Callable[..., DagRun]


def test_all_fine(run: Run, fake_spark: FakeSpark) -> None:
    finished = run()
    assert finished.state == SUCCEEDED
    assert set(states(finished).values()) == {SUCCEEDED}
    assert note_of(finished) == "reporting: delivered 5 commands, latency 3.1 s"
    assert {it.task_id: it.rendered_map_index for it in finished.get_task_instances()} == {
        "log_reader": "nothing to read",
        "log_was_read": None,
        "reporting.initialize": "no article waits for a snapshot",
        "reporting.distribute": "delivered 5 commands, latency 3.1 s",
        "reporting.retry_on_single_connection": "nothing to retry",
        "reporting.delivered": "delivered 5 commands, latency 3.1 s",
    }
    assert fake_spark.jobs == ["log_reader", "streams"]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("error", [DataError("row not found", number="20598"), TransientError("lock timeout")])
def test_a_batch_that_failed_is_delivered_over_a_single_connection(
    run: Run, fake_spark: FakeSpark, error: ReplicationError
) -> None:
    fake_spark.answer("streams", failing(error), exit_code=1)
    finished = run()
    assert finished.state == SUCCEEDED
    assert states(finished) == outcome(SUCCEEDED, FAILED, SUCCEEDED, SUCCEEDED)
    assert fake_spark.jobs == ["log_reader", "streams", "single_connection"]


def test_a_data_error_over_a_single_connection_fails_the_run_at_once(run: Run, fake_spark: FakeSpark) -> None:
    for job in ("streams", "single_connection"):
        fake_spark.answer(job, failing(DataError("row not found")), exit_code=1)
    finished = run()
    assert finished.state == FAILED
    assert states(finished) == outcome(SUCCEEDED, FAILED, FAILED, NOT_RUN)
    assert note_of(finished) == "reporting: `row not found`"
    assert fake_spark.jobs == ["log_reader", "streams", "single_connection"]


def test_a_transient_error_over_a_single_connection_is_tried_again(run: Run, fake_spark: FakeSpark) -> None:
    for job in ("streams", "single_connection"):
        fake_spark.answer(job, failing(TransientError("connection lost")), exit_code=1)
    finished = run()
    assert finished.state == FAILED
    assert fake_spark.jobs == ["log_reader", "streams", *["single_connection"] * 3]


def test_what_is_stored_is_delivered_though_the_log_reader_failed(run: Run, fake_spark: FakeSpark) -> None:
    fake_spark.answer("log_reader", failing(ConfigurationError("wal_level is replica")), exit_code=1)
    finished = run()
    assert finished.state == FAILED
    assert states(finished) == outcome(FAILED, SUCCEEDED, SUCCEEDED, SUCCEEDED)
    assert fake_spark.jobs == ["log_reader", "streams"]
    assert len(all_events_of(finished)) == 1


def test_nothing_is_delivered_where_the_log_went_back(run: Run, fake_spark: FakeSpark) -> None:
    went_back = DataError("another server", number=INCONSISTENT_DISTRIBUTION_DATABASE)
    fake_spark.answer("log_reader", failing(went_back), exit_code=1)
    finished = run()
    assert finished.state == FAILED
    assert states(finished) == outcome(FAILED, SKIPPED, SKIPPED, SKIPPED, initialize=SKIPPED)
    assert fake_spark.jobs == ["log_reader"]


def test_what_stopped_the_log_reader_is_no_second_failure_of_a_delivery(run: Run, fake_spark: FakeSpark) -> None:
    for job in ("log_reader", "streams"):
        fake_spark.answer(job, failing(TransientError("distribution database: connection refused")), exit_code=1)
    finished = run()
    assert finished.state == FAILED
    assert states(finished) == outcome(FAILED, SKIPPED, SKIPPED, SKIPPED)


def test_what_fails_after_a_failed_log_reader_is_tried_again(run: Run, fake_spark: FakeSpark) -> None:
    fake_spark.answer("log_reader", failing(ConfigurationError("wal_level is replica")), exit_code=1)
    fake_spark.answer("streams", failing(DataError("row not found")), exit_code=1)
    finished = run()
    assert finished.state == FAILED
    assert states(finished) == outcome(FAILED, FAILED, SUCCEEDED, SUCCEEDED)
    assert note_of(finished) == (
        "log reader: `wal_level is replica`\nreporting: nothing to deliver; a batch failed first, `row not found`"
    )


SNAPSHOT = JobResult(
    last_xact_seqno="0000000000000008",
    snapshot=(TableProgress(article="purchasing.vendor", rows=7, bytes=70, share=1, seconds=1),),
)


def test_a_subscription_that_waits_for_its_snapshot_is_initialized_first(
    run: Run, fake_spark: FakeSpark, idle_checks: IdleChecks
) -> None:
    idle_checks.results = {"snapshot": None}
    fake_spark.answer("snapshot", SNAPSHOT)
    finished = run()
    assert states(finished) == outcome(SUCCEEDED, SUCCEEDED, SUCCEEDED, SUCCEEDED)
    assert fake_spark.jobs == ["log_reader", "snapshot", "streams"]
    assert all_events_of(finished) == [
        {"snapshot_rows": 7, "last_xact_seqno": "0000000000000008"},
        {"commands": 5, "last_xact_seqno": "0000000000000010"},
    ]
    assert note_of(finished) == "reporting: snapshot of 7 rows, delivered 5 commands, latency 3.1 s"


def test_a_snapshot_that_failed_fails_the_run_before_anything_is_delivered(
    run: Run, fake_spark: FakeSpark, idle_checks: IdleChecks
) -> None:
    idle_checks.results = {"snapshot": None}
    fake_spark.answer("snapshot", failing(ConfigurationError("table holds rows")), exit_code=1)
    finished = run()
    assert finished.state == FAILED
    assert states(finished) == outcome(SUCCEEDED, NOT_RUN, SKIPPED, NOT_RUN, initialize=FAILED)
    assert fake_spark.jobs == ["log_reader", "snapshot"]


def test_a_configuration_error_is_left_to_a_person(run: Run, fake_spark: FakeSpark) -> None:
    fake_spark.answer("streams", failing(ConfigurationError("a column is missing")), exit_code=1)
    finished = run()
    assert finished.state == FAILED
    assert states(finished) == outcome(SUCCEEDED, FAILED, SKIPPED, NOT_RUN)


def test_a_fenced_distribution_is_a_run_that_did_nothing(run: Run, fake_spark: FakeSpark) -> None:
    fake_spark.answer("streams", failing(FencedError("another job applies it")), exit_code=1)
    finished = run()
    assert finished.state == SUCCEEDED
    assert states(finished) == outcome(SUCCEEDED, SUCCEEDED, SUCCEEDED, SUCCEEDED)


def test_with_nothing_to_do_no_spark_job_is_started(run: Run, fake_spark: FakeSpark, idle_checks: IdleChecks) -> None:
    idle_checks.results = {"log_reader": JobResult(), "distribution": JobResult()}
    finished = run()
    assert finished.state == SUCCEEDED
    assert fake_spark.jobs == []
    assert events_of(finished) == {}


def test_a_killed_workers_batch_is_retried_over_one_connection(
    dag: DAG, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end_without_a_report(_: Context) -> None:
        raise SystemExit(137)

    monkeypatch.setattr(dag.get_task("reporting.distribute"), "execute", end_without_a_report)
    assert states(run()) == outcome(SUCCEEDED, FAILED, SUCCEEDED, SUCCEEDED)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("run_type", [DagRunType.SCHEDULED, DagRunType.BACKFILL_JOB])
def test_a_run_of_an_interval_delivers_up_to_its_end(run: Run, fake_spark: FakeSpark, run_type: DagRunType) -> None:
    fake_spark.answer("streams", failing(DataError("row not found")), exit_code=1)
    run(run_type, LATE)
    assert bounds(fake_spark) == [END_OF_INTERVAL, END_OF_INTERVAL]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("logical_date", [None, LATE])
def test_a_manual_run_delivers_everything(run: Run, fake_spark: FakeSpark, logical_date: datetime | None) -> None:
    run(DagRunType.MANUAL, logical_date)
    assert bounds(fake_spark) == [None]


def bounds(fake_spark: FakeSpark) -> list[str | None]:
    return [
        call["request"]["committed_before"]
        for call in fake_spark.calls
        if call["job"] not in ("log_reader", "snapshot")
    ]


def test_each_subscriber_table_that_had_commands_emits_one_event(run: Run, fake_spark: FakeSpark) -> None:
    rescued = JobResult(
        transactions=1,
        commands=4,
        commands_by_article={"purchasing.vendor": 1, 'sales."Order Details"': 3},
        last_xact_seqno="0000000000000020",
    )
    fake_spark.answer("streams", failing(DataError("row not found"), DELIVERED), exit_code=1)
    fake_spark.answer("single_connection", rescued)
    finished = run()
    watermark = "0000000000000020"
    assert events_of(finished) == {
        "x-tranrepl://purchasing/reporting/purchasing.vendor": {"commands": 6, "last_xact_seqno": watermark},
        "x-tranrepl://purchasing/reporting/sales.order_details": {"commands": 3, "last_xact_seqno": watermark},
        "postgres://db:5432/shop/purchasing/vendor": {"commands": 6, "last_xact_seqno": watermark},
        "postgres://db:5432/shop/sales/order_details": {"commands": 3, "last_xact_seqno": watermark},
    }


def test_a_note_that_a_person_wrote_is_left_alone(run: Run) -> None:
    finished = run()
    with create_session() as session:
        session.execute(insert(DagRunNote).values(dag_run_id=finished.id, content="look here", user_id="ada"))
    assert note_of(finished) == "look here"


def test_a_table_without_commands_emits_none(run: Run) -> None:
    assert set(events_of(run())) == {
        "x-tranrepl://purchasing/reporting/purchasing.vendor",
        "postgres://db:5432/shop/purchasing/vendor",
    }


def all_events_of(finished: DagRun) -> list[dict[str, Any]]:
    """Return the extras of all events of our assets, in the order in which they were emitted."""
    with create_session() as session:
        mine = select(AssetEvent).where(AssetEvent.source_run_id == finished.run_id).order_by(AssetEvent.id)
        return [event.extra for event in session.scalars(mine) if event.asset.uri.startswith("x-tranrepl:")]


def test_a_note_is_of_what_was_chosen_and_no_word_of_it_is_cut() -> None:
    tasks = [
        run_note.DeliveryTasks(it, f"delivered_{it}", [f"validate_{it}"], is_chosen=True)
        for it in ("mart", "reporting")
    ]
    message = f"{'rows differ ' * 31}its commands are of transaction 0x00000001019B86E8"
    note = run_note.note_of(tasks, {("validate_reporting", "error"): {"message": message, "number": "20574"}})
    assert note.startswith("reporting: error 20574: `rows differ ")
    assert note.endswith(" rows differ its commands are of …`")


def note_of(finished: DagRun) -> str | None:
    """Call the scheduler's listener, and return its note of the run; `dag.test()` leaves the run in no session."""
    with create_session() as session:
        held = session.get_one(DagRun, finished.id)
        held.dag = finished.dag
        for _ in range(2):
            on_dag_run_success(held, "again, as after a run was cleared")
        notes = session.scalars(select(DagRunNote.content).where(DagRunNote.dag_run_id == finished.id))
        return notes.one()


def events_of(finished: DagRun) -> dict[str, dict[str, Any]]:
    with create_session() as session:
        events = session.scalars(select(AssetEvent).where(AssetEvent.source_run_id == finished.run_id))
        return {event.asset.uri: event.extra for event in events}


def test_results_are_the_tasks_xcom(run: Run, fake_spark: FakeSpark) -> None:
    finished = run()
    (distribute,) = (ti for ti in finished.get_task_instances() if ti.task_id == "reporting.distribute")
    (delivered,) = (ti for ti in finished.get_task_instances() if ti.task_id == "reporting.delivered")
    assert distribute.xcom_pull(task_ids="reporting.distribute") == DELIVERED.model_dump(mode="json")
    assert delivered.xcom_pull(task_ids="reporting.delivered") == {
        "transactions": 2,
        "commands": 5,
        "commands_by_article": {"purchasing.vendor": 5},
        "last_xact_seqno": "0000000000000010",
        "latency_ms": 3120,
        "snapshot_rows": 0,
        "repaired": {},
        "skipped": 0,
    }
