"""The delivery protocol as a state space, small enough to be searched whole.

Two runners (distribution jobs) deliver three transactions, each of which has a command in either of two streams. Any
step of one may come between any two steps of the other, and now and then something fails: a driver or a stream is
killed, its session living on at the server for a while, even when it had already sent COMMIT; or a stream meets an
error. A runner that has ended without finishing is started again, as a schedule does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import Enum, auto

from model.delivery_world import (
    STREAMS,
    TRANSACTIONS,
    Create,
    Done,
    Idle,
    Orphan,
    Row,
    Runner,
    Single,
    Start,
    Step,
    Streams,
    World,
    Writes,
    after_commit,
    commands,
    is_free,
    row_count,
    with_killed,
    with_runner,
)
from model.search import Search, Transition, Violation, explore

_RUNNERS = 2
_LARGEST_COMMIT_BATCH = 2


class Mutation(Enum):
    """One rule of the protocol, broken."""

    STREAM_0_DOES_NOT_WAIT_FOR_THE_OTHERS_COMMITS = auto()
    STREAM_0_DOES_NOT_COMPARE_ITS_ROW = auto()
    STREAM_1_DOES_NOT_COMPARE_ITS_ROW = auto()
    ONE_CONNECTION_LOCKS_ROW_0_ONLY = auto()
    """Rows of streams that this runner does not have are neither locked nor compared."""
    FINISHING_DOES_NOT_LOCK = auto()
    FINISHING_DOES_NOT_COMPARE = auto()
    FINISHING_APPLIES_EVERY_STREAM = auto()
    AN_UNFINISHED_GROUP_IS_NOT_FINISHED = auto()
    STREAM_1_DOES_NOT_RECORD_ITS_GROUP = auto()


class Locking(Enum):
    """How the rows of a subscription are locked. No database sees a deadlock that goes through the vote."""

    ROW_0_FIRST = auto()
    """Stream 1 locks its row when stream 0 stands under its lock, as a single connection and a start do anyway."""
    ONLY_ROW_0_IS_WAITED_FOR = auto()
    """In any order; whoever finds row 1 locked gives up at once."""
    TIMEOUT = auto()
    """In any order; a wait for a lock may end by a timeout."""
    ANY_ORDER = auto()
    """In any order, and a wait for a lock does not end by itself."""


class Protocol:
    """All that can happen next. Raises Violation where it must not happen."""

    def __init__(self, locking: Locking, mutation: Mutation | None) -> None:
        self._locking = locking
        self._mutation = mutation

    def next(self, world: World) -> Iterator[Transition[World]]:
        for orphan in world.orphans:
            yield from self._orphan_ends(world, orphan)
        for place, runner in enumerate(world.runners):
            if place and runner == world.runners[0]:
                continue
            for after in self._steps(world, place, runner):
                yield Transition(after, fault=False)
            if world.faults:
                for after in self._faults(world, place, runner):
                    yield Transition(after, fault=True)

    def _orphan_ends(self, world: World, orphan: Orphan) -> Iterator[Transition[World]]:
        others = list(world.orphans)
        others.remove(orphan)
        rolled_back = world._replace(orphans=tuple(others))
        yield Transition(rolled_back, fault=False)
        if orphan.writes:
            yield Transition(after_commit(rolled_back, orphan.writes), fault=False)

    def _steps(self, world: World, place: int, runner: Runner) -> Iterator[World]:
        match runner:
            case Idle():
                yield with_runner(world, place, Start(1, 0))
                yield with_runner(world, place, Start(STREAMS, 0))
            case Start():
                yield from self._start(world, place, runner)
            case Create():
                created = world if world.row1 else world._replace(row1=Row(0, 0))
                yield with_runner(created, place, _streams(runner.first, runner.last))
            case Single():
                yield from self._single(world, place, runner)
            case Streams():
                yield from self._streams(world, place, runner)

    # A runner's start

    def _start(self, world: World, place: int, start: Start) -> Iterator[World]:
        if start.locked < row_count(world):
            if is_free(world, start.locked):
                yield with_runner(world, place, replace(start, locked=start.locked + 1))
            elif self._gives_up(start.locked):
                yield with_runner(world, place, Idle())
            return
        unfinished = world.row1 is not None and world.row1.last > world.row0
        if unfinished and self._mutation is not Mutation.AN_UNFINISHED_GROUP_IS_NOT_FINISHED:
            assert world.row1 is not None
            yield with_runner(world, place, Single(start.streams, world.row0, world.row1.last, world.row1, 0))
            return
        for after in _go_on(world, start.streams, world.row0):
            yield with_runner(world, place, after)

    # One connection

    def _single(self, world: World, place: int, single: Single) -> Iterator[World]:
        wanted = self._rows_to_lock(world, single)
        if single.locked < wanted:
            if is_free(world, single.locked):
                yield with_runner(world, place, replace(single, locked=single.locked + 1))
            elif self._gives_up(single.locked):
                yield with_runner(world, place, Idle())
            return
        if not self._unchanged(world, single, wanted):
            yield with_runner(world, place, Idle())
            return
        committed = after_commit(world, self._single_writes(single))
        for after in _go_on(committed, single.streams, single.last):
            yield with_runner(committed, place, after)

    def _rows_to_lock(self, world: World, single: Single) -> int:
        if single.finishes and self._mutation is Mutation.FINISHING_DOES_NOT_LOCK:
            return 0
        return 1 if self._mutation is Mutation.ONE_CONNECTION_LOCKS_ROW_0_ONLY else row_count(world)

    def _unchanged(self, world: World, single: Single, locked: int) -> bool:
        if single.finishes:
            not_compared = (Mutation.FINISHING_DOES_NOT_COMPARE, Mutation.FINISHING_DOES_NOT_LOCK)
            return self._mutation in not_compared or (world.row0, world.row1) == (single.first, single.finishes)
        return world.row0 == single.first and (locked < 2 or world.row1 is None or world.row1.last <= single.first)

    def _single_writes(self, single: Single) -> Writes:
        rest = single.finishes and self._mutation is not Mutation.FINISHING_APPLIES_EVERY_STREAM
        return Writes(single.last, None, commands(single.first, single.last, *((0,) if rest else (0, 1))))

    # Streams

    def _streams(self, world: World, place: int, batch: Streams) -> Iterator[World]:
        if batch.step0 in _ENDED and batch.step1 in _ENDED:
            yield from self._batch_ends(world, place, batch)
            return
        broken = not batch.driver or batch.step0 in _BROKEN or batch.step1 in _BROKEN
        if broken:
            # Whoever waits for a barrier that cannot be complete any more, or learns of the failure earlier.
            if batch.step0 in (Step.NEW, Step.APPLIED):
                yield with_runner(world, place, replace(batch, step0=Step.FAILED))
            if batch.step1 in (Step.NEW, Step.APPLIED):
                yield with_runner(world, place, replace(batch, step1=Step.FAILED))
        if batch.step0 is Step.APPLIED and batch.step1 is Step.APPLIED and not batch.voted and batch.driver:
            yield with_runner(world, place, replace(batch, voted=True))
        yield from self._stream_0(world, place, batch)
        yield from self._stream_1(world, place, batch)

    def _stream_0(self, world: World, place: int, batch: Streams) -> Iterator[World]:
        if batch.step0 is Step.NEW:
            if is_free(world, 0):
                may = world.row0 == batch.first or self._mutation is Mutation.STREAM_0_DOES_NOT_COMPARE_ITS_ROW
                yield with_runner(world, place, replace(batch, step0=Step.APPLIED if may else Step.FAILED))
            elif self._gives_up(0):
                yield with_runner(world, place, replace(batch, step0=Step.FAILED))
        elif self._stream_0_may_commit(batch):
            yield with_runner(
                after_commit(world, _writes_of_stream_0(batch)), place, replace(batch, step0=Step.COMMITTED)
            )

    def _stream_0_may_commit(self, batch: Streams) -> bool:
        if batch.step0 is not Step.APPLIED or not batch.voted:
            return False
        if self._mutation is Mutation.STREAM_0_DOES_NOT_WAIT_FOR_THE_OTHERS_COMMITS:
            return True
        return batch.driver and batch.step1 is Step.COMMITTED

    def _stream_1(self, world: World, place: int, batch: Streams) -> Iterator[World]:
        if batch.step1 is Step.NEW and self._stream_1_may_lock(batch):
            assert world.row1 is not None
            if is_free(world, 1):
                may = world.row1.last <= batch.first or self._mutation is Mutation.STREAM_1_DOES_NOT_COMPARE_ITS_ROW
                yield with_runner(world, place, replace(batch, step1=Step.APPLIED if may else Step.FAILED))
            elif self._gives_up(1):
                yield with_runner(world, place, replace(batch, step1=Step.FAILED))
        elif batch.step1 is Step.APPLIED and batch.voted:
            writes = self._writes_of_stream_1(batch)
            yield with_runner(after_commit(world, writes), place, replace(batch, step1=Step.COMMITTED))

    def _stream_1_may_lock(self, batch: Streams) -> bool:
        return batch.step0 is Step.APPLIED or self._locking is not Locking.ROW_0_FIRST

    def _gives_up(self, row: int) -> bool:
        """Return whether whoever finds this row locked gives up."""
        return self._locking is Locking.TIMEOUT or (self._locking is Locking.ONLY_ROW_0_IS_WAITED_FOR and row > 0)

    def _writes_of_stream_1(self, batch: Streams) -> Writes:
        recorded = self._mutation is not Mutation.STREAM_1_DOES_NOT_RECORD_ITS_GROUP
        row = Row(batch.last, batch.first) if recorded else None
        return Writes(None, row, commands(batch.first, batch.last, 1))

    def _batch_ends(self, world: World, place: int, batch: Streams) -> Iterator[World]:
        if not batch.driver or batch.step0 is not Step.COMMITTED:
            yield with_runner(world, place, Idle())
            return
        for after in _go_on(world, STREAMS, batch.last):
            yield with_runner(world, place, after)

    # What fails

    def _faults(self, world: World, place: int, runner: Runner) -> Iterator[World]:
        left = world._replace(faults=world.faults - 1)
        match runner:
            case Start() | Create():
                locked = runner.locked if isinstance(runner, Start) else 0
                yield with_killed(left, place, Idle(), tuple(range(locked)), None)
            case Single():
                held = tuple(range(runner.locked))
                yield with_killed(left, place, Idle(), held, None)
                wanted = self._rows_to_lock(world, runner)
                if runner.locked >= wanted and self._unchanged(world, runner, wanted):
                    yield with_killed(left, place, Idle(), held, self._single_writes(runner))
            case Streams():
                if runner.driver:
                    yield with_runner(left, place, replace(runner, driver=False))
                yield from self._stream_fails(left, place, runner)

    def _stream_fails(self, world: World, place: int, batch: Streams) -> Iterator[World]:
        for stream, step in enumerate((batch.step0, batch.step1)):
            dead = _at_step(batch, stream, Step.DEAD)
            if step in (Step.NEW, Step.COMMITTED):
                yield with_runner(world, place, dead)
            if step is not Step.APPLIED:
                continue
            yield with_killed(world, place, dead, (stream,), None)
            if not batch.voted:
                yield with_runner(world, place, _at_step(batch, stream, Step.FAILED))
            elif stream == 1:
                yield with_killed(world, place, dead, (1,), self._writes_of_stream_1(batch))
            elif self._stream_0_may_commit(batch):
                yield with_killed(world, place, dead, (0,), _writes_of_stream_0(batch))


_BROKEN = (Step.FAILED, Step.DEAD)
_ENDED = (Step.COMMITTED, Step.FAILED, Step.DEAD)


def _writes_of_stream_0(batch: Streams) -> Writes:
    return Writes(batch.last, None, commands(batch.first, batch.last, 0))


def _streams(first: int, last: int) -> Streams:
    return Streams(first, last, driver=True, voted=False, step0=Step.NEW, step1=Step.NEW)


def _at_step(batch: Streams, stream: int, step: Step) -> Streams:
    return replace(batch, step0=step) if stream == 0 else replace(batch, step1=step)


def _go_on(world: World, streams: int, watermark: int) -> Iterator[Runner]:
    """Yield what a runner does next that believes the Subscriber to stand at `watermark`."""
    if watermark == TRANSACTIONS:
        if world.committed != commands(0, TRANSACTIONS, *range(STREAMS)):
            raise Violation("a runner has finished, and commands are missing")
        yield Done()
    for last in range(watermark + 1, min(watermark + _LARGEST_COMMIT_BATCH, TRANSACTIONS) + 1):
        if streams == 1:
            yield Single(1, watermark, last, None, 0)
        else:
            yield Create(watermark, last) if world.row1 is None else _streams(watermark, last)


def search(locking: Locking, mutation: Mutation | None = None, faults: int = 2) -> Search[World]:
    """Visit every state that can be reached, and hold all of them against what must always hold: every command is
    applied once and in order, the watermark tells the truth, and without further faults the work can be finished."""
    initial = World(0, None, 0, (Idle(),) * _RUNNERS, (), faults)
    return explore(initial, Protocol(locking, mutation).next, _is_finished)


def _is_finished(world: World) -> bool:
    return all(isinstance(it, Done) for it in world.runners)
