"""The DAG of `schedule: continuous`: one run follows the other, with continuous agents side by side until its end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.models.dagrun import DagRun
from airflow.sdk import DAG
from airflow.sdk.definitions.timetables.simple import ContinuousTimetable

from tranrepl.errors import ConfigurationError, DataError, ReplicationError, TransientError
from tranrepl.jobs import retry
from tranrepl.jobs.results import JobResult
from tranrepl.settings.publication import Publication
from tranrepl_airflow import alert_callbacks
from tranrepl_airflow.dag_builder import publication_dag
from tranrepl_airflow.graph import Dependency, StartRule, Task, replication_graph
from tranrepl_airflow.operators import LogReaderOperator
from tranrepl_airflow.reinitialization import reinitialization_dag

if TYPE_CHECKING:
    from airflow.conftest import FakeSpark, IdleChecks, PublicationWriter

_RUN_FOR = 2


@pytest.fixture
def run_for(request: pytest.FixtureRequest) -> int:
    """Return how many seconds a run lasts: two, unless a test says otherwise."""
    return int(getattr(request, "param", _RUN_FOR))


@pytest.fixture
def dag(
    run_for: int,
    publications: Path,
    write_publication: PublicationWriter,
    idle_checks: IdleChecks,
    fake_spark: FakeSpark,
    monkeypatch: pytest.MonkeyPatch,
) -> DAG:
    """Return the DAG of one subscription as Airflow parses it."""
    monkeypatch.setattr(retry, "PAUSES_SECONDS", (0.2, 0.2))
    subscription = {"name": "reporting", "connection": "subscriber"}
    # New tables of a pattern are looked for beside the log reader.
    articles = [{"source": "purchasing.*", "destination": "archive.*", "new_tables": "join"}]
    write_publication(schedule="continuous", run_for=run_for, subscriptions=[subscription], articles=articles)
    bag = DagBag(publications.parent)
    assert bag.import_errors == {}
    parsed: DAG = bag.dags["purchasing"]
    for task in parsed.tasks:
        task.retry_delay = timedelta(0)
    return parsed


def _states(finished: DagRun) -> dict[str, str]:
    return {it.task_id.removeprefix("reporting."): str(it.state) for it in finished.get_task_instances()}


def _failing(error: ReplicationError) -> JobResult:
    return JobResult(error=error.report)


def test_log_reader_and_deliveries_are_side_by_side(publication: Publication) -> None:
    graph = replication_graph(publication.model_copy(update={"schedule": "continuous"}))
    group = graph.groups[0]
    assert group.initialize == Task("reporting.initialize", (), StartRule.ALL_ENDED, 2)
    assert group.distribute.after == (Dependency("reporting.initialize"),)
    assert graph.run_is_over == Task("run_is_over", (Dependency("log_reader"),), StartRule.ALL_ENDED)
    assert graph.run_is_over in list(graph.tasks())


def test_runs_follow_one_another_and_are_not_late(publication: Publication) -> None:
    alert = {"notifier": "tranrepl_airflow.webhook.WebhookNotifier", "arguments": {"connection": "pager"}}
    document = publication.model_dump(mode="json") | {"latency_threshold": 60, "alerts": [alert]}
    scheduled = publication_dag(Publication.model_validate(document), "shop.yaml")
    continuous = publication_dag(Publication.model_validate(document | {"schedule": "continuous"}), "shop.yaml")
    assert isinstance(continuous.timetable, ContinuousTimetable)
    assert (continuous.max_active_runs, bool(continuous.deadline), bool(scheduled.deadline)) == (1, False, True)


def test_a_reinitialization_does_not_wait_for_a_delivery_that_stays(publication: Publication) -> None:
    pools = {}
    for schedule in ("*/5 * * * *", "continuous"):
        dag = reinitialization_dag(publication.model_copy(update={"schedule": schedule}), "shop.yaml")
        assert dag is not None
        pools[schedule] = {task.pool for task in dag.tasks}
    assert pools["continuous"] == {"default_pool"}
    assert "default_pool" not in pools["*/5 * * * *"]


def test_all_tasks_of_a_run_continuous_until_the_same_time(dag: DAG, fake_spark: FakeSpark) -> None:
    finished = dag.test()
    assert finished.state == "success"
    assert set(_states(finished).values()) == {"success"}
    requests = [call["request"] for call in fake_spark.calls]
    (until,) = {it["continuous_until"] for it in requests}
    assert finished.start_date is not None
    # dag.test() starts the run once more than its tasks see.
    assert abs(datetime.fromisoformat(until) - finished.start_date - timedelta(seconds=_RUN_FOR)) < timedelta(seconds=2)
    assert {it["job"] for it in requests} == {"log_reader", "distribution"}
    assert {it.get("committed_before") for it in requests} == {None}


def test_a_batch_that_failed_goes_serially_and_the_delivery_stays_on(dag: DAG, fake_spark: FakeSpark) -> None:
    fake_spark.answer("streams", _failing(DataError("row not found")), exit_code=1)
    fake_spark.answer("single_connection", JobResult(transactions=1, commands=1))
    finished = dag.test()
    assert finished.state == "success"
    states = _states(finished)
    assert (states["distribute"], states["retry_on_single_connection"]) == ("failed", "success")
    deliveries = [call["request"] for call in fake_spark.calls if call["request"]["job"] == "distribution"]
    assert [(it["mode"], it["continuous_until"] is None) for it in deliveries[:2]] == [
        ("streams", False),
        ("single_connection", True),
    ]


# The first task of a process may take some seconds to start, which are seconds of the run.
@pytest.mark.parametrize("run_for", [4 * _RUN_FOR], indirect=True)
def test_a_log_reader_goes_on_after_what_passes(
    dag: DAG, fake_spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "PAUSES_SECONDS", (0.05, 0.05))
    fake_spark.answer("log_reader", _failing(TransientError("the Publisher is away")), exit_code=1)
    finished = dag.test()
    assert _states(finished)["log_reader"] == "failed"
    # More often than the task is tried: within the run.
    assert fake_spark.jobs.count("log_reader") > 5


def test_runs_that_fail_do_not_chase_one_another(dag: DAG, fake_spark: FakeSpark) -> None:
    for job in ("log_reader", "streams"):
        fake_spark.answer(job, _failing(ConfigurationError("the connection is gone")), exit_code=1)
    finished = dag.test()
    assert finished.state == "failed"
    assert finished.start_date is not None
    assert finished.end_date is not None
    assert finished.end_date - finished.start_date > timedelta(seconds=_RUN_FOR - 1)
    assert _states(finished)["run_is_over"] == "success"


def test_warnings_are_looked_for_while_a_log_reader_stays(
    publication: Publication, run: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(alert_callbacks, "_LOOKED_EVERY_SECONDS", 0.05)
    monkeypatch.setattr(alert_callbacks, "alert_early", lambda it, *_: told.append(it.publication))
    alert = {"notifier": "tranrepl_airflow.webhook.WebhookNotifier", "arguments": {"connection": "pager"}}
    continuous = {"schedule": "continuous", "run_for": 1, "alerts": [alert]}
    dag = publication_dag(Publication.model_validate(publication.model_dump(mode="json") | continuous), "shop.yaml")
    operator = dag.get_task("log_reader")
    assert isinstance(operator, LogReaderOperator)
    operator.continuous_until = (datetime.now().astimezone() + timedelta(seconds=1)).isoformat()
    run(operator)
    assert len(told) > 1
