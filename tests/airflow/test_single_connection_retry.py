"""The task that tries a failed batch again over a single connection: when it does, and when a person comes first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from support.replication_tasks import Run
from tranrepl.errors import ErrorKind, ErrorReport
from tranrepl.jobs.results import JobResult
from tranrepl.settings.publication import Publication
from tranrepl_airflow.operators import SingleConnectionRetryOperator

if TYPE_CHECKING:
    from airflow.conftest import FakeSpark, FakeTaskInstance


def retry(publication: Publication) -> SingleConnectionRetryOperator:
    return SingleConnectionRetryOperator(
        task_id="retry",
        publication=publication,
        subscription="reporting",
        first_attempt="distribute",
        committed_before="",
    )


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
