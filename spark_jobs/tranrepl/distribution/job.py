"""The distribution job: stored commands to one Subscriber, in order."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from tranrepl.connections import Connection
from tranrepl.distribution.delivery import RESULT_DDL, Delivery
from tranrepl.distribution.meeting_place import MeetingPlace
from tranrepl.distribution.opening import OpenDistribution, open_distribution
from tranrepl.distribution.plan import Group, cut_after, deliverable, groups
from tranrepl.distribution.skipped import SkippedCommands
from tranrepl.distribution.stored import batch_errors, read_batches
from tranrepl.distribution.stream_commands import STREAM_COMMANDS_DDL, Divider
from tranrepl.distribution.streams import StreamDelivery, together
from tranrepl.distributor.database import Batch
from tranrepl.errors import InternalError, ReplicationError
from tranrepl.jobs import ApplyMode, DistributionRequest, JobResult, latency_ms
from tranrepl.settings import StreamAssignment
from tranrepl.subscriber.commit_batches import CommitLimits
from tranrepl.subscriber.constraints import Constraints
from tranrepl.subscriber.dialect import ApplierOptions, UnfinishedBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

_HANDED_OVER_BYTES = 32 * 1024 * 1024
_MOST_ROWS = 20_000


def run(spark: SparkSession, request: DistributionRequest, connections: Mapping[str, Connection]) -> JobResult:
    """Deliver what is registered, up to the request's bound. The result, error or not, is in the history."""
    clock = time.perf_counter()
    with open_distribution(request, connections) as opened:
        row = opened.database.start_run(opened.record, opened.subscription)

        def tell(so_far: JobResult) -> None:
            opened.database.tell_progress(row, _timed(so_far, clock))

        try:
            result = _timed(_deliver(spark, request, opened, tell), clock)
        except ReplicationError as error:
            opened.database.end_run(row, _timed(JobResult(error=error.to_report()), clock))
            raise
        opened.database.end_run(row, result)
    return _without_command(result)


def _without_command(result: JobResult) -> JobResult:
    """The failing command's values stay in the distribution database."""
    if result.error is None:
        return result
    return result.model_copy(update={"error": result.error.model_copy(update={"command": None})})


def _timed(result: JobResult, clock: float) -> JobResult:
    return result.model_copy(update={"seconds": time.perf_counter() - clock})


def _deliver(
    spark: SparkSession, request: DistributionRequest, opened: OpenDistribution, tell: Callable[[JobResult], None]
) -> JobResult:
    job = _Job(spark, request, opened)
    standing = opened.subscriber.standing()
    opened.refuse_incomplete(standing.watermark)
    total = JobResult(last_xact_seqno=standing.watermark.hex(), notices=job.notices)
    if standing.unfinished is not None:
        total = total.plus(job.finish(standing.watermark, standing.unfinished))
    if total.error is None:
        watermark = bytes.fromhex(total.last_xact_seqno or "")
        batches, before = deliverable(
            opened.database.batches_after(opened.record, watermark),
            request.committed_before,
            lambda batch, bound: _first_at_or_after(spark, opened, batch, bound),
        )
        last = None if request.up_to is None else bytes.fromhex(request.up_to)
        for group in groups(*cut_after(batches, before, last)):
            total = total.plus(job.deliver(group, bytes.fromhex(total.last_xact_seqno or "")))
            if total.error is not None:
                break
            total = total.model_copy(update={"latency_ms": latency_ms(group.batches[-1].last_commit_time)})
            tell(total)
    for notice in total.notices:
        log.warning("%s", notice)
    log.info("delivered %d transactions with %d commands", total.transactions, total.commands)
    return total


class _Job:
    """How one job delivers: over one connection, or over several streams."""

    def __init__(self, spark: SparkSession, request: DistributionRequest, opened: OpenDistribution) -> None:
        self._spark = spark
        self._opened = opened
        self._settings = request.publication.subscription(request.subscription)
        self._articles = opened.database.all_articles(opened.record)
        self._limits = CommitLimits(self._settings.commit_batch_size, self._settings.commit_batch_threshold)
        self._skipped = SkippedCommands(opened.distribution, opened.record.publication, request.subscription)
        wanted = self._settings.subscription_streams if request.mode is ApplyMode.STREAMS else 1
        cores = spark.sparkContext.defaultParallelism
        self._streams = min(wanted, cores)
        self.notices = (_fewer_streams(request.subscription, wanted, cores),) if cores < wanted else ()
        if self._streams > 1:
            opened.subscriber.set_up_streams(self._streams)

    @cached_property
    def _constraints(self) -> Constraints:
        if self._settings.stream_assignment is not StreamAssignment.DEPENDENCIES:
            return Constraints()
        return self._opened.subscriber.constraints(self._opened.database.registered_articles(self._opened.record))

    def _delivery(self, watermark: bytes, streams: int) -> Delivery:
        options = ApplierOptions(
            not_for_replication=self._settings.not_for_replication,
            lock_timeout_seconds=self._settings.lock_timeout if streams > 1 else None,
            # Several streams would each see a part of the order: the retry over one connection knows what to skip.
            skip_errors=frozenset(self._settings.skip_errors if streams == 1 else ()),
        )
        opened = self._opened
        return Delivery(opened.connection, opened.key, self._articles, watermark, self._limits, options, self._skipped)

    def deliver(self, group: Group, watermark: bytes) -> JobResult:
        """The group's commands after the watermark."""
        delivery = self._delivery(watermark, self._streams)
        commands = self._commands(group, watermark, group.batches[-1].last_xact_seqno)
        with batch_errors(self._opened.record, group.batches):
            if self._streams == 1:
                return _collect(commands, delivery)
            with MeetingPlace(*_driver_addresses(self._spark), self._streams) as meetings:
                streams = StreamDelivery(delivery, self._streams, meetings.address)
                return _collect_streams(commands, self._divider(), streams)

    def _divider(self) -> Divider:
        assignment = self._settings.stream_assignment
        return Divider(self._articles, self._streams, assignment, self._constraints, self._limits)

    def finish(self, watermark: bytes, unfinished: UnfinishedBatch) -> JobResult:
        """What is missing of a commit batch of which some streams had committed when their job was killed."""
        last = unfinished.record.last
        batches = self._opened.database.batches_after(self._opened.record, watermark)
        group = Group(tuple(batch for batch in batches if batch.first_xact_seqno <= last))
        if not group.batches:
            raise InternalError("the stored commands of an unfinished commit batch are gone")
        log.info("finishing a commit batch that streams %s had committed", sorted(unfinished.committed))
        delivery = replace(self._delivery(watermark, 1), finishing=unfinished)
        commands = self._commands(group, watermark, last)
        with batch_errors(self._opened.record, group.batches):
            return _collect(commands, delivery)

    def _commands(self, group: Group, after: bytes, last: bytes) -> DataFrame:
        """The group's commands after one transaction and up to another, in order, in one partition."""
        from pyspark.sql import functions as F  # noqa: N812

        self._spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(_rows_per_batch(group)))
        record = self._opened.record
        commands = read_batches(self._spark, record, group.batches)
        chosen = (F.col("xact_seqno") > F.lit(after)) & (F.col("xact_seqno") <= F.lit(last))
        if group.before is not None:
            chosen &= F.col("xact_seqno") < F.lit(group.before)
        commands = commands.where(chosen).coalesce(1)
        # A batch is one file, written in order and read as one piece; several together must be put in order.
        return commands if len(group.batches) == 1 else commands.sortWithinPartitions("xact_seqno", "command_id")


def _driver_addresses(spark: SparkSession) -> tuple[str, str]:
    """Where executors reach this process, and what it binds to for that."""
    configuration = spark.sparkContext.getConf()
    host = configuration.get("spark.driver.host") or "127.0.0.1"
    return host, configuration.get("spark.driver.bindAddress") or host


def _fewer_streams(subscription: str, wanted: int, cores: int) -> str:
    return (
        f"subscription {subscription}: subscription_streams is {wanted}, but Spark has {cores} cores: {cores} are used"
    )


def _rows_per_batch(group: Group) -> int:
    """Rows that Spark hands over at a time: by their average weight, about `_HANDED_OVER_BYTES`."""
    weight = max(1, sum(it.log_bytes for it in group.batches) // max(1, sum(it.commands for it in group.batches)))
    return min(_MOST_ROWS, max(1, _HANDED_OVER_BYTES // weight))


def _collect(commands: DataFrame, delivery: Delivery) -> JobResult:
    (result,) = _results(commands.mapInArrow(delivery, RESULT_DDL), 1)
    return result


def _collect_streams(commands: DataFrame, divider: Divider, delivery: StreamDelivery) -> JobResult:
    from pyspark.sql import functions as F  # noqa: N812

    divided = (
        commands.mapInArrow(divider, STREAM_COMMANDS_DDL)
        .repartitionById(delivery.streams, F.col("stream"))
        .sortWithinPartitions("xact_seqno", "command_id")
    )
    return together(_results(divided.mapInArrow(delivery, RESULT_DDL, barrier=True), delivery.streams))


def _results(delivered: DataFrame, connections: int) -> list[JobResult]:
    """Of each connection."""
    rows = delivered.collect()
    if len(rows) != connections:
        raise InternalError(f"a delivery over {connections} connections gave {len(rows)} results")
    return [JobResult.model_validate_json(row["result"]) for row in rows]


def _first_at_or_after(spark: SparkSession, opened: OpenDistribution, batch: Batch, bound: datetime) -> bytes:
    from pyspark.sql import functions as F  # noqa: N812

    commands = read_batches(spark, opened.record, [batch])
    row = commands.where(F.col("commit_time") >= F.lit(bound)).agg(F.min("xact_seqno").alias("first")).first()
    if row is None or row["first"] is None:
        raise InternalError(f"batch {batch.folder} has no transaction at or after {bound}, though it is registered so")
    return bytes(row["first"])
