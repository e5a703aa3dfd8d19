"""Visit every state of a small world, and find the shortest way to one that must not be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

W = TypeVar("W")


class Violation(Exception):  # noqa: N818 — what the search looks for, not what goes wrong in it
    """A state that must not be reached."""


class Transition(NamedTuple, Generic[W]):
    world: W
    fault: bool
    """It may never happen."""


class Search(NamedTuple, Generic[W]):
    states: int
    violation: str | None
    history: tuple[W, ...]
    """How it comes to the violation."""


def explore(
    initial: W, following: Callable[[W], Iterable[Transition[W]]], is_finished: Callable[[W], bool]
) -> Search[W]:
    """Visit every state that can be reached. `following` gives all that can happen next, and raises Violation where it
    must not happen; from every state, a way without further faults must lead to one that `is_finished`."""
    number = {initial: 0}
    worlds, reached_from, before = [initial], [0], list[list[int]]([[]])
    for place, world in enumerate(worlds):
        try:
            for after, fault in following(world):
                seen = number.get(after)
                if seen is None:
                    seen = number[after] = len(worlds)
                    worlds.append(after)
                    reached_from.append(place)
                    before.append([])
                if not fault:
                    before[seen].append(place)
        except Violation as violation:
            return Search(len(worlds), str(violation), _history(worlds, reached_from, place))
    stuck = _unable_to_finish([is_finished(world) for world in worlds], before)
    if stuck is not None:
        return Search(len(worlds), "nobody can finish the work", _history(worlds, reached_from, stuck))
    return Search(len(worlds), None, ())


def _unable_to_finish(finished: list[bool], before: list[list[int]]) -> int | None:
    """Return the first state from which no way leads to one that is finished."""
    able = bytearray(finished)
    ends = [place for place, it in enumerate(finished) if it]
    for place in ends:
        for earlier in before[place]:
            if not able[earlier]:
                able[earlier] = 1
                ends.append(earlier)
    stuck = able.find(0)
    return None if stuck < 0 else stuck


def _history(worlds: list[W], reached_from: list[int], place: int) -> tuple[W, ...]:
    history = [worlds[place]]
    while place:
        place = reached_from[place]
        history.append(worlds[place])
    return tuple(reversed(history))
