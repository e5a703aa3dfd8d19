"""Commands on their way to the streams: each with its stream, and a mark for every stream where a commit batch ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tranrepl.distribution.stream_assignment import UNDIVIDED, Division, Method, division
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.command_rows import ROW_LAYOUT, ROW_LAYOUT_DDL
from tranrepl.settings.publication import StreamAssignment
from tranrepl.subscriber.batching.commit_batches import PIECE_COMMANDS, CommitLimits, Piece, commit_batches
from tranrepl.subscriber.constraints import Constraints
from tranrepl.subscriber.subscription import UnfinishedBatch

STREAM_COMMANDS = pa.schema(
    [
        *ROW_LAYOUT,
        pa.field("stream", pa.int32()),
        pa.field("transactions", pa.int64()),
        pa.field("division", pa.string()),
    ]
)
"""Commands with their stream. A mark has no command, but the transactions of its commit batch and the division."""
STREAM_COMMANDS_DDL = f"{ROW_LAYOUT_DDL}, stream int, transactions bigint, division string"
_AFTER_ALL_COMMANDS = 2**62
_ONE_COMMIT_BATCH = CommitLimits(2**62, 2**62)


@dataclass(frozen=True, slots=True)
class StreamPiece:
    """A stream's part of a piece; with the last one of a commit batch comes how the batch was divided."""

    piece: Piece
    division: Division | None = None


@dataclass(frozen=True, slots=True)
class Divider:
    """Divides commands among streams. It travels pickled inside the function that Spark runs."""

    articles: Mapping[int, RegisteredArticle]
    streams: int
    assignment: StreamAssignment
    constraints: Constraints
    limits: CommitLimits

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Divide ordered commands (row layout) into `STREAM_COMMANDS`, for `map_in_arrow`."""
        limits = replace(self.limits, commands=min(self.limits.commands, PIECE_COMMANDS))
        began = False
        for piece in commit_batches(batches, limits):
            # What is too large to hold is one transaction, or one and what waited before it.
            whole = piece.ends_commit_batch and not began
            how = division(piece.commands, self.assignment, self.constraints) if whole else UNDIVIDED
            began = not piece.ends_commit_batch
            yield from self._rows(piece, how)

    def _rows(self, piece: Piece, how: Division) -> Iterator[pa.RecordBatch]:
        streams = how.streams_of(piece.commands, self.articles, self.streams).astype(np.int32)
        nothing = pa.nulls(len(piece.commands))
        table = piece.commands.append_column("stream", pa.array(streams))
        table = table.append_column("transactions", nothing).append_column("division", nothing)
        yield from table.cast(STREAM_COMMANDS).to_batches()
        if piece.ends_commit_batch:
            yield self._marks(piece, how)

    def _marks(self, piece: Piece, how: Division) -> pa.RecordBatch:
        mark = {
            "xact_seqno": piece.last_xact_seqno,
            "command_id": _AFTER_ALL_COMMANDS,
            "transactions": piece.transactions,
            "division": how.model_dump_json(),
        }
        marks = [{**mark, "stream": stream} for stream in range(self.streams)]
        return pa.RecordBatch.from_pylist(marks, schema=STREAM_COMMANDS)


def stream_pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[StreamPiece]:
    """Cut one stream's `STREAM_COMMANDS`, in order, at the ends of commit batches."""
    for batch in batches:
        marks = np.flatnonzero(batch["transactions"].is_valid().to_numpy(zero_copy_only=False))
        start = 0
        for end in map(int, marks):
            yield _piece(batch.slice(start, end - start), batch.slice(end, 1))
            start = end + 1
        if start < len(batch):
            yield _piece(batch.slice(start), None)


def _piece(commands: pa.RecordBatch, mark: pa.RecordBatch | None) -> StreamPiece:
    table = pa.Table.from_batches([commands]).select(ROW_LAYOUT.names)
    if mark is None:
        return StreamPiece(Piece(table, 0, False, commands["xact_seqno"][-1].as_py()))
    (row,) = mark.to_pylist()
    piece = Piece(table, row["transactions"], True, row["xact_seqno"])
    return StreamPiece(piece, Division.model_validate_json(row["division"]))


def left_over(
    batches: Iterable[pa.RecordBatch], unfinished: UnfinishedBatch, articles: Mapping[int, RegisteredArticle]
) -> Iterator[Piece]:
    """Yield the commands of an unfinished commit batch whose streams did not commit: one commit batch."""
    how = Division.model_validate_json(unfinished.record.division)
    for commands in _parts_to_divide(batches, how):
        streams = how.streams_of(commands, articles, unfinished.record.streams)
        missing = ~np.isin(streams, list(unfinished.committed))
        yield Piece(commands.filter(pa.array(missing)), 0, False, unfinished.record.last)
    yield Piece(ROW_LAYOUT.empty_table(), 0, True, unfinished.record.last)


def _parts_to_divide(batches: Iterable[pa.RecordBatch], how: Division) -> Iterator[pa.Table]:
    """Yield the parts as they were divided: what was divided together must be again; what was not may be too large."""
    whole = map(_row_layout, batches)
    if how.method is Method.UNDIVIDED:
        pieces = commit_batches(whole, _ONE_COMMIT_BATCH)
        yield from (piece.commands for piece in pieces)
    else:
        yield pa.concat_tables([ROW_LAYOUT.empty_table(), *(pa.Table.from_batches([it]) for it in whole)])


def _row_layout(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Cast to the row layout: Spark's own types differ in small things."""
    return batch.cast(ROW_LAYOUT)
