"""Registered batches as a delivery reads them. A batch that is gone or damaged is an error, never fewer commands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tranrepl.distribution.delivery import RESULT_DDL, Delivery
from tranrepl.distribution.stored_range import (
    Mapped,
    StoredRange,
    deliver_stored,
    first_stored_at_or_after,
    map_stored,
    rows_at_once,
)
from tranrepl.distributor.batch_files import damaged, is_small, require_all_commands
from tranrepl.distributor.command_file import mounted_path
from tranrepl.distributor.database import Batch, PublicationRecord
from tranrepl.distributor.store import folder_path
from tranrepl.errors import ConfigurationError, InternalError, ReplicationError, TransientError
from tranrepl.model.commands import Operation
from tranrepl.spark.pyarrow_setup import prepare_worker
from tranrepl.spark.submission import is_lost_worker

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class Commands(Protocol):
    """A range of stored commands, in order."""

    def delivered(self, delivery: Delivery) -> list[str]:
        """Deliver over one connection and return the results (JSON)."""
        ...

    def mapped(self, function: Mapped, ddl: str) -> DataFrame:
        """Return what a function for `mapInArrow` makes of all commands together."""
        ...


class Checked(Enum):
    """Which batches are looked at before any of them is read."""

    LARGE = auto()
    """Small ones are checked as they are read, and what was read before one that is damaged may not be delivered."""
    EVERY = auto()


def stored_commands(spark: SparkSession, stored: StoredRange, checked: Checked = Checked.EVERY) -> Commands:
    """Return the stored commands of these batches. Raises ConfigurationError where a batch is not in the store as it
    was registered."""
    if not is_read_in_order(stored.record):
        return _ReadBySpark(spark, stored)
    for batch in stored.batches:
        if _is_checked(batch, checked):
            require_all_commands(stored.record, batch)
    return _ReadByWorkers(spark, stored)


def _is_checked(batch: Batch, checked: Checked) -> bool:
    return checked is Checked.EVERY or not is_small(batch)


def is_read_in_order(record: PublicationRecord) -> bool:
    """Return whether commands are read batch by batch, in order. Spark reads several together, and they must be put in
    order."""
    return mounted_path(record.store) is not None


def is_intact(record: PublicationRecord, checked: Checked, batch: Batch) -> bool:
    """Return whether the batch is stored whole, as far as it costs nothing to tell."""
    if not is_read_in_order(record) or not _is_checked(batch, checked):
        return True
    try:
        require_all_commands(record, batch)
    except ConfigurationError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _ReadByWorkers:
    """The JVM sees neither commands nor a plan."""

    spark: SparkSession
    stored: StoredRange

    def delivered(self, delivery: Delivery) -> list[str]:
        one = self.spark.sparkContext.parallelize([0], 1)
        return one.mapPartitions(partial(deliver_stored, self.stored, delivery)).collect()

    def mapped(self, function: Mapped, ddl: str) -> DataFrame:
        return self.spark.range(0, 1, 1, 1).mapInArrow(partial(map_stored, self.stored, function), ddl)


@dataclass(frozen=True, slots=True)
class _ReadBySpark:
    """From whatever file system Spark knows."""

    spark: SparkSession
    stored: StoredRange

    def delivered(self, delivery: Delivery) -> list[str]:
        return [row["result"] for row in self.mapped(delivery, RESULT_DDL).collect()]

    def mapped(self, function: Mapped, ddl: str) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        stored = self.stored
        self.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(rows_at_once(stored.batches)))
        chosen = (F.col("xact_seqno") > F.lit(stored.after)) & (F.col("xact_seqno") <= F.lit(stored.last))
        chosen &= F.col("operation") != int(Operation.TRACER_TOKEN)
        if stored.before is not None:
            chosen &= F.col("xact_seqno") < F.lit(stored.before)
        for it in stored.left_out:
            later = F.lit(False) if it.last is None else F.col("xact_seqno") > F.lit(it.last)
            chosen &= ~F.col("article_id").isin(list(it.article_ids)) | later
        if (place := stored.applied_before) is not None:
            others = F.col("xact_seqno") != F.lit(place.xact_seqno)
            chosen &= others | (F.col("command_id") >= F.lit(place.command_id))
        commands = _read(self.spark, stored.record, stored.batches).where(chosen).coalesce(1)
        # A batch is one file, written in order and read as one piece; several together must be put in order.
        if len(stored.batches) > 1:
            commands = commands.sortWithinPartitions("xact_seqno", "command_id")
        return commands.mapInArrow(partial(_prepared, function), ddl)


def _prepared(function: Mapped, commands: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    prepare_worker()
    return function(commands)


def first_at_or_after(spark: SparkSession, record: PublicationRecord, batch: Batch, bound: datetime) -> bytes | None:
    """Return the `xact_seqno` of the first transaction of a batch that was committed at or after the bound; None where
    there is none."""
    if not is_read_in_order(record):
        return _first_by_spark(spark, record, batch, bound)
    require_all_commands(record, batch)
    return first_stored_at_or_after(record, batch, bound)


def _first_by_spark(spark: SparkSession, record: PublicationRecord, batch: Batch, bound: datetime) -> bytes | None:
    from pyspark.sql import functions as F  # noqa: N812

    late = _read(spark, record, [batch]).where(F.col("commit_time") >= F.lit(bound))
    row = late.agg(F.min("xact_seqno").alias("first")).first()
    return None if row is None or row["first"] is None else bytes(row["first"])


def _read(spark: SparkSession, record: PublicationRecord, batches: Sequence[Batch]) -> DataFrame:
    with batch_errors(record, batches):
        commands = spark.read.parquet(*(folder_path(record, batch.folder) for batch in batches))
        # Of several folders, Spark passes over an empty one without a word.
        found = {PurePosixPath(unquote(file)).parent.name for file in commands.inputFiles()}
    for batch in batches:
        if batch.folder not in found:
            raise damaged(record, batch, "it holds no commands")
    return commands


@contextmanager
def batch_errors(record: PublicationRecord, batches: Sequence[Batch]) -> Iterator[None]:
    """Translate what Spark says of a job over these batches into errors of ours."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise _translated(record, batches, str(error)) from error


_UNREAD_BY_WORKER = re.compile(r"store: batch (?P<folder>\w+) cannot be read: (?P<problem>.*)\. It holds transactions ")
_UNREADABLE = (
    "PATH_NOT_FOUND",
    "UNABLE_TO_INFER_SCHEMA",
    "FAILED_READ_FILE",
    "CANNOT_READ_FILE_FOOTER",
    "FileNotFoundException",
    "FILE_NOT_EXIST",
)


def of_lost_worker(text: str) -> TransientError | None:
    """Return the error of a job whose Python worker was killed, by what Spark says of it; None where it was not."""
    if not is_lost_worker(text):
        return None
    return TransientError(
        "the Python worker that delivered was killed; its open transaction is rolled back",
        remedy="run again; where it happens again, give the executors more memory",
    )


def failed_job(text: str) -> InternalError:
    """Return the error of a job of which Spark says something that has no class."""
    return InternalError(f"the distribution's Spark job failed: {text.strip()[:2000]}")


def _translated(record: PublicationRecord, batches: Sequence[Batch], text: str) -> ReplicationError:
    if (lost := of_lost_worker(text)) is not None:
        return lost
    if (unread := _UNREAD_BY_WORKER.search(text)) is not None:
        named = next((batch for batch in batches if batch.folder == unread["folder"]), batches[0])
        return damaged(record, named, unread["problem"])
    if any(it in text for it in _UNREADABLE):
        named = next((batch for batch in batches if batch.folder in text), batches[0])
        return damaged(record, named, text.strip().splitlines()[0][:300])
    return failed_job(text)
