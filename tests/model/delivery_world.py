"""The state of a delivery's search: runners, the Subscriber's watermarks, and what a COMMIT must not do.

A runner is a distribution job. Rows of MSreplication_subscriptions: row 0 is the subscription's watermark, row 1
belongs to stream 1. A commit batch is (W, L]: transactions after W, up to L.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from model.search import Violation

TRANSACTIONS = 3
STREAMS = 2


class Row(NamedTuple):
    """Row 1: the last group that stream 1 committed."""

    last: int
    first: int


class Writes(NamedTuple):
    """What a transaction's COMMIT makes visible; None leaves a row as it is."""

    row0: int | None
    row1: Row | None
    commands: int


class Orphan(NamedTuple):
    """A session whose process was killed. `writes`: it had sent COMMIT, so the server may still do that."""

    holds: tuple[int, ...]
    writes: Writes | None


class Step(Enum):
    """Where a stream is in its commit batch."""

    NEW = auto()
    APPLIED = auto()
    """It holds its lock, has executed its commands and waits for the vote, or, after that, for its turn to commit."""
    COMMITTED = auto()
    FAILED = auto()
    """Rolled back: fenced, an error, or a mate's failure."""
    DEAD = auto()


@dataclass(frozen=True, slots=True)
class Idle:
    pass


@dataclass(frozen=True, slots=True)
class Start:
    """Reads the rows under locks."""

    streams: int
    locked: int


@dataclass(frozen=True, slots=True)
class Create:
    """About to create row 1, in a transaction of its own."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Single:
    """One transaction over a single connection: a commit batch, or the rest of an unfinished group."""

    streams: int
    first: int
    last: int
    finishes: Row | None
    """The row that was read, where a group is finished."""
    locked: int


@dataclass(frozen=True, slots=True)
class Streams:
    """A commit batch over two streams."""

    first: int
    last: int
    driver: bool
    voted: bool
    step0: Step
    step1: Step


@dataclass(frozen=True, slots=True)
class Done:
    """There was nothing left to do."""


Runner = Idle | Start | Create | Single | Streams | Done


class World(NamedTuple):
    row0: int
    row1: Row | None
    committed: int
    """Commands, a bit each."""
    runners: tuple[Runner, ...]
    orphans: tuple[Orphan, ...]
    faults: int
    """How many may still happen."""


def commands(first: int, last: int, *streams: int) -> int:
    """Return the given streams' commands of the transactions in (first, last], a bit each."""
    return sum(1 << ((xact - 1) * STREAMS + stream) for xact in range(first + 1, last + 1) for stream in streams)


_COMMANDS_OF_PREFIXES = tuple(
    frozenset(commands(0, last, stream) for last in range(TRANSACTIONS + 1)) for stream in range(STREAMS)
)
_COMMANDS_OF_STREAMS = tuple(commands(0, TRANSACTIONS, stream) for stream in range(STREAMS))


def row_count(world: World) -> int:
    return 1 if world.row1 is None else 2


def is_free(world: World, row: int) -> bool:
    if any(row in orphan.holds for orphan in world.orphans):
        return False
    return not any(_holds(runner, row) for runner in world.runners)


def _holds(runner: Runner, row: int) -> bool:
    match runner:
        case Start() | Single():
            return row < runner.locked
        case Streams():
            return (runner.step0, runner.step1)[row] is Step.APPLIED
    return False


def with_runner(world: World, place: int, runner: Runner) -> World:
    """Replace a runner. Runners are alike, so their order says nothing: half of the states are enough."""
    runners = [runner, world.runners[1 - place]]
    runners.sort(key=_order)
    return world._replace(runners=tuple(runners))


def _order(runner: Runner) -> tuple[object, ...]:
    return (type(runner).__name__, repr(runner))


def with_killed(world: World, place: int, runner: Runner, holds: tuple[int, ...], writes: Writes | None) -> World:
    if holds or writes:
        world = world._replace(orphans=tuple(sorted([*world.orphans, Orphan(holds, writes)], key=repr)))
    return with_runner(world, place, runner)


def after_commit(world: World, writes: Writes) -> World:
    if world.committed & writes.commands:
        raise Violation("a command is applied twice")
    committed = world.committed | writes.commands
    if any(
        committed & of_stream not in prefixes
        for of_stream, prefixes in zip(_COMMANDS_OF_STREAMS, _COMMANDS_OF_PREFIXES, strict=True)
    ):
        raise Violation("a command is applied before an earlier one of its stream")
    row0 = world.row0 if writes.row0 is None else writes.row0
    row1 = writes.row1 or world.row1
    if row0 < world.row0 or (row1 and world.row1 and row1.last < world.row1.last):
        raise Violation("a watermark moves back")
    if commands(0, row0, *range(STREAMS)) & ~committed:
        raise Violation("the watermark passes a command that is not applied")
    return world._replace(row0=row0, row1=row1, committed=committed)
