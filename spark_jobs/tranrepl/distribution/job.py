"""The distribution job: stored commands to one Subscriber, in order."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tranrepl.connections import Connection
from tranrepl.distribution.delivery import RESULT_DDL, Delivery
from tranrepl.distribution.opening import OpenDistribution, open_distribution
from tranrepl.distribution.plan import Group, deliverable, groups
from tranrepl.distributor.database import Batch
from tranrepl.distributor.store import folder_path
from tranrepl.errors import InternalError
from tranrepl.jobs import DistributionRequest, JobResult
from tranrepl.subscriber.commit_batches import CommitLimits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

_HANDED_OVER_BYTES = 32 * 1024 * 1024
_MOST_ROWS = 20_000


def run(spark: SparkSession, request: DistributionRequest, connections: Mapping[str, Connection]) -> JobResult:
    """Deliver what is registered, up to the request's bound. The result, error or not, is in the history."""
    started, clock = datetime.now(UTC), time.perf_counter()
    with open_distribution(request, connections) as opened:
        result = _deliver(spark, request, opened)
        result = result.model_copy(update={"seconds": time.perf_counter() - clock})
        opened.database.record_distribution(opened.record, opened.subscription, result, started)
    return result


def _deliver(spark: SparkSession, request: DistributionRequest, opened: OpenDistribution) -> JobResult:
    watermark = opened.subscriber.watermark(wait=True)
    opened.refuse_incomplete(watermark)
    batches, before = deliverable(
        opened.database.batches_after(opened.record, watermark),
        request.committed_before,
        lambda batch, bound: _first_at_or_after(spark, opened, batch, bound),
    )
    articles = opened.database.all_articles(opened.record)
    settings = request.publication.subscription(request.subscription)
    total = JobResult(last_xact_seqno=watermark.hex())
    for group in groups(batches, before):
        delivery = Delivery(
            opened.connection,
            opened.key,
            articles,
            bytes.fromhex(total.last_xact_seqno or ""),
            CommitLimits(settings.commit_batch_size, settings.commit_batch_threshold),
        )
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(_rows_per_batch(group)))
        commands = _commands(spark, opened, group, delivery.watermark)
        total = total.plus(_collect(commands, delivery))
        if total.error is not None:
            break
    log.info("delivered %d transactions with %d commands", total.transactions, total.commands)
    return total


def _rows_per_batch(group: Group) -> int:
    """Rows that Spark hands over at a time: by their average weight, about `_HANDED_OVER_BYTES`."""
    weight = max(1, sum(it.log_bytes for it in group.batches) // max(1, sum(it.commands for it in group.batches)))
    return min(_MOST_ROWS, max(1, _HANDED_OVER_BYTES // weight))


def _commands(spark: SparkSession, opened: OpenDistribution, group: Group, watermark: bytes) -> DataFrame:
    """The group's commands after the watermark, in order, in one partition."""
    from pyspark.sql import functions as F  # noqa: N812

    commands = spark.read.parquet(*(folder_path(opened.record, batch.folder) for batch in group.batches))
    chosen = (F.col("xact_seqno") > F.lit(watermark)) & (
        F.col("xact_seqno") <= F.lit(group.batches[-1].last_xact_seqno)
    )
    if group.before is not None:
        chosen &= F.col("xact_seqno") < F.lit(group.before)
    commands = commands.where(chosen).coalesce(1)
    # A batch is one file, written in order and read as one piece; several together must be put in order.
    return commands if len(group.batches) == 1 else commands.sortWithinPartitions("xact_seqno", "command_id")


def _collect(commands: DataFrame, delivery: Delivery) -> JobResult:
    rows = commands.mapInArrow(delivery, RESULT_DDL).collect()
    if len(rows) != 1:
        raise InternalError(f"a delivery over one connection gave {len(rows)} results")
    return JobResult.model_validate_json(rows[0]["result"])


def _first_at_or_after(spark: SparkSession, opened: OpenDistribution, batch: Batch, bound: datetime) -> bytes:
    from pyspark.sql import functions as F  # noqa: N812

    commands = spark.read.parquet(folder_path(opened.record, batch.folder))
    row = commands.where(F.col("commit_time") >= F.lit(bound)).agg(F.min("xact_seqno").alias("first")).first()
    if row is None or row["first"] is None:
        raise InternalError(f"batch {batch.folder} has no transaction at or after {bound}, though it is registered so")
    return bytes(row["first"])
