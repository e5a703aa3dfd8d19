"""The log reader job: the Publisher's log into the store, batch by batch.

A batch counts once it is registered; only then does the slot advance. Whatever was written before stays invisible.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from tranrepl.connections import Connection
from tranrepl.distributor.database import Batch, PublicationRecord
from tranrepl.distributor.store import folder_path, new_folder, remove_folder
from tranrepl.errors import InternalError, ReplicationError
from tranrepl.failpoint import Failpoint, reach
from tranrepl.jobs import JobResult, LogReaderRequest, latency_ms
from tranrepl.log_reader.opening import OpenLogReader, open_log_reader
from tranrepl.log_reader.reading import Reading
from tranrepl.publisher.log_read import LogRead
from tranrepl.publisher.pgoutput import Limits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Written:
    """What one Spark action read and wrote."""

    read: LogRead
    batch: Batch | None
    commands_by_article: Mapping[str, int]
    seconds: float


def run(spark: SparkSession, request: LogReaderRequest, connections: Mapping[str, Connection]) -> JobResult:
    """Read all that was committed before now. The result, error or not, is in the history."""
    clock = time.perf_counter()
    with open_log_reader(request, connections) as opened:
        reader = _LogReader(spark, request, opened)
        row = opened.database.start_run(opened.record)
        reader.tell = lambda so_far: opened.database.tell_progress(row, so_far)
        error: ReplicationError | None = None
        try:
            reader.drain()
        except ReplicationError as problem:
            error = problem
        result = reader.result.model_copy(
            update={"seconds": time.perf_counter() - clock, "error": error.to_report() if error else None}
        )
        opened.database.end_run(row, result)
    return result


class _LogReader:
    def __init__(self, spark: SparkSession, request: LogReaderRequest, opened: OpenLogReader) -> None:
        self._spark = spark
        self._settings = request.publication.log_reader
        self._opened = opened
        self._record: PublicationRecord = opened.record
        # Before the articles are: what an article that is added meanwhile needs is read by the next one.
        self._up_to = opened.publisher.end_of_log()
        self._articles = opened.database.active_articles(request.publication, opened.record)
        seqno = self._record.registered_xact_seqno
        self.result = JobResult(last_xact_seqno=seqno.hex() if seqno else None)
        self.tell: Callable[[JobResult], None] = _tell_nobody

    def drain(self) -> None:
        """Read batches until the log's end as it was at the start. Raises ReplicationError; what was registered
        stays."""
        complete = False
        while not complete:
            complete = self._read_batch(self._up_to)
        self._opened.publisher.refuse_replaced(self._articles)

    def _read_batch(self, up_to: int, stop_at: int | None = None) -> bool:
        folder = new_folder()
        written = self._write(folder, up_to, stop_at)
        read = written.read
        if read.error is not None:
            remove_folder(self._spark, folder_path(self._record, folder))
            raise read.error.to_exception()
        if read.refusal is not None:
            # The transaction that cannot be read may already be written in part: read again, up to before it.
            remove_folder(self._spark, folder_path(self._record, folder))
            if read.last_commit_lsn is None:
                raise read.refusal.to_exception()
            return self._read_batch(up_to, stop_at=read.last_commit_lsn)
        if written.batch is None:
            remove_folder(self._spark, folder_path(self._record, folder))
        self._register(written, read)
        return read.complete

    def _register(self, written: _Written, read: LogRead) -> None:
        if read.end_lsn is None:
            raise InternalError("a read of the log ended nowhere")
        started = time.perf_counter()
        self._record = self._opened.database.register_batch(self._record, written.batch, read.end_lsn)
        registered = time.perf_counter()
        reach(Failpoint.REGISTERED)
        self._opened.publisher.advance(read.end_lsn)
        advanced = time.perf_counter()
        reach(Failpoint.ADVANCED)
        self._add(written, {"register": registered - started, "advance": advanced - registered})

    def _add(self, written: _Written, seconds: Mapping[str, float]) -> None:
        seconds = {
            "read": written.read.read_seconds,
            "decode": written.read.decode_seconds,
            "transform": written.read.transform_seconds,
            "read_to_store": written.seconds,
            **seconds,
        }
        batch = written.batch
        self.result = self.result.plus(
            JobResult(
                transactions=batch.transactions if batch else 0,
                commands=batch.commands if batch else 0,
                batches=1 if batch else 0,
                last_xact_seqno=batch.last_xact_seqno.hex() if batch else None,
                commands_by_article=dict(written.commands_by_article),
                latency_ms=latency_ms(batch.last_commit_time) if batch else None,
                phases=dict(seconds),
            )
        )
        self.tell(self.result)
        log.info("registered %d commands of %d transactions", self.result.commands, self.result.transactions)

    def _write(self, folder: str, up_to: int, stop_at: int | None) -> _Written:
        reading = Reading(
            self._opened.connection,
            self._record.slot_name,
            self._articles,
            self._record.registered_lsn or up_to,
            up_to,
            Limits(self._settings.read_batch_size, self._settings.read_batch_bytes, stop_at),
        )
        return _stored(self._spark, reading, folder, folder_path(self._record, folder))


def _tell_nobody(_: JobResult) -> None:
    pass


def _batch(folder: str, read: LogRead) -> Batch | None:
    """The batch to register; None where nothing was stored."""
    if read.first_xact_seqno is None or read.last_xact_seqno is None:
        return None
    return Batch(
        folder,
        bytes.fromhex(read.first_xact_seqno),
        bytes.fromhex(read.last_xact_seqno),
        _EPOCH + timedelta(microseconds=read.first_commit_time or 0),
        _EPOCH + timedelta(microseconds=read.last_commit_time or 0),
        read.changed_transactions,
        sum(read.commands_by_article.values()),
        read.message_bytes,
    )


def _stored(spark: SparkSession, reading: Reading, folder: str, path: str) -> _Written:
    from tranrepl.log_reader.storing import store_commands

    started = time.perf_counter()
    read = store_commands(spark, reading, path)
    names = {article.article_id: str(article.source) for article in reading.articles}
    by_article = {names[number]: count for number, count in read.commands_by_article.items()}
    return _Written(read, _batch(folder, read), by_article, time.perf_counter() - started)
