"""One Spark action: the log's commands into folders of the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from py4j.protocol import Py4JError
from pyspark.accumulators import AccumulatorParam
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tranrepl import garbage_collection
from tranrepl.distributor.command_file import write_commands
from tranrepl.distributor.command_store import CommandStore
from tranrepl.errors import InternalError, ReplicationError
from tranrepl.log_reader.reading import read_commands
from tranrepl.publisher.log_range import LogRange
from tranrepl.publisher.log_read import LogRead
from tranrepl.spark.pyarrow_setup import prepare_worker
from tranrepl.spark.spark_submit import failed_job

Report = Callable[[int, LogRead, str], None]
"""Take a range's number, the account of its read, and the folder of its commands; no folder where there is an error."""
_Account = tuple[int, str, str]


class Accounts(AccumulatorParam[list[_Account]]):
    """Accounts of the tasks of one action, each with its number."""

    def zero(self, value: list[_Account]) -> list[_Account]:  # noqa: ARG002
        return []

    def addInPlace(self, value1: list[_Account], value2: list[_Account]) -> list[_Account]:  # noqa: N802 — Spark's name
        return [*value1, *value2]


def store_commands(spark: SparkSession, ranges: Sequence[LogRange], store: CommandStore) -> list[tuple[str, LogRead]]:
    """Read the log and write each range's commands to a folder of the store, in a task of its own: in one reading, the
    log is one ordered stream. Return the folders, with what was read.

    Not a Python data source: Spark would plan it again for every batch. Accounts come by an accumulator:
    a row for it, or an observation, costs every row.
    """
    accounts = spark.sparkContext.accumulator([], Accounts())

    def report(number: int, account: LogRead, folder: str) -> None:
        accounts.add([(number, account.model_dump_json(), folder)])

    try:
        # Without a plan: the JVM's first one is slow.
        numbers = spark.sparkContext.parallelize(list(range(len(ranges))), len(ranges))
        numbers.foreachPartition(partial(_written, garbage_collection.pickled(list(ranges)), report, store))
    except (PySparkException, Py4JError) as error:
        raise failed_job(
            str(error),
            "the log reader's Spark job",
            "that read the log",
            "what it wrote is not registered",
        ) from error
    # Of a task that Spark ran again, the last one counts.
    reported = {number: (folder, account) for number, account, folder in accounts.value}
    if len(reported) != len(ranges):
        raise InternalError("a read of the log gave no account of itself")
    found = [reported[number] for number in range(len(ranges))]
    return [(folder, LogRead.model_validate_json(account)) for folder, account in found]


def _written(pickled: bytes, report: Report, store: CommandStore, numbers: Iterable[int]) -> None:
    """Write each range's commands into a folder, for `foreachPartition` over the ranges' numbers. `pickled` are the
    ranges."""
    prepare_worker()
    ranges: list[LogRange] = garbage_collection.unpickled(pickled)
    for number in list(numbers):
        accounts: list[LogRead] = []
        try:
            folder = write_commands(store, read_commands(ranges[number], accounts.append))
            report(number, accounts[-1], folder)
        except ReplicationError as error:
            report(number, LogRead(error=error.report), "")
