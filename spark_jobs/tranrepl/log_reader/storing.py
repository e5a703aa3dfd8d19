"""One Spark action: the log's commands into folders of the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.accumulators import AccumulatorParam
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tranrepl.distributor.command_file import mounted_path, publish, write_commands
from tranrepl.errors import ConfigurationError, InternalError, ReplicationError, TransientError
from tranrepl.log_reader.reading import read_commands
from tranrepl.model.command_rows import ROW_LAYOUT_DDL
from tranrepl.publisher.log_range import LogRange
from tranrepl.publisher.log_read import LogRead
from tranrepl.spark.pyarrow_setup import prepare_worker
from tranrepl.spark.submission import is_lost_worker

Report = Callable[[int, LogRead, str | None], None]
"""Take a range's number, the account of its read, and the file of its commands."""
_Account = tuple[int, str, str | None]


class Accounts(AccumulatorParam[list[_Account]]):
    """Accounts of the tasks of one action, each with its number."""

    def zero(self, value: list[_Account]) -> list[_Account]:  # noqa: ARG002
        return []

    def addInPlace(self, value1: list[_Account], value2: list[_Account]) -> list[_Account]:  # noqa: N802 — Spark's name
        return [*value1, *value2]


def store_commands(spark: SparkSession, ranges: Sequence[LogRange], paths: Sequence[str]) -> list[LogRead]:
    """Read the log and write each range's commands to its path, in a task of its own: in one reading, the log is one
    ordered stream. Several take a store on a path that machines mount.

    Not a Python data source: Spark would plan it again for every batch. Accounts come by an accumulator:
    a row for it, or an observation, costs every row. Raises ConfigurationError where the store cannot be written.
    """
    accounts = spark.sparkContext.accumulator([], Accounts())

    def report(number: int, account: LogRead, file: str | None) -> None:
        accounts.add([(number, account.model_dump_json(), file)])

    folders = [it for it in map(mounted_path, paths) if it is not None]
    try:
        if folders:
            # Without a plan: the JVM's first one is slow.
            numbers = spark.sparkContext.parallelize(list(range(len(ranges))), len(ranges))
            numbers.foreachPartition(partial(_written, ranges, report, folders))
        else:
            (log,), (path,) = ranges, paths
            one_row = spark.range(0, 1, 1, 1)
            one_row.mapInArrow(partial(_commands, log, report), ROW_LAYOUT_DDL).write.parquet(path)
    except (PySparkException, Py4JError) as error:
        raise store_error(paths[0], error) from error
    # Of a task that Spark ran again, the last one counts.
    reported = {number: (account, file) for number, account, file in accounts.value}
    if len(reported) != len(ranges):
        raise InternalError("a read of the log gave no account of itself")
    for number, folder in enumerate(folders):
        if (file := reported[number][1]) is not None:
            publish(folder, file)
    return [LogRead.model_validate_json(reported[number][0]) for number in range(len(ranges))]


def _commands(log: LogRange, report: Report, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield commands (row layout), for `mapInArrow` over any one row."""
    prepare_worker()
    _consume(batches)
    return read_commands(log, lambda account: report(0, account, None))


def _written(ranges: Sequence[LogRange], report: Report, folders: Sequence[Path], numbers: Iterable[int]) -> None:
    """Write each range's commands into a file of its folder, for `foreachPartition` over the ranges' numbers."""
    prepare_worker()
    for number in list(numbers):
        accounts: list[LogRead] = []
        try:
            file = write_commands(folders[number], read_commands(ranges[number], accounts.append))
            report(number, accounts[-1], file)
        except ReplicationError as error:
            report(number, LogRead(error=error.report), None)


def _consume(given: Iterable[object]) -> None:
    """Read to the end: a worker that leaves something unread is not used again."""
    for _ in given:
        pass


_STORE_FAILURES = (
    "java.io.IOException",
    "java.io.FileNotFoundException",
    "AccessControlException",
    "FileSystem",
    "Mkdirs",
)


def store_error(path: str, error: Exception) -> ReplicationError:
    """Return what ended a Spark action that writes to this path of the store."""
    text = str(error)
    if is_lost_worker(text):
        return TransientError(
            "the Python worker that read the log was killed; what it wrote is not registered",
            remedy="run again; where it happens again, give the executors more memory",
        )
    if any(failure in text for failure in _STORE_FAILURES) and "PythonException" not in text:
        cause = next((line for line in text.splitlines() if any(it in line for it in _STORE_FAILURES)), text[:200])
        return ConfigurationError(
            f"store: {path} cannot be written: {cause.strip()}",
            remedy="distributor.store must be a path that Spark can write",
        )
    return InternalError(f"the log reader's Spark job failed: {text.strip()[:2000]}")
