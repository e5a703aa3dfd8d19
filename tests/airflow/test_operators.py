"""One replication job as an Airflow task: what reaches spark-submit, and what becomes of its result."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import BaseHook, Connection
from airflow.sdk.definitions.retry_policy import RetryAction
from airflow.sdk.exceptions import AirflowNotFoundException, AirflowSkipException

from tranrepl.error_numbers import Codes
from tranrepl.errors import ConfigurationError, DataError, ErrorKind, ErrorReport, FencedError, TransientError
from tranrepl.jobs.requests import ApplyMode, DistributionRequest, LogReaderRequest
from tranrepl.jobs.results import JobResult
from tranrepl.next_steps import Place, error_block
from tranrepl.settings.publication import Publication
from tranrepl.spark import class_archive
from tranrepl.spark.submission import entry_point
from tranrepl_airflow.operators import (
    DistributionOperator,
    LogReaderOperator,
    ReplicationSparkOperator,
    SingleConnectionRetryOperator,
)
from tranrepl_airflow.outcome import ReplicationCrashed, ReplicationStopped

if TYPE_CHECKING:
    from airflow.conftest import FakeSpark, IdleChecks

PASSWORD = "p@ss /word!"  # noqa: S105
QUOTED_PASSWORD = "p%40ss%20%2Fword%21"  # noqa: S105
PLUS_QUOTED_PASSWORD = "p%40ss+%2Fword%21"  # noqa: S105
DONE = JobResult(transactions=3, commands=7, commands_by_article={"purchasing.vendor": 7}, last_xact_seqno="0a")


@dataclass
class FakeTaskInstance:
    """What an operator asks of its task instance."""

    first_attempt_state: str = "failed"
    error: dict[str, Any] | None = None
    dag_id: str = "purchasing"
    run_id: str = "run"
    pushed: dict[str, Any] = field(default_factory=dict)

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = json.loads(json.dumps(value))

    def xcom_pull(self, **wanted: str) -> Any:
        assert wanted["key"] == "error"
        return {"distribute": self.error, "log_reader": None}[wanted["task_ids"]]

    def get_task_states(self, **wanted: Any) -> dict[str, dict[str, str]]:
        assert wanted == {"dag_id": self.dag_id, "task_ids": ["distribute"], "run_ids": [self.run_id]}
        return {self.run_id: {"distribute": self.first_attempt_state}}


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch, stored_connections: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The connections of a secrets backend; a test may change them."""

    def get_connection(_: type[BaseHook], connection_id: str) -> Connection:
        if connection_id not in stored_connections:
            raise AirflowNotFoundException(f"The conn_id `{connection_id}` isn't defined")
        fields = stored_connections[connection_id]
        extra = json.dumps(fields["extra"]) if "extra" in fields else None
        return Connection(conn_id=connection_id, **{**fields, "extra": extra})

    monkeypatch.setattr(BaseHook, "get_connection", classmethod(get_connection))
    return stored_connections


@pytest.fixture
def ti() -> FakeTaskInstance:
    return FakeTaskInstance()


@pytest.fixture
def run(
    connections: dict[str, Any], fake_spark: FakeSpark, idle_checks: IdleChecks, ti: FakeTaskInstance
) -> Callable[[ReplicationSparkOperator], Any]:
    """Execute an operator where there is work to do."""
    return lambda operator: operator.execute({"ti": ti})  # type: ignore[typeddict-item]


def log_reader(publication: Publication, **arguments: Any) -> LogReaderOperator:
    return LogReaderOperator(task_id="log_reader", publication=publication.model_dump(mode="json"), **arguments)


def distribution(publication: Publication, **arguments: Any) -> DistributionOperator:
    settings = {"publication": publication.model_dump(mode="json"), "subscription": "reporting"}
    return DistributionOperator(task_id="distribute", **{"committed_before": "", **settings, **arguments})


def retry(publication: Publication) -> SingleConnectionRetryOperator:
    return SingleConnectionRetryOperator(
        task_id="retry",
        publication=publication.model_dump(mode="json"),
        subscription="reporting",
        first_attempt="distribute",
        committed_before="",
    )


Run = Callable[[ReplicationSparkOperator], Any]


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


def test_the_job_starts_from_the_archive_of_classes(
    run: Run, publication: Publication, fake_spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_archive, "find_archive", lambda _: Path("/archive.jsa"))
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    run(log_reader(publication))
    run(log_reader(publication, env_vars={"SPARK_SUBMIT_OPTS": "-Dmine=1"}))
    monkeypatch.setattr(class_archive, "find_archive", lambda _: None)
    run(log_reader(publication))
    first, own, without = (call["java_options"] for call in fake_spark.calls)
    assert '"-XX:SharedArchiveFile=/archive.jsa" -Xshare:auto ' in first
    assert own == f"{first} -Dmine=1"
    assert "SharedArchiveFile" not in without


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


def test_executors_on_a_cluster_keep_their_own_python(
    run: Run, publication: Publication, fake_spark: FakeSpark, connections: dict[str, Any]
) -> None:
    connections["spark_default"] = {"conn_type": "spark", "host": "spark://head", "port": 7077}
    run(log_reader(publication))
    (call,) = fake_spark.calls
    assert call["argv"][call["argv"].index("--master") + 1] == "spark://head:7077"
    assert not [argument for argument in call["argv"] if argument.startswith("spark.pyspark.python=")]
    assert not [argument for argument in call["argv"] if "127.0.0.1" in argument]


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


@pytest.mark.parametrize(
    ("error", "decision"),
    [
        (TransientError("connection lost"), RetryAction.DEFAULT),
        (DataError("row not found", remedy="see tranrepl browse", number="20598"), RetryAction.FAIL),
        (ConfigurationError("no such table", remedy="run tranrepl setup"), RetryAction.FAIL),
    ],
)
def test_an_error_decides_about_retries_by_its_class(
    run: Run,
    publication: Publication,
    fake_spark: FakeSpark,
    ti: FakeTaskInstance,
    error: TransientError | DataError | ConfigurationError,
    decision: RetryAction,
) -> None:
    failed = DONE.model_copy(update={"error": error.report})
    fake_spark.answer("streams", failed, exit_code=1)
    operator = distribution(publication)
    with pytest.raises(ReplicationStopped) as raised:
        run(operator)
    assert operator.retry_policy is not None
    assert operator.retry_policy.evaluate(raised.value, 1, 2).action is decision
    assert str(raised.value) == str(error)
    assert raised.value.__context__ is None, "a second traceback in the log"
    assert ErrorReport.model_validate(ti.pushed["error"]) == error.report
    assert JobResult.model_validate(ti.pushed["return_value"]) == failed


def test_an_error_of_the_idle_check_counts_as_the_jobs(
    run: Run, publication: Publication, monkeypatch: pytest.MonkeyPatch, idle_checks: IdleChecks, ti: FakeTaskInstance
) -> None:
    def refuse(*_: object) -> JobResult:
        raise ConfigurationError("wrong password")

    monkeypatch.setattr(sys.modules["tranrepl.log_reader.agent"], "idle_result", refuse)
    with pytest.raises(ReplicationStopped, match="wrong password"):
        run(log_reader(publication))
    assert ti.pushed["error"]["kind"] == "configuration"


def test_a_fenced_job_ends_cleanly_with_nothing_done(
    run: Run,
    publication: Publication,
    fake_spark: FakeSpark,
    ti: FakeTaskInstance,
    capfd: pytest.CaptureFixture[str],
) -> None:
    fenced = JobResult(error=FencedError("another job applies it").report)
    fake_spark.answer("streams", fenced, exit_code=1)
    assert run(distribution(publication)) == JobResult().model_dump(mode="json")
    assert ti.pushed == {}
    assert "another job applies it" in capfd.readouterr().out


def test_a_job_without_a_result_is_tried_again_and_shows_its_last_output(
    run: Run, publication: Publication, fake_spark: FakeSpark, ti: FakeTaskInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tranrepl_airflow.operators.require_java", lambda: None)
    fake_spark.answer("log_reader", None, exit_code=137, output=f"postgresql://repl:{QUOTED_PASSWORD}@db Killed")
    operator = log_reader(publication)
    with pytest.raises(ReplicationCrashed, match=r"postgresql://repl:\*\*\*@db Killed") as raised:
        run(operator)
    assert operator.retry_policy is not None
    assert operator.retry_policy.evaluate(raised.value, 1, 2).action is RetryAction.DEFAULT
    assert "p%40ss" not in json.dumps(ti.pushed)


def test_a_password_in_a_jobs_error_goes_no_further(
    run: Run, publication: Publication, fake_spark: FakeSpark, ti: FakeTaskInstance, caplog: pytest.LogCaptureFixture
) -> None:
    error = DataError(f"at {PLUS_QUOTED_PASSWORD}", remedy=f"not {PASSWORD}", key=PASSWORD, command=f"CALL {PASSWORD}")
    report = error.report
    fake_spark.answer("streams", JobResult(error=report, skipped=1, first_skipped=(report,)), exit_code=1)
    with pytest.raises(ReplicationStopped) as raised:
        run(distribution(publication))
    assert str(raised.value) == "at ***\nnot ***"
    (skipped,) = ti.pushed["return_value"]["first_skipped"]
    assert (skipped["message"], skipped["key"]) == ("at ***", "***")
    assert (ti.pushed["error"]["message"], ti.pushed["return_value"]["error"]["remedy"]) == ("at ***", "not ***")
    assert "CALL ***" in caplog.text
    assert not [spelling for spelling in (PASSWORD, PLUS_QUOTED_PASSWORD) if spelling in caplog.text]


def test_the_log_has_the_commands_to_go_on_with_and_the_xcom_no_values(
    run: Run, publication: Publication, fake_spark: FakeSpark, ti: FakeTaskInstance, caplog: pytest.LogCaptureFixture
) -> None:
    error = DataError(
        "row not found",
        **Codes.POSTGRES.value.numbered("23505"),
        xact_seqno="00ab",
        command_id=7,
        article='sales."Order Details"',
        key="id = 5",
        command="{CALL [sp_MSins] (5, 'secret row')}",
    )
    fake_spark.answer("streams", JobResult(error=error.report), exit_code=1)
    with pytest.raises(ReplicationStopped):
        run(distribution(publication, settings_file="/dags/my publications/purchasing.yaml"))
    place = Place("/dags/my publications/purchasing.yaml", "reporting")
    assert caplog.messages[-1] == error_block(error.report, place)
    assert "secret row" not in json.dumps(ti.pushed)
    assert (ti.pushed["error"]["number"], ti.pushed["error"]["database_code"]) == ("2627", "23505")


def test_a_missing_java_is_told_instead(
    run: Run, publication: Publication, fake_spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_spark.folder))
    fake_spark.answer("log_reader", None, exit_code=1, output="JAVA_HOME is not set")
    with pytest.raises(ReplicationStopped, match="Spark needs Java"):
        run(log_reader(publication))


def test_a_result_cut_short_is_no_result(
    run: Run, publication: Publication, fake_spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_spark.answer("log_reader", DONE)
    answer = fake_spark.folder / "log_reader.answer"
    answer.write_text(answer.read_text().replace('"result": "{', '"result": "'))
    with pytest.raises(ReplicationCrashed, match="left no result"):
        run(log_reader(publication))


def test_what_the_job_did_counts_though_spark_failed_afterwards(
    run: Run, publication: Publication, fake_spark: FakeSpark
) -> None:
    fake_spark.answer("log_reader", DONE, exit_code=1)
    assert run(log_reader(publication)) == DONE.model_dump(mode="json")


def test_missing_connections_are_all_named(
    run: Run, publication: Publication, connections: dict[str, Any], fake_spark: FakeSpark
) -> None:
    del connections["publisher"], connections["distribution"]
    with pytest.raises(ReplicationStopped, match=r"(?s)connection publisher, distribution.*airflow connections add"):
        run(log_reader(publication))
    assert fake_spark.calls == []


@pytest.mark.parametrize(
    ("spark_connection", "message"),
    [
        (None, "Spark connection spark_default"),
        ({"conn_type": "spark", "host": "yarn"}, "yarn in client mode"),
        ({"conn_type": "spark", "host": "k8s://https://cluster"}, "k8s://https://cluster in client mode"),
        ({"conn_type": "spark", "host": "spark://head:7077", "extra": {"deploy-mode": "cluster"}}, "cluster mode"),
    ],
)
def test_a_missing_or_unsafe_spark_connection_is_refused(
    run: Run,
    publication: Publication,
    connections: dict[str, Any],
    fake_spark: FakeSpark,
    spark_connection: dict[str, Any] | None,
    message: str,
) -> None:
    del connections["spark_default"]
    if spark_connection is not None:
        connections["spark_default"] = spark_connection
    with pytest.raises(ReplicationStopped, match=message):
        run(log_reader(publication))
    assert fake_spark.calls == []


def test_spark_submit_is_found_beside_this_python(
    run: Run, publication: Publication, fake_spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(fake_spark.folder.with_name("bin") / "python"))
    monkeypatch.setenv("PATH", os.defpath)
    run(log_reader(publication))
    assert fake_spark.jobs == ["log_reader"]


def test_no_spark_submit_at_all_is_told(
    run: Run, publication: Publication, fake_spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(fake_spark.folder / "python"))
    monkeypatch.setenv("PATH", str(fake_spark.folder))
    with pytest.raises(ReplicationStopped, match="neither on PATH nor beside"):
        run(log_reader(publication))


def test_a_spark_home_without_spark_is_told(
    run: Run, publication: Publication, fake_spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", "/nowhere")
    with pytest.raises(ReplicationStopped, match="SPARK_HOME=/nowhere: there is no Spark"):
        run(log_reader(publication))
    assert fake_spark.calls == []


def test_the_retry_does_nothing_where_no_batch_failed(
    run: Run, publication: Publication, ti: FakeTaskInstance, fake_spark: FakeSpark
) -> None:
    ti.first_attempt_state = "success"
    assert run(retry(publication)) == JobResult().model_dump(mode="json")
    assert fake_spark.calls == []


@pytest.mark.parametrize("kind", [None, ErrorKind.DATA, ErrorKind.TRANSIENT, ErrorKind.INTERNAL])
def test_the_retry_runs_over_a_single_connection_where_a_batch_failed(
    run: Run, publication: Publication, ti: FakeTaskInstance, fake_spark: FakeSpark, kind: ErrorKind | None
) -> None:
    ti.error = None if kind is None else ErrorReport(kind=kind, message="failed").model_dump(mode="json")
    run(retry(publication))
    assert fake_spark.jobs == ["single_connection"]


def test_the_retry_is_skipped_where_a_person_must_mend_something_first(
    run: Run, publication: Publication, ti: FakeTaskInstance, fake_spark: FakeSpark
) -> None:
    ti.error = ErrorReport(kind=ErrorKind.CONFIGURATION, message="no such table").model_dump(mode="json")
    with pytest.raises(AirflowSkipException):
        run(retry(publication))
    assert fake_spark.calls == []
