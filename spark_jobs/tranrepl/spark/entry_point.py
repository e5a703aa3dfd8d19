"""The frame of a Spark job: request in, session, result out, errors by class."""

from __future__ import annotations

import argparse
import logging
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tranrepl.connections import Connection, from_environment
from tranrepl.errors import ErrorKind, ErrorReport, ReplicationError
from tranrepl.garbage_collection import look_seldom
from tranrepl.jobs.requests import (
    DistributionRequest,
    LogReaderRequest,
    SnapshotRequest,
    ValidationRequest,
)
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.shutdown import heeding_shutdown, shut_down_by_signals
from tranrepl.printable import one_event
from tranrepl.spark.output import silence_py4j
from tranrepl.spark.spark_submit import write_private
from tranrepl.spark.without_pandas import leave_pandas_out

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Request = TypeVar("Request", LogReaderRequest, DistributionRequest, SnapshotRequest, ValidationRequest)
Run = Callable[["SparkSession", Request, Mapping[str, Connection]], JobResult]
"""What a job does in its session."""

SESSION_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    # Counting bytes row by row is quadratic where images are NULL; rows per batch are bounded instead.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.shuffle.partitions": "1",
    # It would put the streams' partitions together, and there is little else to adapt.
    "spark.sql.adaptive.enabled": "false",
    # What a killed task has done is known by the watermark alone: the next run begins from there.
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
    # Cores that are taken are taken: a failed run says so, where waiting would look like work.
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "1",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
    "spark.sql.parquet.compression.codec": "zstd",
    # Values of one column of the layout come from many columns of many tables: zstd does better by itself.
    "spark.hadoop.parquet.enable.dictionary": "false",
    # A batch's file is read as one piece, which keeps its order.
    "spark.sql.files.maxPartitionBytes": str(2**62),
    "spark.sql.files.minPartitionNum": "1",
}


def spark_session(name: str) -> SparkSession:
    """Return the job's session. What runs where is spark-submit's business: no master and no resources are set here."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    for setting, value in SESSION_SETTINGS.items():
        builder = builder.config(setting, value)
    leave_pandas_out()
    return builder.getOrCreate()


def main(
    request_class: type[Request],
    job: Callable[[], Run[Request]],
    arguments: Sequence[str] | None = None,
) -> int:
    """Run what `job` imports, and write the result file. Exit status 0 done, 1 failed (the result says why)."""
    parser = argparse.ArgumentParser(description=request_class.__doc__)
    parser.add_argument("--request", type=Path, required=True, help="the request, a JSON file")
    parser.add_argument("--result", type=Path, required=True, help="where to write the result")
    options = parser.parse_args(arguments)
    log_to_stderr()
    look_seldom()
    result = _run(request_class.model_validate_json(options.request.read_text(encoding="utf-8")), job)
    write_private(options.result, result.model_dump_json())
    if result.error is not None:
        print(one_event(f"error: {result.error.message}"), file=sys.stderr)  # noqa: T201
    return 1 if result.error else 0


class EventFormatter(logging.Formatter):
    """Marks where an event begins by the line's margin, as the log is read line by line."""

    def format(self, record: logging.LogRecord) -> str:
        return one_event(super().format(record))


def log_to_stderr() -> None:
    """Let a job's log go where its caller looks where the job ends without a result."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(EventFormatter("%(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    silence_py4j()


def _run(request: Request, job: Callable[[], Run[Request]]) -> JobResult:
    def in_own_session(connections: Mapping[str, Connection]) -> JobResult:
        spark, run = started(f"tranrepl {request.job} {request.publication.publication}", job)
        try:
            with _heeding_signals(request):
                return run(spark, request, connections)
        finally:
            spark.stop()

    return with_its_error(request.connection_ids(), in_own_session)


@contextmanager
def _heeding_signals(request: Request) -> Iterator[None]:
    """Let a continuous job end after what is at hand when its process is to end. Not before the session has started,
    which sets a handler of its own."""
    if not isinstance(request, LogReaderRequest | DistributionRequest) or request.continuous_until is None:
        yield
        return
    with heeding_shutdown() as asked, shut_down_by_signals(asked):
        yield


def with_its_error(connection_ids: Sequence[str], run: Callable[[Mapping[str, Connection]], JobResult]) -> JobResult:
    """Run a job with these connections, from this process's environment. Return its result; whatever it raises is the
    result's error."""
    try:
        return run({name: from_environment(name) for name in connection_ids})
    except ReplicationError as error:
        if error.kind is ErrorKind.INTERNAL:
            _print_traceback()
        return JobResult(error=error.report)
    except Exception as error:  # noqa: BLE001 — whatever it is, the caller learns of it by the result
        _print_traceback()
        return JobResult(error=ErrorReport(kind=ErrorKind.INTERNAL, message=_in_one_line(error)))


def _in_one_line(error: Exception) -> str:
    """Return what an unexpected error says. py4j's own first line names only a method: Java's exception follows it."""
    from py4j.protocol import Py4JJavaError

    lines = str(error).strip().splitlines() or [""]
    if not isinstance(error, Py4JJavaError) or not lines[1:]:
        return f"{type(error).__name__}: {lines[0]}"
    said = lines[1].removeprefix(": ")
    causes = [it.removeprefix(_CAUSE) for it in lines if it.startswith(_CAUSE)]
    # Of a chain of them, the last one often leaves out where.
    cause = max(causes, key=len, default=said)
    return f"Spark: {said}" if cause in said else f"Spark: {said.rstrip('.')}, because of {cause}"


_CAUSE = "Caused by: "


def _print_traceback() -> None:
    print(one_event(traceback.format_exc()), file=sys.stderr)  # noqa: T201


def started(name: str, job: Callable[[], Run[Request]]) -> tuple[SparkSession, Run[Request]]:
    """Return the session and the job, whose imports take as long as the session's start."""
    # Before the other thread begins: the job's modules import it too.
    import pyspark.sql  # noqa: F401

    with ThreadPoolExecutor(1) as thread:
        importing = thread.submit(job)
        spark = spark_session(name)
        return spark, importing.result()
