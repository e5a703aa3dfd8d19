"""One lasting Spark task: the log, followed on a machine of the cluster until there is a reason to end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tranrepl.errors import InternalError
from tranrepl.log_reader.following import Followed, Following
from tranrepl.log_reader.storing import Accounts, store_error
from tranrepl.spark.pyarrow_setup import prepare_lasting_worker


def follow_in_task(spark: SparkSession, following: Following, group: str) -> Followed:
    """Follow the log in a task of the job group. Raises what ended the task otherwise."""
    accounts = spark.sparkContext.accumulator([], Accounts())

    def report(followed: Followed) -> None:
        accounts.add([(0, followed.model_dump_json(), None)])

    spark.sparkContext.setJobGroup(group, "the log, followed")
    try:
        spark.sparkContext.parallelize([0], 1).foreachPartition(partial(_followed, following, report))
    except (PySparkException, Py4JError) as error:
        raise store_error(following.record.store, error) from error
    if not accounts.value:
        raise InternalError("the log was followed, and no account of it was given")
    return Followed.model_validate_json(accounts.value[-1][1])


def _followed(following: Following, report: Callable[[Followed], None], numbers: Iterable[int]) -> None:
    prepare_lasting_worker()
    for _ in numbers:
        report(following.follow())
