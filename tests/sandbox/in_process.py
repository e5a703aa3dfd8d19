"""A publication's log reader and distribution run in this process on Arrow tables: the real ones, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from sandbox.site import Site
from sandbox.spark_here import SparkHere
from tranrepl.article import RegisteredArticle
from tranrepl.browse import command_text
from tranrepl.commands import ROW_LAYOUT, Operation
from tranrepl.distribution.delivery import Delivery, deliver
from tranrepl.distribution.opening import open_distribution
from tranrepl.distributor.store import folder_path
from tranrepl.errors import InternalError
from tranrepl.jobs import DistributionRequest, JobResult, LogReaderRequest
from tranrepl.log_reader import job as log_reader_job
from tranrepl.log_reader.opening import open_log_reader
from tranrepl.log_reader.reading import Reading, read_log
from tranrepl.publisher.log_read import LogRead
from tranrepl.publisher.pgoutput import Limits
from tranrepl.subscriber.commit_batches import CommitLimits

_ROWS_HANDED_OVER = 20_000


@dataclass(frozen=True, slots=True)
class ReadCommands:
    """What one reading of the log gave, in order."""

    commands: pa.Table
    articles: Mapping[int, RegisteredArticle]
    account: LogRead

    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.commands.to_pylist()
        return rows

    def texts(self) -> list[str]:
        """As `tranrepl browse` shows them."""
        return [command_text(self.articles[row["article_id"]], Operation(row["operation"]), row) for row in self.rows()]


def read_commands(site: Site) -> ReadCommands:
    """Read all there is, and pass over it: the next reading begins after it."""
    with open_log_reader(LogReaderRequest(publication=site.publication), site.connections) as opened:
        articles = opened.database.active_articles(site.publication, opened.record)
        everything = Limits(1_000_000, 1_000_000_000)
        up_to = opened.publisher.end_of_log()
        start = opened.record.registered_lsn or up_to
        reading = read_log(Reading(opened.connection, opened.record.slot_name, articles, start, up_to, everything))
        batches: list[pa.RecordBatch] = []
        while True:
            try:
                batches.append(next(reading))
            except StopIteration as end:
                account: LogRead = end.value
                break
        if account.refusal is None:
            if account.end_lsn is None:
                raise InternalError("a read of the log ended nowhere")
            opened.database.register_batch(opened.record, None, account.end_lsn)
            opened.publisher.advance(account.end_lsn)
    commands = pa.Table.from_batches(batches, ROW_LAYOUT)
    return ReadCommands(commands, {it.article_id: it for it in articles}, account)


def read_log_into_store(site: Site) -> JobResult:
    """`tranrepl log-reader`, its result with its error: the whole job."""
    spark: Any = SparkHere()
    return log_reader_job.run(spark, LogReaderRequest(publication=site.publication), site.connections)


def deliver_stored(site: Site) -> JobResult:
    """`tranrepl distribute` over one connection, its result with its error: what is registered, from the store."""
    settings = site.publication.subscription("reporting")
    request = DistributionRequest(publication=site.publication, subscription=settings.name)
    with open_distribution(request, site.connections) as opened:
        watermark = opened.subscriber.watermark(wait=True)
        folders = [it.folder for it in opened.database.batches_after(opened.record, watermark)]
        delivery = Delivery(
            opened.connection,
            opened.key,
            opened.database.all_articles(opened.record),
            watermark,
            CommitLimits(settings.commit_batch_size, settings.commit_batch_threshold),
        )
        return deliver(delivery, _stored([folder_path(opened.record, it) for it in folders], watermark))


def _stored(paths: Sequence[str], watermark: bytes) -> Iterator[pa.RecordBatch]:
    after = pc.field("xact_seqno") > pa.scalar(watermark, ROW_LAYOUT.field("xact_seqno").type)
    for path in paths:
        table = ds.dataset(path, format="parquet", schema=ROW_LAYOUT).to_table(filter=after)
        yield from table.to_batches(_ROWS_HANDED_OVER)


def deliver_commands(site: Site, read: ReadCommands, limits: CommitLimits | None = None) -> JobResult:
    """Apply after the Subscriber's watermark; the result with its error."""
    request = DistributionRequest(publication=site.publication, subscription="reporting")
    with open_distribution(request, site.connections) as opened:
        delivery = Delivery(
            opened.connection,
            opened.key,
            read.articles,
            opened.subscriber.watermark(),
            limits or CommitLimits(1000, 10_000),
        )
    return deliver(delivery, read.commands.to_batches())


def replicate(site: Site) -> ReadCommands:
    """Read and deliver; raises what stopped either."""
    read = read_commands(site)
    if read.account.refusal is not None:
        raise read.account.refusal.to_exception()
    deliver_commands(site, read).raise_error()
    return read
