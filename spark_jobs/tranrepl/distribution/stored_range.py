"""Stored commands, read where they are used: by a Python worker.

Rows that pass from Parquet through Spark's JVM to Python cost more than reading them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tranrepl.distributor.batch_files import damaged, is_small, read_each, require_all_commands
from tranrepl.distributor.database import Batch, PublicationRecord
from tranrepl.errors import ErrorReport, ReplicationError
from tranrepl.model.command_rows import ROW_LAYOUT
from tranrepl.model.commands import Operation
from tranrepl.spark.pyarrow_setup import prepare_worker
from tranrepl.spark.without_pandas import Mapped
from tranrepl.subscriber.subscription import CommandPlace

_HANDED_OVER_BYTES = 32 * 1024 * 1024
_MOST_ROWS = 20_000


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Commands of an article that its snapshot has in it: those up to a transaction; all for None."""

    article_ids: tuple[int, ...]
    last: bytes | None


@dataclass(frozen=True, slots=True)
class StoredRange:
    """Commands of consecutive batches: those after one transaction, up to another, and before a third if it is given.
    It travels pickled inside the function that Spark runs."""

    record: PublicationRecord
    batches: tuple[Batch, ...]
    after: bytes
    last: bytes
    before: bytes | None
    left_out: tuple[LeftOut, ...] = ()
    applied_before: CommandPlace | None = None
    """Commands of this one's transaction before it are applied already."""

    def commands(self) -> Iterator[pa.RecordBatch]:
        """Yield the commands in order (row layout), those of small batches together: what follows does the same for
        few commands as for many. Raises ConfigurationError where a batch is gone or damaged."""
        for small, batches in groupby(self.batches, is_small):
            yield from map(self._chosen, (self._of_small if small else self._of_large)(list(batches)))

    def _of_small(self, batches: Sequence[Batch]) -> Iterator[pa.RecordBatch]:
        held: list[pa.Table] = []
        commands = weight = 0
        for batch, rows in zip(batches, read_each(self.record, batches), strict=True):
            held.append(rows)
            commands, weight = commands + batch.commands, weight + batch.log_bytes
            if commands >= _MOST_ROWS or weight >= _HANDED_OVER_BYTES:
                yield from _together(held)
                held, commands, weight = [], 0, 0
        yield from _together(held)

    def _of_large(self, batches: Sequence[Batch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            most = rows_at_once([batch])
            try:
                with self.record.store.open(batch.folder) as file, pq.ParquetFile(file) as stored:
                    yield from self._rows(stored, most)
            except (OSError, ValueError) as error:
                raise damaged(self.record, batch, error) from error

    def _rows(self, stored: pq.ParquetFile, most: int) -> Iterator[pa.RecordBatch]:
        groups = [it for it in range(stored.num_row_groups) if self._meets(stored.metadata.row_group(it))]
        for rows in stored.iter_batches(most, row_groups=groups):
            yield rows if rows.schema.equals(ROW_LAYOUT) else rows.cast(ROW_LAYOUT)

    def _meets(self, group: pq.RowGroupMetaData) -> bool:
        """Return whether the row group may hold commands of the range."""
        statistics = group.column(0).statistics
        if statistics is None or not statistics.has_min_max:
            return True
        first, last = bytes(statistics.min), bytes(statistics.max)
        return last > self.after and first <= self.last and (self.before is None or first < self.before)

    def _chosen(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        seqnos = rows["xact_seqno"]
        # A tracer token passes with the watermark.
        applied = pc.not_equal(rows["operation"], pa.scalar(int(Operation.TRACER_TOKEN), pa.int8()))
        chosen = pc.and_(pc.greater(seqnos, _binary(self.after)), pc.less_equal(seqnos, _binary(self.last)))
        chosen = pc.and_(chosen, applied)
        if self.before is not None:
            chosen = pc.and_(chosen, pc.less(seqnos, _binary(self.before)))
        for it in self.left_out:
            others = pc.invert(pc.is_in(rows["article_id"], value_set=pa.array(it.article_ids, pa.int32())))
            later = pa.scalar(False) if it.last is None else pc.greater(seqnos, _binary(it.last))
            chosen = pc.and_(chosen, pc.or_(others, later))
        if self.applied_before is not None:
            others = pc.not_equal(seqnos, _binary(self.applied_before.xact_seqno))
            later = pc.greater_equal(rows["command_id"], self.applied_before.command_id)
            chosen = pc.and_(chosen, pc.or_(others, later))
        return rows if pc.all(chosen).as_py() else rows.filter(chosen)


def _together(tables: Sequence[pa.Table]) -> Iterator[pa.RecordBatch]:
    if tables:
        yield from pa.concat_tables(tables).combine_chunks().to_batches()


def rows_at_once(batches: Sequence[Batch]) -> int:
    """Return how many rows to read at a time: by their average weight, about `_HANDED_OVER_BYTES`."""
    weight = max(1, sum(it.log_bytes for it in batches) // max(1, sum(it.commands for it in batches)))
    return min(_MOST_ROWS, max(1, _HANDED_OVER_BYTES // weight))


def deliver_stored(stored: StoredRange, delivery: Mapped, one: Iterable[int]) -> Iterator[str]:
    """Deliver stored commands and yield the results, for `mapPartitions` over any one element."""
    prepare_worker()
    consume(one)
    for rows in delivery(stored.commands()):
        yield from rows["result"].to_pylist()


def map_stored(stored: StoredRange, function: Mapped, one: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield what the function makes of all commands, for `map_in_arrow` over any one row."""
    prepare_worker()
    consume(one)
    return _reported(function(stored.commands()))


class _WorkerError(Exception):
    """An error of ours in what Spark says of a failed job: it raises another one, with the text alone."""

    def __init__(self, error: ReplicationError) -> None:
        super().__init__(error.report.model_dump_json())


_REPORT = f"{__name__}.{_WorkerError.__qualname__}: "
"""How Python's traceback begins the line of that error."""


def _reported(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from rows
    except ReplicationError as error:
        raise _WorkerError(error) from error


def error_of_worker(text: str) -> ReplicationError | None:
    """Return the error that a function over stored commands raised in a worker, by what Spark says of the job; None
    where it raised none of ours."""
    line = next((it for it in text.splitlines() if it.startswith(_REPORT)), None)
    return None if line is None else ErrorReport.model_validate_json(line.removeprefix(_REPORT)).to_exception()


def consume(given: Iterable[object]) -> None:
    """Read to the end: a worker that leaves something unread is not used again."""
    for _ in given:
        pass


def first_at_or_after(record: PublicationRecord, batch: Batch, bound: datetime) -> bytes | None:
    """Return the `xact_seqno` of the first transaction of a batch that was committed at or after the bound; None where
    there is none. Raises ConfigurationError where the batch is not in the store as it was registered."""
    require_all_commands(record, batch)
    time = pa.scalar(bound, ROW_LAYOUT.field("commit_time").type)
    with record.store.open(batch.folder) as file:
        commands = pq.ParquetFile(file).read(["xact_seqno", "commit_time"])
    late = commands.filter(pc.greater_equal(commands["commit_time"], time))["xact_seqno"]
    return bytes(pc.min(late).as_py()) if len(late) else None


def _binary(seqno: bytes) -> pa.Scalar:
    return pa.scalar(seqno, pa.binary())
