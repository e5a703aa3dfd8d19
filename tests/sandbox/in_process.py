"""A publication's log reader and distribution run in this process on Arrow tables: the real ones, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sandbox.site import Site
from tranrepl.article import RegisteredArticle
from tranrepl.commands import ROW_LAYOUT, Operation
from tranrepl.distribution.delivery import Delivery, deliver
from tranrepl.distribution.opening import open_distribution
from tranrepl.errors import InternalError
from tranrepl.jobs import DistributionRequest, JobResult, LogReaderRequest
from tranrepl.log_reader.opening import open_log_reader
from tranrepl.log_reader.reading import Reading, read_log
from tranrepl.publisher.log_read import LogRead
from tranrepl.publisher.pgoutput import Limits
from tranrepl.subscriber.command_text import command_text
from tranrepl.subscriber.commit_batches import CommitLimits
from tranrepl.subscriber.dialect import ApplierOptions


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
            ApplierOptions(not_for_replication=site.publication.subscription("reporting").not_for_replication),
        )
    return deliver(delivery, read.commands.to_batches())


def replicate(site: Site) -> ReadCommands:
    """Read and deliver; raises what stopped either."""
    read = read_commands(site)
    if read.account.refusal is not None:
        raise read.account.refusal.to_exception()
    deliver_commands(site, read).raise_error()
    return read
