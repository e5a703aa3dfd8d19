"""The DAGs that check, set up and administer a publication, between real databases."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from airflow.dag_processing.dagbag import DagBag
from airflow.models.dagrun import DagRun, DagRunNote
from airflow.sdk import DAG
from airflow.sdk.exceptions import ParamValidationError
from airflow.utils.session import create_session
from sqlalchemy import select

from support.checkout import CHECKOUT
from support.in_process import deliver_stored, read_log_into_store
from support.observed import ITEM, distribution_rows, insert_transactions, stored_commands, watermark
from support.site import Site
from support.spark_here import SparkHere
from tranrepl_airflow.monitor.recent_runs import last_check
from tranrepl_airflow.publication_setup import CheckReport
from tranrepl_airflow.run_note import on_dag_run_failed

if TYPE_CHECKING:
    from conftest import DatabasesFactory

_FILES = ("setup.py", "administration.py")


@pytest.fixture
def site(databases: DatabasesFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Make a table at the Publisher, and set nothing up; Airflow has the connections."""
    here = databases(migrated=False)
    for name, value in here.environment.items():
        monkeypatch.setenv(name, value)
    subscription = {"name": "reporting", "connection": "subscriber", "commit_batch_size": 1}
    site = Site(here, tmp_path / "store", ["public.item"], SparkHere(), [subscription])
    site.at_publisher(ITEM)
    return site


@pytest.fixture
def dags(site: Site, publications: Path) -> Iterator[dict[str, DAG]]:
    document = site.publication.model_dump(mode="json")
    (publications / "purchasing.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    for file in _FILES:
        shutil.copy(CHECKOUT / "dags" / file, publications.parent)
    bag = DagBag(publications.parent)
    assert bag.import_errors == {}
    for dag in bag.dags.values():
        for task in dag.tasks:
            task.retry_delay = timedelta(0)
    yield dict(bag.dags)
    for file in _FILES:
        (publications.parent / file).unlink()


def _states(run: DagRun) -> dict[str, str]:
    return {it.task_id: str(it.state) for it in run.get_task_instances() if it.state != "skipped"}


def _note(run: DagRun) -> str | None:
    """Return what the scheduler's listener writes of the run; `dag.test()` holds it in no session when it ends."""
    with create_session() as session:
        held: Any = session.get_one(DagRun, run.id)
        held.dag = run.dag
        on_dag_run_failed(held, "")
        return session.scalars(select(DagRunNote.content).where(DagRunNote.dag_run_id == run.id)).one()


def _report(run: DagRun, task: str) -> Any:
    (found,) = [it for it in run.get_task_instances() if it.task_id == task]
    return found.xcom_pull(task_ids=task, key="report")


def test_a_check_reports_and_changes_nothing(site: Site, dags: dict[str, DAG]) -> None:
    run = dags["purchasing_setup"].test(run_conf={"check_only": True})
    assert _states(run) == {"check": "success"}
    assert _note(run) == "check: 1 article, 1 subscription: no errors, no warnings"
    assert distribution_rows(site, "SELECT to_regclass('mspublications')") == [(None,)]
    site.at_publisher("ALTER TABLE item DROP CONSTRAINT item_pkey")
    run = dags["purchasing_setup"].test(run_conf={"check_only": True})
    assert _states(run) == {"check": "failed", "setup": "upstream_failed"}
    (problem,) = CheckReport.model_validate(_report(run, "check")).problems
    assert "item" in problem.message
    assert problem.blocks_setup
    last = last_check("purchasing_setup")
    assert last is not None
    assert (last.run_id, last.report.problems) == (run.run_id, (problem,))
    assert str(_note(run)).startswith(f"check: `{problem.message[:100]}")


def test_a_publication_is_set_up_without_a_shell(site: Site, dags: dict[str, DAG]) -> None:
    run = dags["purchasing_setup"].test(run_conf={})
    assert _states(run) == {"check": "success", "setup": "success"}
    done = _report(run, "setup")
    assert len(done) > 3
    assert f"setup: set up: {len(done)} changes" in str(_note(run))
    insert_transactions(site, 1, 2)
    read_log_into_store(site).raise_error()
    deliver_stored(site).raise_error()
    assert site.differences() == []
    again = dags["purchasing_setup"].test(run_conf={})
    assert "setup: nothing to do" in str(_note(again))


def test_what_setup_cannot_work_with_stops_it(site: Site, dags: dict[str, DAG]) -> None:
    site.at_publisher("DROP TABLE item")
    run = dags["purchasing_setup"].test(run_conf={})
    assert _states(run) == {"check": "failed", "setup": "upstream_failed"}
    assert distribution_rows(site, "SELECT to_regclass('mspublications')") == [(None,)]


def test_a_transaction_is_skipped_and_delivered_again_by_hand(site: Site, dags: dict[str, DAG]) -> None:
    dag = dags["purchasing_administer"]
    site.set_up()
    site.at_subscriber("INSERT INTO item VALUES (2, 0, 'mine')")
    insert_transactions(site, 1, 1, 1)
    read_log_into_store(site).raise_error()
    first, second, third = [it.xact_seqno for it in stored_commands(site)]
    assert deliver_stored(site).error is not None

    assert site.deliver().error is not None
    seen = dag.test(run_conf={"action": "acknowledge"})
    assert _states(seen) == {"acknowledge": "success"}
    assert "acknowledge: acknowledged: error 2627 (23505) of reporting, " in str(_note(seen))
    rows = "SELECT acknowledged_by, acknowledged_at IS NOT NULL FROM msrepl_errors WHERE NOT skipped"
    assert distribution_rows(site, rows) == [("dag_test", True)]

    wrong = dag.test(run_conf={"action": "skip", "subscription": "reporting", "xact_seqno": third})
    assert _states(wrong) == {"skip": "failed"}
    assert _note(wrong) == f"skip: `subscription reporting: the next transaction is 0x{second}`"
    assert watermark(site).hex() == first
    skipped = dag.test(run_conf={"action": "skip", "subscription": "reporting", "xact_seqno": f"0x{second}"})
    assert _states(skipped) == {"skip": "success"}
    assert _note(skipped) == (f"skip: subscription reporting: transaction 0x{second} was skipped by an administrator")
    deliver_stored(site).raise_error()
    assert site.at_subscriber("SELECT id, note FROM item ORDER BY id") == [(1, "item"), (2, "mine"), (3, "item")]

    site.at_subscriber("DELETE FROM item WHERE id = 3")
    back = dag.test(run_conf={"action": "retry", "subscription": "reporting", "xact_seqno": third})
    assert _states(back) == {"retry": "success"}
    deliver_stored(site).raise_error()
    assert len(site.at_subscriber("SELECT id FROM item")) == 3


def test_a_token_and_a_clean_up_are_asked_for_by_hand(site: Site, dags: dict[str, DAG]) -> None:
    dag = dags["purchasing_administer"]
    site.set_up()
    traced = dag.test(run_conf={"action": "trace"})
    assert _states(traced) == {"trace": "success"}
    site.read_log().raise_error()
    site.deliver().raise_error()
    assert [it.operation for it in stored_commands(site)] == ["TRACER_TOKEN"]
    assert stored_commands(site)[0].command.split()[-1] in str(_note(traced))
    distribution_rows(site, "UPDATE msrepl_batches SET entry_time = now() - interval '30 days'", "SELECT 1")
    assert _states(dag.test(run_conf={"action": "cleanup"})) == {"cleanup": "success"}
    assert stored_commands(site) == []
    assert _note(dag.test(run_conf={"action": "test_alert"})) == (
        "test_alert: the file has no alerts: nothing was sent"
    )


def test_nothing_is_done_that_nobody_has_chosen(dags: dict[str, DAG]) -> None:
    dag = dags["purchasing_administer"]
    assert not dag.is_paused_upon_creation
    assert all(it.doc_md for it in (dag, *dag.tasks, dags["purchasing_setup"], *dags["purchasing_setup"].tasks))
    with pytest.raises(ParamValidationError):
        dag.params.validate()
    dag.params.update({"action": "skip", "subscription": "reporting", "xact_seqno": "0x0000000000000010"})
    dag.params.validate()
    for name, value in (("action", "drop"), ("subscription", "reportin"), ("xact_seqno", "0x10")):
        with pytest.raises(ParamValidationError):
            dag.params[name] = value


def test_a_skip_without_a_transaction_fails(site: Site, dags: dict[str, DAG]) -> None:
    run = dags["purchasing_administer"].test(run_conf={"action": "skip", "subscription": "reporting"})
    assert _states(run) == {"skip": "failed"}
    assert _note(run) == "skip: `skip: a subscription and an xact_seqno are needed`"
