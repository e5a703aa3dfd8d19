"""One Spark action: the log's commands into a folder of the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.accumulators import AccumulatorParam
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tranrepl.arrow_alone import prepare_worker
from tranrepl.commands import ROW_LAYOUT_DDL
from tranrepl.distributor.command_file import mounted_path, publish, write_commands
from tranrepl.errors import ConfigurationError, InternalError, ReplicationError, TransientError
from tranrepl.jobs import LOST_WORKER
from tranrepl.log_reader.reading import Reading
from tranrepl.publisher.log_read import LogRead

Tell = Callable[[LogRead, str | None], None]


class _Accounts(AccumulatorParam[list[tuple[str, str | None]]]):
    def zero(self, value: list[tuple[str, str | None]]) -> list[tuple[str, str | None]]:  # noqa: ARG002
        return []

    def addInPlace(  # noqa: N802 — Spark's name
        self, value1: list[tuple[str, str | None]], value2: list[tuple[str, str | None]]
    ) -> list[tuple[str, str | None]]:
        return [*value1, *value2]


def store_commands(spark: SparkSession, reading: Reading, path: str) -> LogRead:
    """Read the log and write its commands to `path`, in one task of one partition: a log is one ordered stream.

    Not a Python data source: planning one takes half a second, for every batch. The account comes by an accumulator:
    a row for it, or an observation, costs every row. Raises ConfigurationError where the store cannot be written.
    """
    accounts = spark.sparkContext.accumulator([], _Accounts())

    def tell(account: LogRead, file: str | None) -> None:
        accounts.add([(account.model_dump_json(), file)])

    folder = mounted_path(path)
    try:
        if folder is None:
            one_row = spark.range(0, 1, 1, 1)
            one_row.mapInArrow(partial(_commands, reading, tell), ROW_LAYOUT_DDL).write.parquet(path)
        else:
            # Without a plan: the JVM's first one takes a second.
            spark.sparkContext.parallelize([0], 1).foreachPartition(partial(_written, reading, tell, folder))
    except (PySparkException, Py4JError) as error:
        raise _store_error(path, error) from error
    if not accounts.value:
        raise InternalError("a read of the log gave no account of itself")
    account, file = accounts.value[-1]
    if folder is not None and file is not None:
        publish(folder, file)
    return LogRead.model_validate_json(account)


def _commands(reading: Reading, tell: Tell, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow` over any one row: commands out (row layout)."""
    prepare_worker()
    _consume(batches)
    return reading.commands(lambda account: tell(account, None))


def _written(reading: Reading, tell: Tell, folder: Path, one: Iterable[int]) -> None:
    """For `foreachPartition` over any one element: commands into a file of `folder`."""
    prepare_worker()
    _consume(one)
    accounts: list[LogRead] = []
    try:
        file = write_commands(folder, reading.commands(accounts.append))
        tell(accounts[-1], file)
    except ReplicationError as error:
        tell(LogRead(error=error.to_report()), None)


def _consume(given: Iterable[object]) -> None:
    """A worker that leaves something unread is not used again."""
    for _ in given:
        pass


_STORE_FAILURES = (
    "java.io.IOException",
    "java.io.FileNotFoundException",
    "AccessControlException",
    "FileSystem",
    "Mkdirs",
)


def _store_error(path: str, error: Exception) -> ReplicationError:
    text = str(error)
    if LOST_WORKER in text:
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
