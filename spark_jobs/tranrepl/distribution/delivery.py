"""One stream of a delivery: commands in, committed commit batches out, with the watermark in every commit."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from tranrepl.article import RegisteredArticle
from tranrepl.connections import Connection
from tranrepl.errors import InternalError, ReplicationError
from tranrepl.failpoint import Failpoint, reach
from tranrepl.jobs import JobResult
from tranrepl.subscriber.commit_batches import CommitLimits, Piece, commit_batches
from tranrepl.subscriber.dialect import Applier, SubscriptionKey
from tranrepl.subscriber.dialects import dialect_of

RESULT_SCHEMA = pa.schema([pa.field("result", pa.string())])
RESULT_DDL = "result string"


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a stream needs to know. It travels pickled inside the function that Spark runs, password and all."""

    connection: Connection
    key: SubscriptionKey
    articles: Mapping[int, RegisteredArticle]
    watermark: bytes
    """Where the Subscriber must stand when the first commit batch is applied."""
    limits: CommitLimits

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`: ordered commands in, one row with the `JobResult` out. Errors are in it, never raised."""
        result = deliver(self, batches)
        yield pa.RecordBatch.from_pydict({"result": [result.model_dump_json()]}, schema=RESULT_SCHEMA)


@dataclass(slots=True)
class _Tally:
    """What was committed, and what the open transaction would add to it."""

    transactions: int = 0
    commands: int = 0
    batches: int = 0
    by_article: dict[str, int] = field(default_factory=dict)
    open_by_article: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=lambda: {"apply": 0.0, "commit": 0.0})

    def applied(self, commands: pa.Table, articles: Mapping[int, RegisteredArticle]) -> None:
        for row in commands["article_id"].value_counts().to_pylist():
            name = str(articles[row["values"]].source)
            self.open_by_article[name] = self.open_by_article.get(name, 0) + row["counts"]

    def committed(self, piece: Piece) -> None:
        self.batches += 1
        self.transactions += piece.transactions
        self.commands += sum(self.open_by_article.values())
        for name, count in self.open_by_article.items():
            self.by_article[name] = self.by_article.get(name, 0) + count
        self.open_by_article = {}


def deliver(delivery: Delivery, batches: Iterable[pa.RecordBatch]) -> JobResult:
    """Apply and commit. The result counts what was committed, also where an error ended it."""
    tally, watermark = _Tally(), delivery.watermark
    started = time.perf_counter()
    error: ReplicationError | None = None
    try:
        dialect = dialect_of(delivery.connection)
        with dialect.applier(delivery.connection, delivery.key, delivery.articles) as applier:
            stream = _Stream(delivery, applier, tally)
            for piece in commit_batches(batches, delivery.limits):
                stream.apply(piece)
                if piece.ends_commit_batch:
                    watermark = stream.commit(piece)
            if tally.batches:
                applier.flush()
    except ReplicationError as problem:
        error = problem
    return JobResult(
        transactions=tally.transactions,
        commands=tally.commands,
        batches=tally.batches,
        seconds=time.perf_counter() - started,
        last_xact_seqno=watermark.hex(),
        commands_by_article=tally.by_article,
        phases=tally.seconds,
        error=error.to_report() if error else None,
    )


class _Stream:
    """One connection's transaction, opened under the fence of the watermark."""

    def __init__(self, delivery: Delivery, applier: Applier, tally: _Tally) -> None:
        self._applier = applier
        self._tally = tally
        self._articles = delivery.articles
        self._watermark = delivery.watermark
        self._open = False

    def apply(self, piece: Piece) -> None:
        started = time.perf_counter()
        if not self._open:
            self._applier.begin(self._watermark)
            self._open = True
            reach(Failpoint.BEGIN)
        self._applier.apply(piece.commands)
        reach(Failpoint.APPLIED)
        self._tally.applied(piece.commands, self._articles)
        self._tally.seconds["apply"] += time.perf_counter() - started

    def commit(self, piece: Piece) -> bytes:
        started = time.perf_counter()
        if not self._open:
            raise InternalError("a commit batch without a transaction")
        reach(Failpoint.BEFORE_COMMIT)
        self._applier.commit(piece.last_xact_seqno)
        reach(Failpoint.AFTER_COMMIT)
        self._open, self._watermark = False, piece.last_xact_seqno
        self._tally.committed(piece)
        self._tally.seconds["commit"] += time.perf_counter() - started
        return self._watermark
