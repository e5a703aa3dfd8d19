"""The DAG that reinitializes subscriptions: what its form offers, what its tasks do, and no backfill of it."""

from __future__ import annotations

import shutil
import sys
import types
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.models.asset import AssetEvent
from airflow.models.dagrun import DagRun, DagRunNote
from airflow.sdk import DAG
from airflow.sdk.definitions.timetables.simple import NullTimetable
from airflow.sdk.exceptions import ParamValidationError
from airflow.utils.session import create_session
from sqlalchemy import select

from tranrepl.errors import ConfigurationError, TransientError
from tranrepl.jobs.requests import SnapshotRequest
from tranrepl.jobs.results import JobResult, TableProgress
from tranrepl.topology import Topology
from tranrepl_airflow.run_note import on_dag_run_failed

if TYPE_CHECKING:
    from airflow.conftest import FakeSpark, IdleChecks, PublicationWriter

SNAPSHOT = JobResult(
    last_xact_seqno="0000000000000008",
    snapshot=(TableProgress(article="purchasing.vendor", rows=7, bytes=100, share=1, seconds=0.5),),
)


@pytest.fixture
def dag_file(airflow_home: Path) -> Iterator[Path]:
    """Write the DAG file beside the publications' own."""
    path = airflow_home / "dags" / "reinitialization.py"
    shutil.copy(Path(__file__).parents[2] / "dags" / "reinitialization.py", path)
    yield path
    path.unlink()


@pytest.fixture
def dag(publications: Path, dag_file: Path) -> DAG:
    bag = DagBag(publications.parent)
    assert bag.import_errors == {}
    parsed: DAG = bag.dags["purchasing_reinitialize"]
    for task in parsed.tasks:
        task.retry_delay = timedelta(0)
    return parsed


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> list[SnapshotRequest]:
    """Collect the requests to reinitialize; nothing is in a database."""
    requests: list[SnapshotRequest] = []
    module = types.ModuleType("tranrepl.snapshot.reinitialization")
    module.__dict__["mark_for_reinitialization"] = lambda request, _: requests.append(request)
    monkeypatch.setitem(sys.modules, "tranrepl.snapshot.reinitialization", module)
    return requests


def states(finished: DagRun) -> dict[str, str | None]:
    return {it.task_id: it.state for it in finished.get_task_instances()}


def test_its_tasks_wait_for_deliveries_of_their_subscription(dag: DAG) -> None:
    assert {task.task_id: task.pool for task in dag.tasks} == {
        "reinitialize_reporting": "replication_purchasing_reporting",
        "reinitialize_audit": "replication_purchasing_audit",
    }
    assert all(task.doc_md for task in (dag, *dag.tasks))


def test_it_has_no_schedule_and_so_no_backfill(dag: DAG) -> None:
    assert isinstance(dag.timetable, NullTimetable)
    assert dag.is_paused_upon_creation is False


def test_its_form_offers_lists_and_requires_a_subscription(dag: DAG) -> None:
    offered = {name: dag.params.get_param(name).schema for name in dag.params}
    assert {name: it["examples"] for name, it in offered.items()} == {
        "subscriptions": ["reporting", "audit"],
        "articles": ["purchasing.vendor", 'sales."Order Details"'],
    }
    with pytest.raises(ParamValidationError):
        dag.params.validate()
    # The form sends null where all that was chosen is taken out again.
    dag.params.update({"subscriptions": ["reporting"], "articles": None})
    dag.params.validate()
    with pytest.raises(ParamValidationError):
        dag.params["subscriptions"] = ["reportin"]


def test_what_is_chosen_is_reinitialized_by_a_snapshot(
    dag: DAG, fake_spark: FakeSpark, idle_checks: IdleChecks, marked: list[SnapshotRequest]
) -> None:
    idle_checks.results = {"snapshot": None}
    fake_spark.answer("snapshot", SNAPSHOT)
    finished = dag.test(run_conf={"subscriptions": ["reporting"], "articles": ["purchasing.vendor"]})
    assert states(finished) == {"reinitialize_reporting": "success", "reinitialize_audit": "skipped"}
    assert [(it.subscription, it.articles) for it in marked] == [("reporting", ("purchasing.vendor",))]
    assert [(call["job"], call["request"]["subscription"]) for call in fake_spark.calls] == [("snapshot", "reporting")]
    with create_session() as session:
        events = session.scalars(select(AssetEvent).where(AssetEvent.source_run_id == finished.run_id))
        assert {event.asset.uri for event in events} == {
            "x-tranrepl://purchasing/reporting/purchasing.vendor",
            "postgres://db:5432/shop/purchasing/vendor",
        }
    assert note_of(finished) == "reporting: snapshot of 7 rows"


def test_what_cannot_be_reinitialized_fails_the_run_and_is_its_note(
    dag: DAG, fake_spark: FakeSpark, idle_checks: IdleChecks, marked: list[SnapshotRequest]
) -> None:
    idle_checks.results = {"snapshot": None}
    fake_spark.answer("snapshot", JobResult(error=ConfigurationError("table holds rows").report), exit_code=1)
    finished = dag.test(run_conf={"subscriptions": ["audit"]})
    assert finished.state == "failed"
    assert [(it.subscription, it.articles) for it in marked] == [("audit", ())]
    assert note_of(finished) == "audit: `table holds rows`"


def test_a_run_marks_once_however_often_its_task_is_tried(
    dag: DAG, fake_spark: FakeSpark, idle_checks: IdleChecks, marked: list[SnapshotRequest]
) -> None:
    idle_checks.results = {"snapshot": None}
    fake_spark.answer("snapshot", JobResult(error=TransientError("server closed").report), exit_code=1)
    tries = (dag.get_task("reinitialize_reporting").retries or 0) + 1
    for run in (1, 2):
        finished = dag.test(run_conf={"subscriptions": ["reporting"]})
        assert states(finished)["reinitialize_reporting"] == "failed"
        assert fake_spark.jobs == ["snapshot"] * tries * run
        assert [it.subscription for it in marked] == ["reporting"] * run


@pytest.mark.slow
def test_a_try_that_could_not_mark_is_followed_by_one_that_does(
    dag: DAG,
    fake_spark: FakeSpark,
    idle_checks: IdleChecks,
    marked: list[SnapshotRequest],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[SnapshotRequest] = []

    def mark(request: SnapshotRequest, _: Topology) -> None:
        tried.append(request)
        if len(tried) == 1:
            raise TransientError("server closed")
        marked.append(request)

    monkeypatch.setattr(sys.modules["tranrepl.snapshot.reinitialization"], "mark_for_reinitialization", mark)
    idle_checks.results = {"snapshot": None}
    fake_spark.answer("snapshot", SNAPSHOT)
    finished = dag.test(run_conf={"subscriptions": ["reporting"]})
    assert states(finished)["reinitialize_reporting"] == "success"
    assert (len(tried), len(marked), fake_spark.jobs) == (2, 1, ["snapshot"])


def note_of(finished: DagRun) -> str | None:
    """Call the scheduler's listener, and return its note of the run; `dag.test()` leaves the run in no session."""
    with create_session() as session:
        held: Any = session.get_one(DagRun, finished.id)
        held.dag = finished.dag
        on_dag_run_failed(held, "")
        return session.scalars(select(DagRunNote.content).where(DagRunNote.dag_run_id == finished.id)).one()


def test_without_a_subscription_that_takes_snapshots_there_is_no_such_dag(
    publications: Path, dag_file: Path, write_publication: PublicationWriter
) -> None:
    only = {"name": "reporting", "connection": "subscriber", "sync_type": "replication_support_only"}
    write_publication(subscriptions=[only])
    assert set(DagBag(publications.parent).dags) == {"purchasing"}


def test_a_broken_file_has_no_such_dag(
    publications: Path, dag_file: Path, write_publication: PublicationWriter
) -> None:
    write_publication(articles=[])
    bag = DagBag(publications.parent)
    assert bag.import_errors == {}
    assert set(bag.dags) == {"purchasing"}
