"""One Spark action: the log's commands into a folder of the store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.accumulators import AccumulatorParam
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tranrepl.commands import ROW_LAYOUT_DDL
from tranrepl.errors import ConfigurationError, InternalError, ReplicationError
from tranrepl.log_reader.reading import Reading
from tranrepl.publisher.log_read import LogRead


class _Accounts(AccumulatorParam[list[str]]):
    def zero(self, value: list[str]) -> list[str]:  # noqa: ARG002
        return []

    def addInPlace(self, value1: list[str], value2: list[str]) -> list[str]:  # noqa: N802 — Spark's name
        return [*value1, *value2]


def store_commands(spark: SparkSession, reading: Reading, path: str) -> LogRead:
    """Read the log and write its commands to `path`, in one task of one partition: a log is one ordered stream.

    Not a Python data source: planning one takes half a second, for every batch. The account comes by an accumulator:
    a row for it, or an observation, costs every row. Raises ConfigurationError where the store cannot be written.
    """
    accounts = spark.sparkContext.accumulator([], _Accounts())

    def commands(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return reading.commands(batches, lambda account: accounts.add([account.model_dump_json()]))

    try:
        spark.range(0, 1, 1, 1).mapInArrow(commands, ROW_LAYOUT_DDL).write.parquet(path)
    except (PySparkException, Py4JError) as error:
        raise _store_error(path, error) from error
    if not accounts.value:
        raise InternalError("a read of the log gave no account of itself")
    return LogRead.model_validate_json(accounts.value[-1])


_STORE_FAILURES = (
    "java.io.IOException",
    "java.io.FileNotFoundException",
    "AccessControlException",
    "FileSystem",
    "Mkdirs",
)


def _store_error(path: str, error: Exception) -> ReplicationError:
    text = str(error)
    if any(failure in text for failure in _STORE_FAILURES) and "PythonException" not in text:
        cause = next((line for line in text.splitlines() if any(it in line for it in _STORE_FAILURES)), text[:200])
        return ConfigurationError(
            f"store: {path} cannot be written: {cause.strip()}",
            remedy="distributor.store must be a path that Spark can write",
        )
    return InternalError(f"the log reader's Spark job failed: {text.strip()[:2000]}")
