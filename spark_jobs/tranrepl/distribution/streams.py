"""One of several streams that deliver together: each applies its part of a commit batch, all vote, all commit or none.

The order in which they gather keeps it right. Stream 0 begins first, so that two jobs cannot each hold rows that the
other waits for. All vote before any commits. Stream 0 commits last, and with it the subscription's watermark moves:
until then, what the others have committed is in their own rows, from which the batch can be finished.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from tranrepl.distribution.all_gather_server import Address
from tranrepl.distribution.delivery import Delivery, Tally, apply_piece, result_row
from tranrepl.distribution.latency import LatencyMeter
from tranrepl.distribution.planning_ahead import Planned, ahead
from tranrepl.distribution.recording import reporting_progress
from tranrepl.distribution.stream_assignment import Division
from tranrepl.distribution.stream_commands import StreamPiece, stream_pieces
from tranrepl.errors import ErrorKind, ErrorReport, InternalError, ReplicationError
from tranrepl.failpoint import Failpoint, reach
from tranrepl.jobs.results import JobResult
from tranrepl.spark.pyarrow_setup import prepare_worker
from tranrepl.subscriber.base.applier import Applier
from tranrepl.subscriber.batching.commit_batches import Piece
from tranrepl.subscriber.registry import dialect_of
from tranrepl.subscriber.subscription import Stream, StreamRecord


class Vote(Protocol):
    """Gather the ballots of a delivery's streams. Every stream takes part in the same rounds, in the same order."""

    def gather(self, ballot: str) -> Sequence[str]:
        """Wait for all, and return everyone's ballots, by stream."""
        ...


class Ballot(BaseModel):
    """What a stream says: that it goes on, or why it cannot."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    error: ErrorReport | None = None


def first_error(vote: Vote, error: ErrorReport | None) -> ErrorReport | None:
    """Gather; return the error of the first stream that has one. None: everyone goes on."""
    ballots = vote.gather(Ballot(error=error).model_dump_json())
    errors = [Ballot.model_validate_json(it).error for it in ballots]
    return next((it for it in errors if it is not None), None)


@dataclass(frozen=True, slots=True)
class StreamDelivery:
    """For a barrier stage with a partition for each stream. It travels pickled inside the function that Spark runs."""

    delivery: Delivery
    streams: int
    gather_at: Address

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Apply a stream's `STREAM_COMMANDS` and yield one row with its `JobResult`, for `map_in_arrow`."""
        from pyspark import TaskContext

        prepare_worker()
        context = TaskContext.get()
        if context is None:
            raise InternalError("a stream runs outside of a Spark task")
        stream = Stream(context.partitionId(), self.streams)
        vote = self.gather_at.join(stream.number)
        try:
            yield result_row(deliver_stream(self.delivery, stream, stream_pieces(batches), vote))
        finally:
            vote.close()


def deliver_stream(delivery: Delivery, stream: Stream, pieces: Iterable[StreamPiece], vote: Vote) -> JobResult:
    """Apply one stream's commands. The result counts what this stream committed (transactions: stream 0), and its
    error is this stream's own: none where another one's ended the delivery."""
    started = time.perf_counter()
    worker = _Worker(delivery, stream, vote, delivery.watermark, Tally(latency=LatencyMeter(delivery.registered)))
    try:
        dialect = dialect_of(delivery.connection)
        with (
            reporting_progress(delivery.run, worker.tally),
            dialect.applier(delivery.connection, delivery.key, delivery.articles, delivery.options) as applier,
        ):
            worker.deliver(applier, pieces)
    except ReplicationError as problem:
        worker.failure = worker.failure or problem.report
        if not worker.met:
            worker.goes_on()
    return worker.tally.result(worker.watermark, time.perf_counter() - started, worker.failure)


@dataclass(slots=True)
class _Worker:
    delivery: Delivery
    stream: Stream
    vote: Vote
    watermark: bytes
    tally: Tally = field(default_factory=Tally)
    failure: ErrorReport | None = None
    met: bool = False
    _open: bool = False

    def deliver(self, applier: Applier, pieces: Iterable[StreamPiece]) -> None:
        """Deliver until the pieces end, or some stream fails."""
        planner = self.delivery.planner(applier, _piece_of)
        with closing(ahead(planner.plan(pieces))) as planned:
            for it in planned:
                if not self._open and not self._begin(applier):
                    return
                self._apply(applier, it)
                if it.item.division is not None and not self._end(applier, it.item.piece, it.item.division):
                    return
        if self.tally.batches:
            applier.flush()

    def goes_on(self) -> bool:
        """Meet the others, with this stream's failure; whether none has one."""
        self.met = True
        return first_error(self.vote, self.failure) is None

    def _begin(self, applier: Applier) -> bool:
        first = self.stream.number == 0
        if first:
            self._try(lambda: applier.begin(self.watermark, self.stream))
        if not self.goes_on():
            return False
        if not first:
            self._try(lambda: applier.begin(self.watermark, self.stream))
        self._open = True
        self._reach(Failpoint.BEGIN)
        return True

    def _apply(self, applier: Applier, planned: Planned[StreamPiece]) -> None:
        started = time.perf_counter()
        self.tally.planned(planned)
        self._try(lambda: self._apply_steps(applier, planned))
        self._reach(Failpoint.APPLIED)
        self.tally.notices |= dict.fromkeys(applier.take_notices())
        self.tally.seconds["apply"] += time.perf_counter() - started

    def _apply_steps(self, applier: Applier, planned: Planned[StreamPiece]) -> None:
        apply_piece(applier, planned.item.piece.commands, planned.steps, self.delivery, self.tally)

    def _end(self, applier: Applier, piece: Piece, division: Division) -> bool:
        """Vote and commit; return whether the delivery goes on."""
        started = time.perf_counter()
        self._try(applier.ready)
        if not self.goes_on():
            applier.rollback()
            return False
        self._reach(Failpoint.VOTED)
        if self.stream.number != 0:
            self._commit_stream(applier, piece, division)
        if not self.goes_on():
            return False
        if self.stream.number == 0:
            self._commit(applier, piece)
        self._open = False
        if self.failure is None:
            self.watermark = piece.last_xact_seqno
        self.tally.seconds["commit"] += time.perf_counter() - started
        return True

    def _commit_stream(self, applier: Applier, piece: Piece, division: Division) -> None:
        record = StreamRecord(self.watermark, piece.last_xact_seqno, self.stream.streams, division.model_dump_json())
        self._try(lambda: applier.commit_stream(self.stream, record))
        self._reach(Failpoint.STREAM_COMMITTED)
        if self.failure is None:
            self.tally.committed(0)

    def _commit(self, applier: Applier, piece: Piece) -> None:
        """Commit; where that fails, the other streams learn of it when they begin the next commit batch."""
        self._reach(Failpoint.BEFORE_COMMIT)
        self._try(lambda: applier.commit(piece.last_xact_seqno))
        self._reach(Failpoint.AFTER_COMMIT)
        if self.failure is None:
            self.tally.committed(piece.transactions)
            self.delivery.committed(self.watermark, piece.last_xact_seqno)

    def _reach(self, point: Failpoint) -> None:
        reach(point, self.stream.number)

    def _try(self, step: Callable[[], None]) -> None:
        """Take a step unless one has failed; its failure is reported when the streams gather next."""
        if self.failure is not None:
            return
        try:
            step()
        except ReplicationError as problem:
            self.failure = problem.report


def _piece_of(piece: StreamPiece) -> Piece:
    return piece.piece


def together(results: Sequence[JobResult]) -> JobResult:
    """Add up the streams' results. Of their errors, one about data comes first: it says most."""
    errors = [it.error for it in results if it.error is not None]
    first = next((it for it in errors if it.kind is ErrorKind.DATA), errors[0] if errors else None)
    total = JobResult()
    for result in results:
        total = total.plus(result)
    phases = {name: max(it.phases.get(name, 0.0) for it in results) for name in total.phases}
    return total.model_copy(
        update={
            "batches": results[0].batches,
            "last_xact_seqno": results[0].last_xact_seqno,
            "seconds": max(it.seconds for it in results),
            "phases": phases,
            "error": first,
        }
    )
