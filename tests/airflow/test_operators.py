"""One replication job as an Airflow task: its request, its connections, and its settings."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator

from support.replication_tasks import (
    DONE,
    PASSWORD,
    PLUS_QUOTED_PASSWORD,
    QUOTED_PASSWORD,
    Run,
    distribution,
    log_reader,
)
from tranrepl.jobs.requests import ApplyMode, DistributionRequest, LogReaderRequest
from tranrepl.jobs.results import JobResult
from tranrepl.settings.publication import Publication
from tranrepl.spark.spark_submit import entry_point
from tranrepl_airflow.job_connections import resolve_connections
from tranrepl_airflow.monitor_link import MonitorLink
from tranrepl_airflow.outcome import ReplicationStopped

if TYPE_CHECKING:
    from airflow.conftest import FakeSpark, IdleChecks


def test_the_log_reader_job_gets_its_request(run: Run, publication: Publication, fake_spark: FakeSpark) -> None:
    fake_spark.answer("log_reader", DONE)
    assert run(log_reader(publication)) == DONE.model_dump(mode="json")
    (call,) = fake_spark.calls
    assert LogReaderRequest.model_validate(call["request"]) == LogReaderRequest(publication=publication)
    assert str(entry_point("log_reader")) in call["argv"]
    assert call["argv"][-4::2] == ["--request", "--result"]
    assert call["argv"][call["argv"].index("--name") + 1] == "tranrepl-purchasing-log_reader"


def test_the_distribution_job_gets_its_request(run: Run, publication: Publication, fake_spark: FakeSpark) -> None:
    run(distribution(publication, committed_before="2026-01-02T03:05:00+00:00", mode=ApplyMode.SINGLE_CONNECTION))
    (call,) = fake_spark.calls
    assert DistributionRequest.model_validate(call["request"]) == DistributionRequest(
        publication=publication,
        subscription="reporting",
        committed_before=datetime(2026, 1, 2, 3, 5, tzinfo=UTC),
        mode=ApplyMode.SINGLE_CONNECTION,
    )
    assert str(entry_point("distribution")) in call["argv"]


def test_the_request_is_the_owners_alone_and_gone_afterwards(
    run: Run, publication: Publication, fake_spark: FakeSpark
) -> None:
    run(log_reader(publication))
    (call,) = fake_spark.calls
    assert (call["request_mode"], call["folder_mode"]) == (0o600, 0o700)
    assert not Path(call["argv"][call["argv"].index("--request") + 1]).parent.exists()


def test_passwords_travel_in_the_environment_alone(
    run: Run, publication: Publication, fake_spark: FakeSpark, capfd: pytest.CaptureFixture[str]
) -> None:
    operator = distribution(publication)
    result = run(operator)
    log = capfd.readouterr().out
    assert "Spark-Submit cmd" in log
    (call,) = fake_spark.calls
    assert set(call["environment"]) == {f"AIRFLOW_CONN_{name}" for name in _DATABASES}
    assert json.loads(call["environment"]["AIRFLOW_CONN_SUBSCRIBER"])["password"] == PASSWORD
    elsewhere = json.dumps([call["argv"], call["request"], result]) + log
    rendered = {name: getattr(operator, name) for name in operator.template_fields}
    for text in (elsewhere, repr(rendered), repr(vars(operator)["publication"])):
        assert not [spelling for spelling in (PASSWORD, QUOTED_PASSWORD, PLUS_QUOTED_PASSWORD) if spelling in text]
    assert operator.env_vars is None
    assert "AIRFLOW_CONN_SUBSCRIBER" not in os.environ


# Not the other Subscribers': a job knows no more than it needs.
_DATABASES = ("PUBLISHER", "DISTRIBUTION", "SUBSCRIBER")


def test_every_spelling_of_a_password_is_masked(
    run: Run, publication: Publication, monkeypatch: pytest.MonkeyPatch
) -> None:
    masked: set[str] = set()
    monkeypatch.setattr("tranrepl_airflow.job_connections.mask_secret", masked.add)
    run(log_reader(publication))
    assert {PASSWORD, QUOTED_PASSWORD, PLUS_QUOTED_PASSWORD} <= masked


def test_passwords_of_an_extra_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    masked: set[str] = set()
    monkeypatch.setattr("tranrepl_airflow.job_connections.mask_secret", masked.add)
    monkeypatch.setenv("AIRFLOW_CONN_WITH_KEY", "postgres://me:secret@h/d?sslpassword=k%40y&sslkey=/client.key")
    resolve_connections(["with_key"])
    assert masked == {"secret", "k@y", "k%40y"}


@pytest.mark.parametrize("option", ["aws_session_token", "aws_secret_access_key", "sas_token", "account_key"])
def test_secrets_of_a_stores_extra_are_masked(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    masked: set[str] = set()
    monkeypatch.setattr("tranrepl_airflow.job_connections.mask_secret", masked.add)
    monkeypatch.setenv("AIRFLOW_CONN_STORE", json.dumps({"conn_type": "aws", "extra": {option: "hidden"}}))
    resolved = resolve_connections(["store"])
    assert masked == {"hidden"}
    assert "hidden" not in repr(resolved.by_id["store"])


def test_user_settings_are_kept_and_win(run: Run, publication: Publication, fake_spark: FakeSpark) -> None:
    operator = log_reader(publication, conf={"spark.ui.enabled": "true"}, env_vars={"LANG": "C"}, name="mine")
    run(operator)
    (call,) = fake_spark.calls
    assert "spark.ui.enabled=true" in call["argv"]
    assert f"spark.pyspark.python={sys.executable}" in call["argv"]
    assert (operator.conf, operator.env_vars, operator.name) == ({"spark.ui.enabled": "true"}, {"LANG": "C"}, "mine")
    assert (operator.application, operator.application_args) == ("", None)


def test_a_second_try_submits_a_request_of_its_own(run: Run, publication: Publication, fake_spark: FakeSpark) -> None:
    operator = log_reader(publication)
    run(operator)
    run(operator)
    first, second = (call["argv"][-1] for call in fake_spark.calls)
    assert first != second


@pytest.mark.parametrize("job", ["log_reader", "distribution"])
def test_nothing_to_do_starts_no_spark_job(
    run: Run, publication: Publication, fake_spark: FakeSpark, idle_checks: IdleChecks, job: str
) -> None:
    idle_checks.results[job] = JobResult(last_xact_seqno="0b")
    operator = log_reader(publication) if job == "log_reader" else distribution(publication)
    assert run(operator) == JobResult(last_xact_seqno="0b").model_dump(mode="json")
    assert fake_spark.calls == []
    ((request, connections),) = idle_checks.asked
    assert request == operator.request()
    assert connections["distribution"].password == PASSWORD


def test_missing_connections_are_all_named(
    run: Run, publication: Publication, connections: dict[str, Any], fake_spark: FakeSpark
) -> None:
    del connections["publisher"], connections["distribution"]
    with pytest.raises(ReplicationStopped, match=r"(?s)connection publisher, distribution.*airflow connections add"):
        run(log_reader(publication))
    assert fake_spark.calls == []


def test_a_task_links_to_its_run_in_replication_monitor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example/base/")
    run = SimpleNamespace(dag_id="shop", run_id="manual__2026-01-01T00:00:00+00:00")
    assert MonitorLink().get_link(EmptyOperator(task_id="x"), ti_key=run) == (
        "https://airflow.example/base/monitor/publication/shop/runs/manual__2026-01-01T00%3A00%3A00%2B00%3A00"
    )
