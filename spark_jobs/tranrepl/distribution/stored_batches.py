"""Registered batches as a delivery reads them. A batch that is gone or damaged is an error, never fewer commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tranrepl.distribution.delivery import Delivery
from tranrepl.distribution.stored_range import StoredRange, deliver_stored, error_of_worker, map_stored
from tranrepl.distributor.batch_files import is_small, require_all_commands
from tranrepl.distributor.database import Batch, PublicationRecord
from tranrepl.errors import ConfigurationError
from tranrepl.spark.spark_submit import failed_job
from tranrepl.spark.without_pandas import Mapped, map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Checked(Enum):
    """Which batches are looked at before any of them is read."""

    LARGE = auto()
    """Small ones are checked as they are read, and what was read before one that is damaged may not be delivered."""
    EVERY = auto()


def stored_commands(spark: SparkSession, stored: StoredRange, checked: Checked = Checked.EVERY) -> Commands:
    """Return the stored commands of these batches. Raises ConfigurationError where a batch is not in the store as it
    was registered."""
    for batch in stored.batches:
        if _is_checked(batch, checked):
            require_all_commands(stored.record, batch)
    return Commands(spark, stored)


def _is_checked(batch: Batch, checked: Checked) -> bool:
    return checked is Checked.EVERY or not is_small(batch)


def is_intact(record: PublicationRecord, checked: Checked, batch: Batch) -> bool:
    """Return whether the batch is stored whole, as far as it costs nothing to tell."""
    if not _is_checked(batch, checked):
        return True
    try:
        require_all_commands(record, batch)
    except ConfigurationError as error:
        if not error.report.damaged_batch:
            raise
        return False
    return True


@dataclass(frozen=True, slots=True)
class Commands:
    """A range of stored commands, in order, read by Python workers: the JVM sees neither commands nor a plan."""

    spark: SparkSession
    stored: StoredRange

    def delivered(self, delivery: Delivery) -> list[str]:
        """Deliver over one connection and return the results (JSON)."""
        one = self.spark.sparkContext.parallelize([0], 1)
        return one.mapPartitions(partial(deliver_stored, self.stored, delivery)).collect()

    def mapped(self, function: Mapped, ddl: str) -> DataFrame:
        """Return what a function for `map_in_arrow` makes of all commands together."""
        return map_in_arrow(self.spark.range(0, 1, 1, 1), partial(map_stored, self.stored, function), ddl)


@contextmanager
def batch_errors() -> Iterator[None]:
    """Translate what Spark says of a job over stored batches into errors of ours."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = str(error)
        raise error_of_worker(text) or failed_job(
            text, "the distribution's Spark job", "that delivered", "its open transaction is rolled back"
        ) from error
