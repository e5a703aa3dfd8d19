"""The loop of a continuous log reader as a state space: write a file, register it, let the log go, go on.

Two readers read a log of some transactions. Either of them follows the slot, which it holds meanwhile, or drains it as
a scheduled run does, beside the other. Any step of one may come between any two steps of the other, and each may be
killed before and after each of its steps, its session living on at the Publisher for a while; the Publisher crashes,
and its slot stands further back then.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from typing import NamedTuple

from model.search import Search, Transition, Violation, explore

_TRANSACTIONS = 3
_READERS = 2
_DEAD = _READERS
"""Who holds the slot of which nobody is left but a session at the server."""


class Mutation(Enum):
    """One rule of the loop, broken."""

    THE_LOG_IS_LET_GO_BEFORE_IT_IS_REGISTERED = auto()
    REGISTERING_DOES_NOT_COMPARE = auto()
    A_STREAM_BEGINS_AT_ITS_SLOT = auto()
    """And not at what is registered."""
    ONE_THAT_WAS_OVERTAKEN_GOES_ON = auto()
    """With its stream, at what is registered by then."""


class Step(Enum):
    """What a reader has done."""

    IDLE = auto()
    OPENED = auto()
    """It knows what is registered."""
    FOLLOWING = auto()
    DRAINING = auto()
    STORED = auto()
    """A file is written, and nobody sees it."""
    REGISTERED = auto()
    """The slot stands before it."""
    LET_GO = auto()
    """The same in the wrong order: the slot stands behind it, and it is not registered."""


class Reader(NamedTuple):
    step: Step = Step.IDLE
    known: int = 0
    """The last transaction that is registered, as far as it knows."""
    at: int = 0
    """The last transaction that it has read."""
    to: int = 0
    """The last one in its file."""
    holds: bool = False
    """Whether it follows the slot, as far as it knows."""


class World(NamedTuple):
    committed: int
    confirmed: int
    """The last transaction that the slot has let go."""
    holder: int | None
    """Which reader follows the slot."""
    registered: int
    stored: tuple[int, ...]
    """The registered commands, in order: a number for each transaction's."""
    readers: tuple[Reader, ...]
    faults: int


class _Loop:
    def __init__(self, mutation: Mutation | None) -> None:
        self._mutation = mutation

    def next(self, world: World) -> Iterator[Transition[World]]:
        if world.committed < _TRANSACTIONS:
            yield Transition(world._replace(committed=world.committed + 1), fault=False)
        if world.holder == _DEAD:
            yield Transition(world._replace(holder=None), fault=False)
        for place, reader in enumerate(world.readers):
            for after in self._steps(world, place, reader):
                yield Transition(after, fault=False)
            if world.faults and reader.step is not Step.IDLE:
                for after in self._killed(world._replace(faults=world.faults - 1), place, reader):
                    yield Transition(after, fault=True)
        if world.faults:
            for confirmed in range(world.confirmed + 1):
                # Whoever follows it learns that when it uses its session again.
                crashed = world._replace(confirmed=confirmed, holder=None, faults=world.faults - 1)
                yield Transition(crashed, fault=True)

    def _steps(self, world: World, place: int, reader: Reader) -> Iterator[World]:
        match reader.step:
            case Step.IDLE:
                yield _with(world, place, Reader(Step.OPENED, world.registered))
            case Step.OPENED:
                yield from self._begin(world, place, reader)
            case Step.FOLLOWING:
                # Somebody asks for the log, its time is over, or its session is gone.
                yield _ended(world, place)
                if world.holder == place:
                    # It tells the server what is registered, though nothing is new.
                    yield world._replace(confirmed=max(world.confirmed, reader.known))
                    yield from self._stored(world, place, reader)
            case Step.DRAINING:
                yield from self._stored(world, place, reader)
            case Step.STORED if self._mutation is Mutation.THE_LOG_IS_LET_GO_BEFORE_IT_IS_REGISTERED:
                yield self._let_go(world, place, reader._replace(step=Step.LET_GO))
            case Step.STORED | Step.LET_GO:
                yield self._register(world, place, reader)
            case Step.REGISTERED:
                yield self._let_go(world, place, reader)

    def _begin(self, world: World, place: int, reader: Reader) -> Iterator[World]:
        slots = self._mutation is Mutation.A_STREAM_BEGINS_AT_ITS_SLOT
        at = world.confirmed if slots else max(world.confirmed, reader.known)
        if world.holder is None:
            follows = reader._replace(step=Step.FOLLOWING, at=at, holds=True)
            yield _with(world._replace(holder=place), place, follows)
        if world.confirmed <= reader.known:
            yield _with(world, place, reader._replace(step=Step.DRAINING, at=reader.known))
        # The log is in use, or was let go by another one.
        yield _with(world, place, Reader())

    def _stored(self, world: World, place: int, reader: Reader) -> Iterator[World]:
        if reader.step is Step.DRAINING and reader.at == world.committed:
            yield _ended(world, place)
        for to in range(reader.at + 1, world.committed + 1):
            yield _with(world, place, reader._replace(step=Step.STORED, to=to))

    def _register(self, world: World, place: int, reader: Reader) -> World:
        if world.registered != reader.known and self._mutation is not Mutation.REGISTERING_DOES_NOT_COMPARE:
            if self._mutation is Mutation.ONE_THAT_WAS_OVERTAKEN_GOES_ON and reader.holds:
                return _with(world, place, Reader(Step.FOLLOWING, world.registered, reader.to, holds=True))
            return _ended(world, place)
        stored = (*world.stored, *range(reader.at + 1, reader.to + 1))
        if len(set(stored)) < len(stored):
            raise Violation("a transaction is stored twice")
        if stored != tuple(range(1, reader.to + 1)):
            raise Violation("a transaction is not stored, and the next one is")
        registered = world._replace(registered=reader.to, stored=stored)
        if reader.step is Step.LET_GO:
            return _with(registered, place, self._again(reader))
        return _with(registered, place, reader._replace(step=Step.REGISTERED, known=reader.to))

    def _let_go(self, world: World, place: int, reader: Reader) -> World:
        if reader.holds != (world.holder == place) or (not reader.holds and world.holder is not None):
            # The session is gone, or the log is in use: the next one lets it go.
            return _ended(world, place)
        after = world._replace(confirmed=max(world.confirmed, reader.to))
        if reader.step is Step.LET_GO:
            return _with(after, place, reader)
        return _with(after, place, self._again(reader))

    def _again(self, reader: Reader) -> Reader:
        step = Step.FOLLOWING if reader.holds else Step.DRAINING
        return Reader(step, reader.to, reader.to, holds=reader.holds)

    def _killed(self, world: World, place: int, reader: Reader) -> Iterator[World]:
        holder = _DEAD if world.holder == place else world.holder
        yield _with(world._replace(holder=holder), place, Reader())
        # What it had just sent is done all the same.
        if reader.step in (Step.STORED, Step.LET_GO, Step.REGISTERED):
            for done in self._steps(world, place, reader):
                holder = _DEAD if done.holder == place else done.holder
                yield _with(done._replace(holder=holder), place, Reader())


def _with(world: World, place: int, reader: Reader) -> World:
    readers = list(world.readers)
    readers[place] = reader
    return world._replace(readers=tuple(readers))


def _ended(world: World, place: int) -> World:
    holder = None if world.holder == place else world.holder
    return _with(world._replace(holder=holder), place, Reader())


def search(mutation: Mutation | None = None, faults: int = 2) -> Search[World]:
    """Visit every state that can be reached: what is registered is each transaction once, in order and without a gap,
    and without further faults all of them are registered in the end, and the log is let go."""
    initial = World(0, 0, None, 0, (), (Reader(),) * _READERS, faults)
    return explore(initial, _Loop(mutation).next, _is_finished)


def _is_finished(world: World) -> bool:
    return world.registered == world.confirmed == _TRANSACTIONS
