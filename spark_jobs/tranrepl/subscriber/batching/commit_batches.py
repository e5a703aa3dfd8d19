"""Commands cut into commit batches: whole transactions, at most so many of them or of their commands.

Source: the Distribution Agent's CommitBatchSize and CommitBatchThreshold, whichever is reached first. A transaction
is never split over commits; one larger than a piece is applied in pieces within its one transaction. One that changes
the schema is a commit batch of its own: what comes before it meets the tables of before.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tranrepl.errors import ErrorKind, ErrorReport
from tranrepl.model.arrays import Ints, Unsigned
from tranrepl.model.command_rows import ROW_LAYOUT, require_order, xact_seqno_numbers
from tranrepl.model.commands import XACT_SEQNO_BYTES, Operation
from tranrepl.subscriber.constraints import behind_another

PIECE_COMMANDS = 150_000
"""More than a commit batch of default size comes to: in bulk each article of a piece costs some statements."""
PIECE_BYTES = 64 * 1024 * 1024
FIRST_PIECE_COMMANDS = 20_000
"""Until the first piece is planned, the Subscriber has nothing to do."""
_MOST_FIRST_ARTICLES = 20
"""What another piece costs for each article of it must not be more than what it wins."""

_WEIGHT_OF_THE_REST = 40

_NOTHING = (-1, 0)


@dataclass(frozen=True, slots=True)
class Piece:
    """Commands to apply together, in order. `transactions` counts those that end with it."""

    commands: pa.Table
    transactions: int
    ends_commit_batch: bool
    """Whether the Subscriber commits after these commands, with `last_xact_seqno` as the watermark."""
    last_xact_seqno: bytes
    changes_schema: bool = False
    """Whether they are of a transaction that changes the schema: no other one is in its commit batch."""


@dataclass(frozen=True, slots=True)
class CommitLimits:
    transactions: int
    commands: int


def commit_batches(
    batches: Iterable[pa.RecordBatch],
    limits: CommitLimits,
    first_piece: int = PIECE_COMMANDS,
    schema_changes: Sequence[bytes] = (),
) -> Iterator[Piece]:
    """Cut ordered commands (row layout) into pieces. The first one goes out as soon as there are so many commands, with
    whole transactions of few articles. `schema_changes` are the transactions (`xact_seqno`) that change the schema.
    Raises InternalError where commands are out of order."""
    cutter = _Cutter(limits, first_piece)
    alone = np.array([int.from_bytes(it, "big") for it in schema_changes], dtype=np.uint64)
    for batch in batches:
        for commands, transaction in _around(pa.Table.from_batches([batch]), alone):
            if transaction != cutter.schema_change:
                yield from cutter.finish()
                cutter.schema_change = transaction
            yield from cutter.add(commands)
    yield from cutter.finish()


def _around(commands: pa.Table, alone: Unsigned) -> Iterator[tuple[pa.Table, int]]:
    """Divide commands before and after each of some transactions; yield each part with that transaction, or with 0
    where it is of none."""
    if len(commands) == 0:
        return
    if len(alone) == 0:
        yield commands, 0
        return
    seqnos = _seqnos(commands)
    owners = np.where(np.isin(seqnos, alone), seqnos, np.uint64(0))
    cuts = (np.flatnonzero(owners[1:] != owners[:-1]) + 1).tolist()
    for start, end in pairwise([0, *cuts, len(commands)]):
        yield commands.slice(start, end - start), int(owners[start])


@dataclass(slots=True)
class _Cutter:
    """`rest` waits for its commit batch to fill up; `transactions` and `commands` of it have gone out already."""

    limits: CommitLimits
    first_piece: int
    rest: pa.Table = field(default_factory=ROW_LAYOUT.empty_table)
    transactions: int = 0
    commands: int = 0
    last: tuple[int, int] = _NOTHING
    """`xact_seqno` and `command_id` of the last command that went out."""
    schema_change: int = 0
    """The transaction that `rest` is of, where that changes the schema."""

    def add(self, table: pa.Table) -> Iterator[Piece]:
        if len(table) == 0:
            return
        self.rest = pa.concat_tables([self.rest, table]) if len(self.rest) else table
        seqnos = _seqnos(self.rest)
        require_order(seqnos, self.rest["command_id"].to_numpy(), self.last)
        ends = np.flatnonzero(seqnos[1:] != seqnos[:-1]) + 1
        if self.commands and int(seqnos[0]) != self.last[0]:
            # What went out last was the end of its transaction.
            ends = np.concatenate([[0], ends])
        at, ended = yield from self._cut(seqnos, ends)
        self.rest = self.rest.slice(at)
        if len(self.rest) >= PIECE_COMMANDS or self.rest.nbytes >= PIECE_BYTES:
            if end := _last_cut(self.rest):
                yield from self._send_on(end, seqnos[at:], ends[ended:] - at)
        elif ended < len(ends) and self._may_begin():
            yield from self._send_on(int(ends[-1]) - at, seqnos[at:], ends[ended:] - at)

    def _may_begin(self) -> bool:
        if self.last != _NOTHING or len(self.rest) < self.first_piece:
            return False
        return len(self.rest["article_id"].unique()) <= _MOST_FIRST_ARTICLES

    def _cut(self, seqnos: Unsigned, ends: Ints) -> Generator[Piece, None, tuple[int, int]]:
        """Send every full commit batch on; return where the rest begins, and how many transactions ended so far."""
        at, ended = 0, 0
        while True:
            by_commands = int(np.searchsorted(ends[ended:], at + self.limits.commands - self.commands)) + ended
            by_transactions = ended + self.limits.transactions - self.transactions - 1
            full = min(by_commands, by_transactions)
            if full >= len(ends):
                return at, ended
            end = int(ends[full])
            yield from self._pieces(self.rest.slice(at, end - at), full + 1 - ended, seqnos[at:end])
            at, ended = end, full + 1

    def _pieces(self, commands: pa.Table, transactions: int, seqnos: Unsigned) -> Iterator[Piece]:
        """Yield one commit batch, or what is left of it, in pieces."""
        last = int(seqnos[-1]) if len(seqnos) else self.last[0]
        watermark = last.to_bytes(XACT_SEQNO_BYTES, "big")
        slices = _slices(commands)
        for part in slices[:-1]:
            yield self._piece(part, watermark)
        yield replace(
            self._piece(slices[-1], watermark), transactions=self.transactions + transactions, ends_commit_batch=True
        )
        self.transactions = self.commands = 0
        self._remember(commands, seqnos)

    def _send_on(self, end: int, seqnos: Unsigned, ends: Ints) -> Iterator[Piece]:
        """Yield what there is up to `end` of a commit batch that may have more to come, without a commit. A transaction
        that ends there is counted with what follows."""
        going, self.rest = self.rest.slice(0, end), self.rest.slice(end)
        for part in _slices(going):
            yield self._piece(part, int(seqnos[end - 1]).to_bytes(XACT_SEQNO_BYTES, "big"))
        self.transactions += int(np.count_nonzero(ends < end))
        self.commands += len(going)
        self._remember(going, seqnos[:end])

    def _piece(self, commands: pa.Table, watermark: bytes) -> Piece:
        return Piece(commands, 0, False, watermark, changes_schema=self.schema_change != 0)

    def finish(self) -> Iterator[Piece]:
        """Yield the last commit batch, full or not; what is added from here on is of others."""
        seqnos = _seqnos(self.rest)
        transactions = len(np.unique(seqnos))
        if self.commands and (not len(seqnos) or int(seqnos[0]) != self.last[0]):
            transactions += 1
        if len(seqnos) or self.commands:
            yield from self._pieces(self.rest, transactions, seqnos)
            self.rest = ROW_LAYOUT.empty_table()

    def _remember(self, commands: pa.Table, seqnos: Unsigned) -> None:
        if len(seqnos):
            self.last = (int(seqnos[-1]), commands["command_id"][-1].as_py())


def _seqnos(commands: pa.Table) -> Unsigned:
    return xact_seqno_numbers(commands["xact_seqno"].combine_chunks())


def _slices(commands: pa.Table) -> list[pa.Table]:
    starts = _starts(commands)
    if len(starts) < 2:
        return [commands]
    starts = np.unique(_uncut(commands)[starts]).tolist()
    return [commands.slice(start, end - start) for start, end in pairwise([*starts, len(commands)])]


def _starts(commands: pa.Table) -> list[int]:
    """Return where pieces begin, by what commands weigh and how many there are."""
    cuts = [0, len(commands)]
    if commands.nbytes > PIECE_BYTES and len(commands) > 1:
        weights = weights_of(commands)
        # Large rows stand together, as they were changed together: cut by weight, a piece is no more than its last row
        # above the average.
        parts = -(-int(weights.sum()) // PIECE_BYTES)
        part = (np.cumsum(weights) - weights) * parts // int(weights.sum())
        cuts[1:1] = (np.flatnonzero(np.diff(part)) + 1).tolist()
    return [place for start, end in pairwise(cuts) for place in _by_count(start, end)]


def _by_count(start: int, end: int) -> Iterable[int]:
    parts = max(1, -(-(end - start) // PIECE_COMMANDS))
    return range(start, end, max(1, -(-(end - start) // parts)))


def weights_of(commands: pa.Table) -> Ints:
    """Return the bytes of each command's images, and some for the rest of it, shape (commands,)."""
    lengths = (pc.fill_null(pc.binary_length(commands[image]), 0).to_numpy() for image in ("before", "after"))
    return np.asarray(sum(it.astype(np.int64) for it in lengths) + _WEIGHT_OF_THE_REST, dtype=np.int64)


def _uncut(commands: pa.Table) -> Ints:
    """Return for each command where a piece begins that is to begin there: tables that are truncated together stay
    so."""
    places = np.where(behind_another(commands), 0, np.arange(len(commands)))
    return np.asarray(np.maximum.accumulate(places), dtype=np.int64)


def _last_cut(commands: pa.Table) -> int:
    """Return the last place where commands may be cut: behind them all, or before a TRUNCATE that may have more tables
    to come."""
    if commands["operation"][-1].as_py() != Operation.TRUNCATE:
        return len(commands)
    return int(_uncut(commands)[-1])


Made = TypeVar("Made")
LIMIT_EXCEEDED: Final = "54000"
"""What PostgreSQL says of a message or line of more than 1 GB."""
REMEDY: Final = (
    "shorten the value at the Publisher, or leave its column out (`columns` of the article); `tranrepl skip FILE "
    "-s NAME --xact-seqno XACT_SEQNO` skips the transaction, and `tranrepl reinitialize FILE -s NAME "
    "--article ARTICLE` reinitializes the article"
)
_LONG = 512 * 1024 * 1024


def unless_too_long(commands: pa.Table, make: Callable[[], Made]) -> Made | None:
    """Return what `make` makes of commands; None where they are more than Arrow's arrays of 32-bit offsets hold."""
    try:
        return make()
    except (pa.ArrowInvalid, pa.ArrowCapacityError):
        if commands.nbytes < _LONG:
            raise
        return None


def longest_command(commands: pa.Table) -> int:
    """Return the longest command's place."""
    return int(weights_of(commands).argmax())


def too_long(where: str) -> ErrorReport:
    return ErrorReport(
        kind=ErrorKind.DATA,
        message=f"{where}: the values of a command are longer than any buffer",
        database_code=LIMIT_EXCEEDED,
        remedy=REMEDY,
    )
