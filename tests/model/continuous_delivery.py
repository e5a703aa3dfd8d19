"""The loop of a continuous delivery as a state space: look, apply, commit, look again; now and then record.

Two deliveries of one subscription deliver what is registered meanwhile, and clean-up removes what they have recorded.
Any step of one may come between any two steps of the other, and each may be killed before and after each of its steps.
The Subscriber's commits wait for no disk, so that a crash of it loses the last of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from typing import NamedTuple

from model.search import Search, Transition, Violation, explore

_TRANSACTIONS = 3
_DELIVERIES = 2


class Mutation(Enum):
    """One rule of the loop, broken."""

    THE_WATERMARK_IS_NOT_COMPARED = auto()
    THE_WATERMARK_IS_NOT_LOCKED = auto()
    """It is compared when the commands are applied, and others commit before this one does."""
    THE_WATERMARK_COMMITS_BY_ITSELF = auto()
    """After the commands."""
    IT_IS_RECORDED_BEFORE_IT_IS_ON_DISK = auto()
    CLEAN_UP_REMOVES_WHAT_IS_NOT_RECORDED = auto()
    """It removes what the watermark has passed."""


class Step(Enum):
    """What a delivery has done."""

    IDLE = auto()
    LISTENING = auto()
    LOOKED = auto()
    """It knows what is registered after its watermark."""
    APPLIED = auto()
    """The commands are applied under the watermark's lock, and not committed."""
    WITHOUT_WATERMARK = auto()
    """The commands are committed, and the watermark is not: only by a mutation."""
    FLUSHED = auto()
    """What it has committed is on the Subscriber's disk."""


class Delivery(NamedTuple):
    step: Step = Step.IDLE
    at: int = 0
    """The watermark, as far as it knows."""
    to: int = 0
    """The last transaction of its commit batch."""


class World(NamedTuple):
    registered: int
    removed: int
    """The last transaction whose commands clean-up has removed."""
    recorded: int
    """The last one that is known to be at the Subscriber, in the distribution database."""
    rows: tuple[int, ...]
    """What was applied at the Subscriber, in order."""
    watermark: int
    on_disk: tuple[int, int]
    """How many of the rows a crash leaves, and which watermark."""
    locked_by: int | None
    deliveries: tuple[Delivery, ...]
    faults: int


class _Loop:
    def __init__(self, mutation: Mutation | None) -> None:
        self._mutation = mutation

    def next(self, world: World) -> Iterator[Transition[World]]:
        if world.registered < _TRANSACTIONS:
            yield Transition(world._replace(registered=world.registered + 1), fault=False)
        early = self._mutation is Mutation.CLEAN_UP_REMOVES_WHAT_IS_NOT_RECORDED
        removable = world.watermark if early else world.recorded
        if world.removed < removable:
            # It may never come.
            yield Transition(world._replace(removed=removable), fault=True)
        for place, delivery in enumerate(world.deliveries):
            for after in self._steps(world, place, delivery):
                yield Transition(after, fault=False)
            if world.faults and delivery.step is not Step.IDLE:
                for after in self._killed(world._replace(faults=world.faults - 1), place, delivery):
                    yield Transition(after, fault=True)
        if world.faults:
            yield Transition(_crashed(world._replace(faults=world.faults - 1)), fault=True)

    def _steps(self, world: World, place: int, delivery: Delivery) -> Iterator[World]:
        match delivery.step:
            case Step.IDLE:
                yield _with(world, place, Delivery(Step.LISTENING, world.watermark))
            case Step.LISTENING:
                for to in range(delivery.at + 1, world.registered + 1):
                    yield _with(world, place, Delivery(Step.LOOKED, delivery.at, to))
                yield self._flushed(world, place, delivery)
                # Asked to end, or a lost session.
                yield _with(world, place, Delivery())
            case Step.LOOKED:
                yield from self._apply(world, place, delivery)
            case Step.APPLIED:
                yield self._commit(world, place, delivery)
            case Step.WITHOUT_WATERMARK:
                moved = world._replace(watermark=max(world.watermark, delivery.to))
                yield _with(moved, place, Delivery(Step.LISTENING, delivery.to))
            case Step.FLUSHED:
                recorded = world._replace(recorded=max(world.recorded, delivery.at))
                yield _with(recorded, place, Delivery(Step.LISTENING, delivery.at))

    def _flushed(self, world: World, place: int, delivery: Delivery) -> World:
        if self._mutation is not Mutation.IT_IS_RECORDED_BEFORE_IT_IS_ON_DISK:
            if delivery.at > world.watermark:
                # The Subscriber has crashed, and the session with it.
                return _with(world, place, Delivery())
            world = world._replace(on_disk=(len(world.rows), world.watermark))
        return _with(world, place, delivery._replace(step=Step.FLUSHED))

    def _apply(self, world: World, place: int, delivery: Delivery) -> Iterator[World]:
        if world.removed > delivery.at:
            yield _with(world, place, Delivery())
            return
        locks = self._mutation is not Mutation.THE_WATERMARK_IS_NOT_LOCKED
        if locks and world.locked_by is not None:
            return
        if world.watermark != delivery.at and self._mutation is not Mutation.THE_WATERMARK_IS_NOT_COMPARED:
            yield _with(world, place, Delivery())
            return
        locked = world._replace(locked_by=place) if locks else world
        yield _with(locked, place, delivery._replace(step=Step.APPLIED))

    def _commit(self, world: World, place: int, delivery: Delivery) -> World:
        rows = (*world.rows, *range(delivery.at + 1, delivery.to + 1))
        if len(set(rows)) < len(rows):
            raise Violation("a transaction is applied twice")
        if rows != tuple(range(1, delivery.to + 1)):
            raise Violation("a transaction is left out")
        committed = _unlocked(world._replace(rows=rows), place)
        if self._mutation is Mutation.THE_WATERMARK_COMMITS_BY_ITSELF:
            return _with(committed, place, delivery._replace(step=Step.WITHOUT_WATERMARK))
        return _with(committed._replace(watermark=delivery.to), place, Delivery(Step.LISTENING, delivery.to))

    def _killed(self, world: World, place: int, delivery: Delivery) -> Iterator[World]:
        yield _with(_unlocked(world, place), place, Delivery())
        if delivery.step is Step.APPLIED:
            # It had sent COMMIT.
            yield _with(self._commit(world, place, delivery), place, Delivery())


def _with(world: World, place: int, delivery: Delivery) -> World:
    deliveries = list(world.deliveries)
    deliveries[place] = delivery
    return world._replace(deliveries=tuple(deliveries))


def _unlocked(world: World, place: int) -> World:
    return world._replace(locked_by=None) if world.locked_by == place else world


def _crashed(world: World) -> World:
    """Return what is left after a crash of the Subscriber: what is on its disk. Whoever was about to commit has lost
    its transaction, and others learn of it when they use their sessions again."""
    kept, watermark = world.on_disk
    deliveries = tuple(Delivery() if it.step is Step.APPLIED else it for it in world.deliveries)
    return world._replace(rows=world.rows[:kept], watermark=watermark, locked_by=None, deliveries=deliveries)


def search(mutation: Mutation | None = None, faults: int = 2) -> Search[World]:
    """Visit every state that can be reached: each transaction is applied once, in order and without a gap, and without
    further faults all of them are, however often the Subscriber crashed."""
    initial = World(0, 0, 0, (), 0, (0, 0), None, (Delivery(),) * _DELIVERIES, faults)
    return explore(initial, _Loop(mutation).next, _is_finished)


def _is_finished(world: World) -> bool:
    return world.watermark == world.registered == _TRANSACTIONS
