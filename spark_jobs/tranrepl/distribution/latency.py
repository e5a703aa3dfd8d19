"""How long commands took, counted by the process that applies them, whenever it has committed some.

A command's commit time is the Publisher's, its batch was registered by the distribution database's clock, and that
it is committed at the Subscriber is known here. All are measured by the distribution database's clock.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
import numpy.typing as npt
import psycopg
import pyarrow as pa

from tranrepl.connections import Connection
from tranrepl.distributor.database import Batch
from tranrepl.errors import InternalError, ReplicationError
from tranrepl.model.arrays import Ints
from tranrepl.model.clock_difference import ClockDifference, measure, microseconds_of, now_microseconds
from tranrepl.model.command_rows import xact_seqno_numbers
from tranrepl.model.latency import BUCKETS_PER_DOUBLING, LAST_BUCKET, Buckets, DeliveredMinute, LatencyByLeg
from tranrepl.postgres.session import Session, connect

_MINUTE = 60 * 1_000_000
_COUNTED_TOGETHER = 4096
"""What NumPy makes of more does not fit into memory that is used again and again, and takes several times as long."""
_EACH_ONE = np.ones(_COUNTED_TOGETHER, dtype=np.int64)
_BITS_BEHIND = 52 - (BUCKETS_PER_DOUBLING.bit_length() - 1)
"""The bits of a double's mantissa that make no difference between buckets."""
_BUCKET_BEFORE = (1023 << 52 >> _BITS_BEHIND) - 1
"""What is so many buckets below a millisecond's; 1023 is the exponent of 1."""
_CLOCK_HOLDS_SECONDS = 60.0
"""For so long, clocks that were compared do not drift apart by what could be measured."""


@dataclass(frozen=True, slots=True)
class RegisteredBatches:
    """When consecutive batches were registered. It travels pickled with the delivery, password and all."""

    distributor: Connection
    first_xact_seqnos: tuple[bytes, ...]
    registered: tuple[int, ...]
    """µs since 1970 UTC, by the distribution database's clock."""
    clock_differences: tuple[int | None, ...]
    """µs by which the Publisher's clock was ahead of it then."""

    @classmethod
    def of(cls, distributor: Connection, batches: Sequence[Batch]) -> RegisteredBatches | None:
        """Return those of registered batches; None where it is not known of one of them."""
        times = [it.entry_time for it in batches]
        known = [microseconds_of(it) for it in times if it is not None]
        if not batches or len(known) < len(times):
            return None
        firsts = tuple(it.first_xact_seqno for it in batches)
        return cls(distributor, firsts, tuple(known), tuple(it.clock_difference for it in batches))


@dataclass(frozen=True, slots=True)
class _Applied:
    """Commands of one transaction at the Subscriber, in order: their source transactions, when those were committed,
    and how many commands each entry stands for."""

    seqnos: npt.NDArray[np.uint64]
    commit_times: Ints
    commands: Ints

    @classmethod
    def of(cls, seqnos: npt.NDArray[np.uint64], commit_times: Ints) -> _Applied:
        """Return a part of them. What is of one source transaction is one entry: that may have millions of them, and
        all wait for its commit."""
        commands = len(seqnos)
        if commands > 1 and seqnos[0] == seqnos[-1]:
            return cls(seqnos[:1].copy(), commit_times[:1].copy(), np.array([commands]))
        return cls(seqnos, commit_times, _EACH_ONE[:commands])


@dataclass(slots=True)
class _Counted:
    registered: Ints = field(default_factory=lambda: np.zeros(LAST_BUCKET + 1, dtype=np.int64))
    delivered: Ints = field(default_factory=lambda: np.zeros(LAST_BUCKET + 1, dtype=np.int64))
    overall: Ints = field(default_factory=lambda: np.zeros(LAST_BUCKET + 1, dtype=np.int64))
    transactions: int = 0
    commands: int = 0


class LatencyMeter:
    """Counts what one connection commits. Without registered batches it counts nothing.

    Commits of few commands are counted many at a time: what NumPy takes for a call is more than what it takes for them.
    """

    def __init__(self, batches: RegisteredBatches | None = None) -> None:
        self._batches = batches
        self._open: list[_Applied] = []
        self._committed: list[tuple[_Applied, int]] = []
        self._waiting = 0
        self._minute = 0
        self._minutes: dict[int, _Counted] = {}
        if batches is None:
            return
        self._firsts = np.array([int.from_bytes(it, "big") for it in batches.first_xact_seqnos], dtype=np.uint64)
        self._registered = np.array(batches.registered, dtype=np.int64)
        self._differences = np.array([it or 0 for it in batches.clock_differences], dtype=np.int64)

    def applied(self, commands: pa.Table) -> None:
        """Take commands (row layout, in order) that the open transaction has applied."""
        if self._batches is None or not len(commands):
            return
        times = _array(commands["commit_time"]).view(pa.int64()).to_numpy()
        seqnos = xact_seqno_numbers(_array(commands["xact_seqno"]))
        for start in range(0, len(seqnos), _COUNTED_TOGETHER):
            end = start + _COUNTED_TOGETHER
            self._open.append(_Applied.of(seqnos[start:end], times[start:end]))

    def committed(self, transactions: int) -> None:
        """Count what was applied since the last commit as committed now."""
        now = now_microseconds()
        applied, self._open = self._open, []
        difference = self._difference()
        if difference is None:
            self._batches = None
            return
        now += difference.microseconds
        if now // _MINUTE != self._minute:
            self._count()
            self._minute = now // _MINUTE
        minute = self._minutes.setdefault(self._minute, _Counted())
        minute.transactions += transactions
        for it in applied:
            self._committed.append((it, now))
            self._waiting += len(it.seqnos)
            if self._waiting >= _COUNTED_TOGETHER:
                self._count()

    def _count(self) -> None:
        """Count what was committed within the minute and is not counted yet."""
        committed, self._committed, self._waiting = self._committed, [], 0
        if not committed:
            return
        parts = np.array([len(it.seqnos) for it, _ in committed])
        seqnos = np.concatenate([it.seqnos for it, _ in committed])
        begins = np.concatenate([[True], seqnos[1:] != seqnos[:-1]])
        begins[np.cumsum(parts)[:-1]] = True
        starts = np.flatnonzero(begins)
        commands = np.add.reduceat(np.concatenate([it.commands for it, _ in committed]), starts)
        now = np.repeat(np.array([it for _, it in committed], dtype=np.int64), parts)[starts]
        batch = np.maximum(np.searchsorted(self._firsts, seqnos[starts], side="right") - 1, 0)
        registered = self._registered[batch]
        published = np.concatenate([it.commit_times for it, _ in committed])[starts] - self._differences[batch]
        minute = self._minutes[self._minute]
        minute.registered += _counts(registered - published, commands)
        minute.delivered += _counts(now - registered, commands)
        minute.overall += _counts(now - published, commands)
        minute.commands += int(commands.sum())

    def _difference(self) -> ClockDifference | None:
        """Return how far the distribution database's clock is ahead; None where it does not tell. It is asked for after
        a commit, so that none waits for it."""
        if self._batches is None:
            return None
        try:
            return _clock_of(self._batches.distributor)
        except (ReplicationError, psycopg.Error):
            return None

    def minutes(self) -> tuple[DeliveredMinute, ...]:
        """Return what was counted, in order."""
        self._count()
        known = [it for it in (self._batches.clock_differences if self._batches else ()) if it is not None]
        difference = known[-1] if known else None
        return tuple(_minute(it, self._minutes[it], difference) for it in sorted(self._minutes))


def buckets(microseconds: Ints) -> Ints:
    """Return the bucket of each latency (µs), shape (latencies,). One below nothing, as clocks are compared with some
    error, is nothing."""
    milliseconds = np.maximum(microseconds, 1) / 1000
    # A number's exponent and the first bits behind it are side by side.
    found = (milliseconds.view(np.int64) >> _BITS_BEHIND) - _BUCKET_BEFORE
    return np.asarray(np.clip(found, 0, LAST_BUCKET), dtype=np.int64)


def _array(column: pa.ChunkedArray) -> pa.Array:
    # Cheaper than to combine what is one already.
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _counts(microseconds: Ints, commands: Ints) -> Ints:
    counted = np.bincount(buckets(microseconds), weights=commands, minlength=LAST_BUCKET + 1)
    return np.asarray(counted, dtype=np.int64)


def _minute(minute: int, counted: _Counted, difference: int | None) -> DeliveredMinute:
    latency = LatencyByLeg(
        registered=_sparse(counted.registered),
        delivered=_sparse(counted.delivered),
        overall=_sparse(counted.overall),
        clock_difference=difference,
    )
    return DeliveredMinute(minute=minute, transactions=counted.transactions, commands=counted.commands, latency=latency)


def _sparse(counts: Ints) -> Buckets:
    present = np.flatnonzero(counts)
    return dict(zip(present.tolist(), counts[present].tolist(), strict=True))


_known: dict[Connection, tuple[float, ClockDifference]] = {}
"""How far the clocks of distribution databases are ahead of this machine's, and when that was measured."""


def _clock_of(distributor: Connection) -> ClockDifference:
    """Return how far a distribution database's clock is ahead, measured within the last minute."""
    measured, known = _known.get(distributor, (0.0, None))
    if known is None or time.monotonic() - measured > _CLOCK_HOLDS_SECONDS:
        with connect(distributor, "tranrepl clock", autocommit=True) as session:
            known = measure(lambda: _read_clock(session))
        _known[distributor] = time.monotonic(), known
    return known


def _read_clock(session: Session) -> datetime:
    row = session.execute("SELECT clock_timestamp()").fetchone()
    if row is None or not isinstance(row[0], datetime):
        raise InternalError("a server returned no time")
    return row[0]
