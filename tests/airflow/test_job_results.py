"""What becomes of a job's result, of its error and of a job without a result: retries, XComs and the task's log."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
from airflow.sdk.definitions.retry_policy import RetryAction

from support.replication_tasks import (
    DONE,
    PASSWORD,
    PLUS_QUOTED_PASSWORD,
    QUOTED_PASSWORD,
    Run,
    distribution,
    log_reader,
)
from tranrepl.error_numbers import Codes
from tranrepl.errors import ConfigurationError, DataError, ErrorReport, FencedError, TransientError
from tranrepl.jobs.results import JobResult
from tranrepl.remedies import Place, error_block
from tranrepl.settings.publication import Publication
from tranrepl_airflow.outcome import ReplicationCrashed, ReplicationStopped

if TYPE_CHECKING:
    from airflow.conftest import FakeSpark, FakeTaskInstance, IdleChecks


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

    monkeypatch.setattr(sys.modules["tranrepl.log_reader.without_spark"], "run_without_spark", refuse)
    with pytest.raises(ReplicationStopped, match="wrong password"):
        run(log_reader(publication))
    assert ti.pushed["error"]["kind"] == "configuration"


def test_a_fenced_job_ends_cleanly_with_what_it_had_done(
    run: Run,
    publication: Publication,
    fake_spark: FakeSpark,
    ti: FakeTaskInstance,
    capfd: pytest.CaptureFixture[str],
) -> None:
    done = JobResult(transactions=2, commands=3, commands_by_article={"public.item": 3})
    fenced = done.model_copy(update={"error": FencedError("another job applies it").report})
    fake_spark.answer("streams", fenced, exit_code=1)
    assert run(distribution(publication)) == done.model_dump(mode="json")
    assert ti.pushed == {}
    assert "another job applies it" in capfd.readouterr().out


def test_a_job_without_a_result_is_tried_again_and_shows_its_last_output(
    run: Run, publication: Publication, fake_spark: FakeSpark, ti: FakeTaskInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tranrepl_airflow.job_answers.require_java", lambda: None)
    fake_spark.answer("log_reader", None, exit_code=137, output=f"postgresql://repl:{QUOTED_PASSWORD}@db Killed")
    operator = log_reader(publication)
    told = r"left a result: postgresql://repl:\*\*\*@db Killed\nCannot execute"
    with pytest.raises(ReplicationCrashed, match=told) as raised:
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
