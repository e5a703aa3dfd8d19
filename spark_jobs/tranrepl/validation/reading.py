"""Statements executed in the snapshots of both ends, many at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from tranrepl.errors import ErrorReport, ReplicationError
from tranrepl.model.comparison import HeldRead, Rows, SharedRead

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TASKS_A_CORE = 2
"""Fewer would leave cores idle at the end, more would open more sessions."""


@dataclass(slots=True)
class Reader:
    """Executes statements at both ends at once: from Spark's tasks where a snapshot is shared, else from threads."""

    spark: SparkSession

    def read(self, reads: Sequence[SharedRead | HeldRead]) -> list[Rows]:
        """Return the rows of each read. Raises ReplicationError."""
        started = iter([read.place.start(read.statement) for read in reads if isinstance(read, HeldRead)])
        shared = iter(_on_spark(self.spark, [read for read in reads if isinstance(read, SharedRead)]))
        return [next(shared) if isinstance(read, SharedRead) else next(started).result() for read in reads]


def _on_spark(spark: SparkSession, reads: Sequence[SharedRead]) -> list[Rows]:
    if not reads:
        return []
    context = spark.sparkContext
    tasks = min(len(reads), _TASKS_A_CORE * context.defaultParallelism)
    answers = context.parallelize(reads, tasks).mapPartitions(_answers).collect()
    for answer in answers:
        if isinstance(answer, ErrorReport):
            raise answer.to_exception()
    return [answer for answer in answers if not isinstance(answer, ErrorReport)]


def _answers(reads: Iterable[SharedRead]) -> Iterator[Rows | ErrorReport]:
    """Yield the rows of each read, up to the first that fails: an exception would come back as Spark's."""
    try:
        for place, some in groupby(reads, lambda read: read.place):
            with place.session() as execute:
                for read in some:
                    yield execute(read.statement)
    except ReplicationError as error:
        yield error.report
