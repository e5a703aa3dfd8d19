"""A job's answer: what is known before Spark is started for it, what it has left behind, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError, ErrorReport, InternalError, ReplicationError
from tranrepl.jobs.requests import DistributionRequest, LogReaderRequest, SnapshotRequest, ValidationRequest
from tranrepl.jobs.results import JobResult
from tranrepl.spark.installation import require_java
from tranrepl_airflow.job_connections import JobConnections

JobRequest = LogReaderRequest | DistributionRequest | SnapshotRequest | ValidationRequest


def _is_continuous(request: JobRequest) -> bool:
    """Return whether the job waits for what there will be to do."""
    return isinstance(request, LogReaderRequest | DistributionRequest) and request.continuous_until is not None


def run_without_spark(request: JobRequest, connections: Mapping[str, Connection]) -> JobResult | None:
    """Return the finished result where there is nothing to do, else None. Raises the errors of `tranrepl.errors`."""
    if isinstance(request, ValidationRequest) or _is_continuous(request):
        return None
    # Imported here: parsing a DAG file loads no database driver.
    from tranrepl.topology import Topology

    topology = Topology(request.publication, connections)
    if isinstance(request, LogReaderRequest):
        from tranrepl.log_reader.without_spark import run_without_spark as log_reader_without_spark

        return log_reader_without_spark(request, topology)
    if isinstance(request, SnapshotRequest):
        from tranrepl.snapshot.without_spark import run_without_spark as snapshot_without_spark

        return snapshot_without_spark(request, topology)
    from tranrepl.distribution.without_spark import run_without_spark as distribution_without_spark

    return distribution_without_spark(request, topology)


_OUTPUT_OF_SUBMIT = "\nLast spark-submit output:\n"
"""What the Spark provider puts behind its long command line."""


def read_result(path: Path) -> JobResult | None:
    """Read the job's result; return None where the job ended before it wrote a whole one."""
    try:
        return JobResult.model_validate_json(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValidationError):
        return None


def without_result(failure: str | None, connections: JobConnections) -> ReplicationError:
    """Return the error of a job without a result: what spark-submit said last comes before its command."""
    if failure is None:
        return InternalError("spark-submit ended well, but the job left no result")
    try:
        require_java()
    except ConfigurationError as error:
        return error
    command, _, output = failure.partition(_OUTPUT_OF_SUBMIT)
    why = connections.redact(f"{output}\n{command}" if output else command)
    return InternalError(f"spark-submit failed before the job left a result: {why}")


def redacted(result: JobResult, connections: JobConnections) -> JobResult:
    error = None if result.error is None else _without_secrets(result.error, connections)
    skipped = tuple(_without_secrets(it, connections) for it in result.first_skipped)
    return result.model_copy(update={"error": error, "first_skipped": skipped})


def _without_secrets(error: ErrorReport, connections: JobConnections) -> ErrorReport:
    shown = {name: getattr(error, name) for name in ("message", "remedy", "key", "command")}
    texts = {name: None if text is None else connections.redact(text) for name, text in shown.items()}
    return error.model_copy(update=texts)
