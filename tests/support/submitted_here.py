"""Jobs that a verb of the shell submits, run in this process instead of by spark-submit."""

from __future__ import annotations

from typing import Any

import pytest

from tranrepl.connections import from_environment
from tranrepl.distribution import job as distribution_job
from tranrepl.jobs.requests import DistributionRequest, LogReaderRequest, SnapshotRequest, ValidationRequest
from tranrepl.jobs.results import JobResult
from tranrepl.log_reader import job as log_reader_job
from tranrepl.snapshot import job as snapshot_job
from tranrepl.spark.application import SparkApplication
from tranrepl.validation import job as validation_job

_JOBS: dict[type, Any] = {
    LogReaderRequest: log_reader_job,
    SnapshotRequest: snapshot_job,
    DistributionRequest: distribution_job,
    ValidationRequest: validation_job,
}


def run_submitted_jobs_here(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the shell's verbs run their jobs on this Spark; connections are read from the environment, as a job's are."""

    def submit(request: Any, master: str) -> JobResult:
        connections = {it: from_environment(it) for it in request.connection_ids()}
        result: JobResult = _JOBS[type(request)].run(spark, request, connections)
        return result

    monkeypatch.setattr("tranrepl.cli.agents.submit", submit)
    monkeypatch.setattr(SparkApplication, "submit", lambda _application, request: submit(request, ""))
    monkeypatch.setattr("tranrepl.cli.validating.submit", submit)
