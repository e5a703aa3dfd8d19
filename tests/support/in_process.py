"""A publication's log reader and distribution run in this process on Arrow tables: the real ones, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from support.site import Site
from support.spark_here import SparkHere
from support.thread_streams import deliver_in_threads
from tranrepl.distribution.delivery import Delivery, deliver, deliver_pieces
from tranrepl.distribution.opening import open_distribution
from tranrepl.distribution.stream_commands import Divider, left_over
from tranrepl.distribution.streams import Vote
from tranrepl.distributor.command_store import CommandStore
from tranrepl.errors import InternalError
from tranrepl.jobs.requests import LogReaderRequest
from tranrepl.jobs.results import JobResult
from tranrepl.log_reader import job as log_reader_job
from tranrepl.log_reader.opening import open_log_reader
from tranrepl.log_reader.reading import read_log
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.command_rows import ROW_LAYOUT
from tranrepl.model.commands import XACT_SEQNO_BYTES, Operation
from tranrepl.publisher.log_range import Limits
from tranrepl.publisher.log_read import LogRead
from tranrepl.settings.publication import StreamAssignment
from tranrepl.subscriber.applier_options import ApplierOptions
from tranrepl.subscriber.batching.commit_batches import CommitLimits
from tranrepl.subscriber.capabilities import NameLimit
from tranrepl.subscriber.command_text import command_text

_ROWS_HANDED_OVER = 20_000


@dataclass(frozen=True, slots=True)
class ReadCommands:
    """The commands of one reading of the log, in order."""

    commands: pa.Table
    articles: Mapping[int, RegisteredArticle]
    account: LogRead

    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.commands.to_pylist()
        return rows

    def texts(self) -> list[str]:
        """Return the commands as `tranrepl browse` shows them."""
        return [
            command_text(self.articles[row["article_id"]], Operation(row["operation"]), row, NameLimit())
            for row in self.rows()
        ]


def read_commands(site: Site) -> ReadCommands:
    """Read all there is, and go past it: the next reading begins after it."""
    with open_log_reader(site.topology) as opened:
        articles = opened.database.articles.active(site.publication, opened.record)
        everything = Limits(1_000_000, 1_000_000_000)
        up_to = opened.publisher.end_of_log()
        log = opened.publisher.log_range(articles, opened.start, up_to, everything)
        reading = read_log(log.between(opened.start, up_to))
        batches: list[pa.RecordBatch] = []
        while True:
            try:
                batches.append(next(reading))
            except StopIteration as end:
                account: LogRead = end.value
                break
        if account.refusal is None:
            if account.end is None:
                raise InternalError("a read of the log ended nowhere")
            opened.database.batches.register(opened.record, None, account.end, proof=None)
            opened.publisher.confirm(account.end)
    commands = pa.Table.from_batches(batches, ROW_LAYOUT)
    return ReadCommands(commands, {it.article_id: it for it in articles}, account)


def read_log_into_store(site: Site) -> JobResult:
    """Run `tranrepl log-reader`, the whole job; return its result with its error."""
    spark: Any = SparkHere()
    return log_reader_job.run(spark, LogReaderRequest(publication=site.publication), site.connections)


def deliver_stored(site: Site, vote: Callable[[Vote, int], Vote] = lambda vote, stream: vote) -> JobResult:  # noqa: ARG005
    """Run `tranrepl distribute` over what is registered in the store; return its result with its error. Streams are
    threads. `vote` may change a stream's vote.
    """
    settings = site.publication.subscription("reporting")
    with open_distribution(site.topology, settings.name) as opened:
        position, articles = opened.subscriber.position(), opened.database.articles.by_id(opened.record)
        opened.refuse_incomplete(position.watermark)
        batches = opened.database.batches.after(opened.record, position.watermark)
        left_out = _left_out(articles, opened.left_out())
        stored = partial(_stored, opened.record.store, [it.folder for it in batches])
        limits = CommitLimits(settings.commit_batch_size, settings.commit_batch_threshold)
        options = ApplierOptions(apply=settings.apply)
        delivery = Delivery(opened.connection, opened.key, articles, position.watermark, limits, options)
        if position.unfinished is not None:
            last = position.unfinished.record.last
            left = left_over(stored(position.watermark, left_out, last), position.unfinished, articles)
            finished = deliver_pieces(replace(delivery, finishing=position.unfinished), left)
            return finished if finished.error is not None else finished.plus(deliver_stored(site))
        commands = stored(position.watermark, left_out)
        if settings.subscription_streams == 1:
            return deliver(delivery, commands)
        opened.subscriber.set_up_streams(settings.subscription_streams)
        constraints = opened.subscriber.constraints(list(articles.values()))
        divider = Divider(articles, settings.subscription_streams, settings.stream_assignment, constraints, limits)
        delivery = replace(delivery, options=replace(options, lock_timeout_seconds=settings.lock_timeout))
        return deliver_in_threads(delivery, pa.Table.from_batches(list(commands), ROW_LAYOUT), divider, vote=vote)


def replicate_stored(site: Site) -> JobResult:
    """Read the log into the store and deliver from it; the delivery's result. Raises what stopped either."""
    read_log_into_store(site).raise_error()
    delivered = deliver_stored(site)
    delivered.raise_error()
    return delivered


def _left_out(articles: Mapping[int, RegisteredArticle], left_out: Mapping[str, bytes | None]) -> ds.Expression:
    """Return a filter of the commands that the snapshots of articles contain."""
    chosen = pc.scalar(False)
    for source, last in left_out.items():
        ids = pa.array([number for number, it in articles.items() if str(it.source) == source], pa.int32())
        early = pc.scalar(True) if last is None else pc.field("xact_seqno") <= pa.scalar(last, pa.binary())
        chosen = chosen | (pc.field("article_id").isin(ids) & early)
    return chosen


def _stored(
    store: CommandStore,
    folders: Sequence[str],
    after: bytes,
    left_out: ds.Expression,
    last: bytes = b"\xff" * XACT_SEQNO_BYTES,
) -> Iterator[pa.RecordBatch]:
    seqno = pc.field("xact_seqno")
    chosen = (seqno > pa.scalar(after, pa.binary())) & (seqno <= pa.scalar(last, pa.binary())) & ~left_out
    for folder in folders:
        stored = pq.read_table(pa.BufferReader(store.read(folder)), schema=ROW_LAYOUT)
        yield from stored.filter(chosen).to_batches(_ROWS_HANDED_OVER)


def deliver_commands(site: Site, read: ReadCommands, limits: CommitLimits | None = None) -> JobResult:
    """Apply after the Subscriber's watermark over one connection; return the result with its error."""
    delivery = _delivery(site, read, limits)
    return deliver(delivery, _after(read.commands, delivery.watermark).to_batches())


def deliver_commands_in_streams(
    site: Site,
    read: ReadCommands,
    limits: CommitLimits,
    streams: int,
    assignment: StreamAssignment,
    *,
    retry: bool = True,
) -> tuple[JobResult, JobResult]:
    """Make the first attempt over streams, and the retry over a single connection of what it left."""
    with open_distribution(site.topology, "reporting") as opened:
        opened.subscriber.set_up_streams(streams)
        constraints = opened.subscriber.constraints(list(read.articles.values()))
    delivery = replace(_delivery(site, read, limits), options=ApplierOptions(lock_timeout_seconds=0.1))
    divider = Divider(read.articles, streams, assignment, constraints, limits)
    first = deliver_in_threads(delivery, _after(read.commands, delivery.watermark), divider)
    failed = first.error is not None
    return first, deliver_commands(site, read, limits) if failed and retry else JobResult()


def _delivery(site: Site, read: ReadCommands, limits: CommitLimits | None) -> Delivery:
    with open_distribution(site.topology, "reporting") as opened:
        return Delivery(
            opened.connection,
            opened.key,
            read.articles,
            opened.subscriber.watermark(),
            limits or CommitLimits(1000, 10_000),
            ApplierOptions(not_for_replication=site.publication.subscription("reporting").not_for_replication),
        )


def _after(commands: pa.Table, watermark: bytes) -> pa.Table:
    return commands.filter(pc.greater(commands["xact_seqno"], pa.scalar(watermark, pa.binary())))


def replicate(site: Site) -> ReadCommands:
    """Read and deliver, past the store; raise what stopped either."""
    read = read_commands(site)
    if read.account.refusal is not None:
        raise read.account.refusal.to_exception()
    delivered = deliver_commands(site, read)
    delivered.raise_error()
    with open_distribution(site.topology, "reporting") as opened:
        # Of a transaction that is neither stored nor told of, nobody would know.
        opened.database.history.record_distribution(opened.record, opened.subscription, delivered)
    return read
