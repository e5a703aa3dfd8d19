"""The validation DAG: what its tasks ask of the job, and who gets an alert when rows differ."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG, CronTriggerTimetable
from airflow.utils.types import DagRunType

from support.checkout import CHECKOUT
from support.receivers import web_server
from tranrepl.errors import DataError
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.validation_report import (
    ArticleValidation,
    Comparison,
    Difference,
    DifferingRow,
    SubscriptionValidation,
)

if TYPE_CHECKING:
    from airflow.conftest import FakeSpark, IdleChecks, PublicationWriter

HOOK = {"notifier": "tranrepl_airflow.webhook.WebhookNotifier", "arguments": {"connection": "pager"}}


@pytest.fixture
def dag_file(airflow_home: Path) -> Iterator[Path]:
    """Write the DAG file beside the publications' own."""
    path = airflow_home / "dags" / "validation.py"
    shutil.copy(CHECKOUT / "dags" / "validation.py", path)
    yield path
    path.unlink()


@pytest.fixture
def dag(publications: Path, dag_file: Path, write_publication: PublicationWriter) -> DAG:
    write_publication(
        subscriptions=[{"name": "reporting", "connection": "subscriber"}],
        alerts=[HOOK],
        validation_schedule="30 2 * * *",
    )
    bag = DagBag(publications.parent)
    assert bag.import_errors == {}
    parsed: DAG = bag.dags["purchasing_validate"]
    for task in parsed.tasks:
        task.retry_delay = timedelta(0)
    return parsed


def _different() -> JobResult:
    rows = tuple(DifferingRow(difference=Difference.MISSING, key={"id": str(number)}) for number in range(30))
    article = ArticleValidation(
        article="purchasing.vendor",
        destination="purchasing.vendor",
        publisher_rows=100,
        subscriber_rows=70,
        compared=Comparison(columns=("id", "name"), row_filter="id > 0"),
        missing=30,
        rows=rows,
    )
    error = DataError("data validation failed", number="20574", article="purchasing.vendor", key="id = 0")
    return JobResult(validation=SubscriptionValidation(xact_seqno="00ab", articles=(article,)), error=error.report)


def test_a_task_for_each_subscription_on_its_own_schedule(dag: DAG) -> None:
    assert [task.task_id for task in dag.tasks] == ["validate_reporting", "delivered_reporting", "equal_reporting"]
    task = dag.get_task("validate_reporting")
    assert (task.pool, task.retries) == ("default_pool", 2)
    assert isinstance(dag.timetable, CronTriggerTimetable)


def test_a_validation_is_not_offered_for_backfills(dag: DAG) -> None:
    allowed: Any = dag.allowed_run_types
    assert {it.value for it in DagRunType} - {it.value for it in allowed} == {"backfill"}


def test_a_broken_file_has_no_validation_dag(
    publications: Path, dag_file: Path, write_publication: PublicationWriter
) -> None:
    write_publication(articles=[])
    bag = DagBag(publications.parent)
    assert bag.import_errors == {}
    assert list(bag.dags) == ["purchasing"]


@pytest.mark.parametrize(
    ("conf", "asked"),
    [
        ({}, ([], False, "none")),
        ({"articles": ["purchasing.vendor"], "repair": True}, (["purchasing.vendor"], False, "apply")),
        ({"rowcount_only": True, "articles": ['sales."Order Details"']}, (['sales."Order Details"'], True, "none")),
        ({"subscriptions": ["reporting"], "articles": None, "repair": None}, ([], False, "none")),
    ],
)
def test_the_runs_parameters_reach_the_job(
    dag: DAG, fake_spark: FakeSpark, idle_checks: IdleChecks, conf: dict[str, Any], asked: tuple[object, ...]
) -> None:
    fake_spark.answer("validation", JobResult(validation=SubscriptionValidation(xact_seqno="00ab")))
    assert dag.test(run_conf=conf).state == "success"
    (call,) = fake_spark.calls
    request = call["request"]
    assert (request["articles"], request["rowcount_only"], request["repair"]) == asked
    assert request["subscription"] == "reporting"


def test_the_log_says_that_only_rows_were_counted(
    dag: DAG, fake_spark: FakeSpark, idle_checks: IdleChecks, capfd: pytest.CaptureFixture[str]
) -> None:
    article = ArticleValidation(article="purchasing.vendor", destination="v", publisher_rows=2, subscriber_rows=2)
    validation = SubscriptionValidation(xact_seqno="00ab", rowcount_only=True, articles=(article,))
    fake_spark.answer("validation", JobResult(validation=validation))
    assert dag.test(run_conf={"rowcount_only": True}).state == "success"
    assert "rows counted; contents not compared: purchasing.vendor" in capfd.readouterr().out


def test_rows_that_differ_fail_the_run_at_once_and_are_told(
    dag: DAG,
    fake_spark: FakeSpark,
    idle_checks: IdleChecks,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    fake_spark.answer("validation", _different(), exit_code=1)
    with web_server() as hook:
        monkeypatch.setenv("AIRFLOW_CONN_PAGER", json.dumps({"conn_type": "http", "host": hook.url}))
        finished = dag.test()
    assert finished.state == "failed"
    said = capfd.readouterr().out
    assert "2 columns; row filter applied: purchasing.vendor" in said
    assert "purchasing.vendor id = 0  missing" in said
    assert fake_spark.jobs == ["validation"]
    (post,) = hook.posts
    told = {name: post.body[name] for name in ("event", "summary", "text", "article", "key", "subscription")}
    assert told == {
        "event": "validation_failed",
        "summary": "purchasing/reporting: validation failed with error 20574",
        "text": "data validation failed",
        "article": "purchasing.vendor",
        "key": "id = 0",
        "subscription": "reporting",
    }
    assert {it.task_id: it.state for it in finished.get_task_instances()} == {
        "validate_reporting": "failed",
        "delivered_reporting": "success",
        "equal_reporting": "upstream_failed",
    }
    (instance,) = (it for it in finished.get_task_instances() if it.task_id == "validate_reporting")
    result = JobResult.model_validate(instance.xcom_pull(task_ids=instance.task_id, key="return_value"))
    assert result.validation is not None
    assert len(result.validation.articles[0].rows) == 20
    assert result.validation.articles[0].missing == 30
