"""The snapshot job: the Publisher's tables as of one point of its log to one Subscriber, range by range."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from tranrepl.connections import Connection
from tranrepl.jobs.requests import SnapshotRequest
from tranrepl.jobs.results import JobResult
from tranrepl.log_reader.reading_past import read_log_past
from tranrepl.publisher.snapshot import TableRange
from tranrepl.snapshot.copying import CopiedRange, RangeCopy
from tranrepl.snapshot.initialization import LostTasksError
from tranrepl.snapshot.opening import open_snapshot, open_waiting
from tranrepl.snapshot.without_spark import recorded
from tranrepl.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_TASKS_A_CORE = 4


def run(spark: SparkSession, request: SnapshotRequest, connections: Mapping[str, Connection]) -> JobResult:
    """Take the snapshots that articles wait for. The result, error or not, is in the history.

    This process holds the exported snapshot: tasks and executors may be lost, their ranges are copied again. Where it
    is lost itself, the next job copies what was not.
    """
    topology = Topology(request.publication, connections)
    with open_waiting(request, topology) as (opened, waiting):
        if not waiting.articles:
            return JobResult()
        with open_snapshot(request, topology, opened, waiting) as plan:
            return recorded(plan, OnSpark(spark, topology))


class OnSpark:
    """A task copies some ranges, one after the other over the same sessions."""

    def __init__(self, spark: SparkSession, topology: Topology) -> None:
        self._context = spark.sparkContext
        self.read_log_past = partial(read_log_past, spark, topology)
        self.cores = spark.sparkContext.defaultParallelism

    def __call__(self, copy: RangeCopy, ranges: Sequence[TableRange]) -> list[CopiedRange]:
        from py4j.protocol import Py4JJavaError

        try:
            # Dealt out in turns: those of a large table follow one another.
            tasks = min(len(ranges), _TASKS_A_CORE * self.cores)
            dealt = self._context.parallelize([ranges[task::tasks] for task in range(tasks)], tasks)
            return list(dealt.flatMap(list).mapPartitions(copy).collect())
        except Py4JJavaError as error:
            cause = str(error.java_exception.getMessage()).splitlines()[0]
            raise LostTasksError(f"a task of the snapshot was lost: {cause}") from error
