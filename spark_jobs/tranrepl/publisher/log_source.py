"""The Publisher's log as a PySpark data source: changes in commit order, in Arrow batches, ended by an account.

The reader peeks: reading changes nothing at the Publisher, so a read may be repeated at will.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tranrepl.article import RegisteredArticle
from tranrepl.commands import ROW_LAYOUT, ROW_LAYOUT_DDL, Operation
from tranrepl.connections import Connection
from tranrepl.errors import ConfigurationError, ErrorReport, ReplicationError, TransientError
from tranrepl.publisher.log_messages import FetchError, log_messages
from tranrepl.publisher.log_read import LogRead
from tranrepl.publisher.pgoutput import Commit, Limits, PgOutputDecoder, RelationMismatch


@dataclass(frozen=True, slots=True)
class LogReadPlan:
    """What to read: from where the slot stands up to `up_to`, in whole transactions, within the limits."""

    connection: Connection
    slot: str
    articles: Sequence[RegisteredArticle]
    up_to: int
    limits: Limits


def log_source(plan: LogReadPlan) -> type[DataSource]:
    """A data source class for this plan. The plan, password and all, travels pickled inside the class: options
    would show it in Spark's plans and UI."""

    class PublisherLog(DataSource):
        @classmethod
        def name(cls) -> str:
            return "tranrepl_publisher_log"

        def schema(self) -> str:
            return ROW_LAYOUT_DDL

        def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
            return PublisherLogReader(plan)

    return PublisherLog


class PublisherLogReader(DataSourceReader):
    """One partition: the log is one ordered stream."""

    def __init__(self, plan: LogReadPlan) -> None:
        self._plan = plan

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        account = LogRead()
        try:
            account = yield from read_log(self._plan)
        except FetchError as error:
            account = _with_error(account, _translate(self._plan, error))
        except ReplicationError as error:
            account = _with_error(account, error)
        yield _end_of_batch(account)


def _with_error(account: LogRead, error: ReplicationError) -> LogRead:
    return account.model_copy(update={"error": error.to_report()})


def read_log(plan: LogReadPlan) -> Generator[pa.RecordBatch, None, LogRead]:
    """Yield changes; return the account of the read."""
    decoder = PgOutputDecoder(plan.articles, plan.limits)
    last_commit: Commit | None = None
    decode_seconds, started = 0.0, time.perf_counter()
    complete, mismatch, tally = True, None, _Tally()
    for batch in log_messages(plan.connection, plan.slot, plan.up_to):
        decode_started = time.perf_counter()
        decoded = decoder.decode(batch)
        decode_seconds += time.perf_counter() - decode_started
        last_commit = decoded.last_commit or last_commit
        mismatch = decoded.mismatch
        tally.add(decoded.changes)
        yield decoded.changes
        if mismatch is not None or decoded.limit_reached:
            complete = False
            break
    end_lsn = last_commit.end_lsn if last_commit else None
    return LogRead(
        transactions=decoder.transactions,
        message_bytes=decoder.message_bytes,
        changed_transactions=tally.transactions,
        changes_by_article=tally.by_article,
        first_xact_seqno=tally.first_xact_seqno,
        last_xact_seqno=tally.last_xact_seqno,
        first_commit_time=tally.first_commit_time,
        last_commit_time=tally.last_commit_time,
        last_commit_lsn=last_commit.lsn if last_commit else None,
        end_lsn=max(plan.up_to, end_lsn or 0) if complete else end_lsn,
        complete=complete,
        read_seconds=time.perf_counter() - started,
        decode_seconds=decode_seconds,
        mismatch=_mismatch_error(plan, mismatch) if mismatch else None,
    )


@dataclass(slots=True)
class _Tally:
    """What the account says of the changes."""

    transactions: int = 0
    by_article: dict[int, int] = field(default_factory=dict)
    first_xact_seqno: str | None = None
    last_xact_seqno: str | None = None
    first_commit_time: int | None = None
    last_commit_time: int | None = None

    def add(self, changes: pa.RecordBatch) -> None:
        if len(changes) == 0:
            return
        seqnos = changes["xact_seqno"]
        self.first_xact_seqno = self.first_xact_seqno or seqnos[0].as_py().hex()
        self.last_xact_seqno = seqnos[-1].as_py().hex()
        times = pc.min_max(changes["commit_time"].cast(pa.int64()))
        earliest, latest = times["min"].as_py(), times["max"].as_py()
        self.first_commit_time = earliest if self.first_commit_time is None else min(earliest, self.first_commit_time)
        self.last_commit_time = latest if self.last_commit_time is None else max(latest, self.last_commit_time)
        self.transactions += pc.sum(pc.equal(changes["command_id"], 1)).as_py()
        for count in pc.value_counts(changes["article_id"]).to_pylist():
            article = count["values"]
            self.by_article[article] = self.by_article.get(article, 0) + count["counts"]


def _translate(plan: LogReadPlan, error: Exception) -> ReplicationError:
    message = f"Publisher {plan.connection.database}: {str(error).splitlines()[0]}"
    state = getattr(error, "sqlstate", None)
    if state is None or state[:2] in ("08", "40", "53", "57", "58") or state == "55006":
        return TransientError(message, number=state)
    return ConfigurationError(message, number=state)


def _mismatch_error(plan: LogReadPlan, mismatch: RelationMismatch) -> ErrorReport:
    return ConfigurationError(
        f"Publisher {plan.connection.database}: table {mismatch.article.source} was altered: {mismatch.problem}. "
        "Everything committed before that is stored; nothing after it is read.",
        remedy="make the Subscriber's table fit, change the article's columns if need be, and run `tranrepl setup`",
        article=str(mismatch.article.source),
    ).to_report()


def _end_of_batch(account: LogRead) -> pa.RecordBatch:
    row = {"operation": int(Operation.END_OF_BATCH), "after": [account.model_dump_json()]}
    return pa.RecordBatch.from_pylist([row], schema=ROW_LAYOUT)
