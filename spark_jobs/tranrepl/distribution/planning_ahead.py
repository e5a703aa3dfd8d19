"""Pieces on their way to a connection: read and planned while the one before is applied."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from tranrepl.subscriber.batching.commit_batches import Piece
from tranrepl.subscriber.batching.steps import Bulkable, Step, Steps

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Planned(Generic[Item]):
    """A piece, or what holds one, with the steps that apply it."""

    item: Item
    steps: Steps
    read_seconds: float
    plan_seconds: float


@dataclass(frozen=True, slots=True)
class Planner(Generic[Item]):
    """Plans pieces in order."""

    bulkable: Bulkable
    with_text: Callable[[Step], Step]
    piece_of: Callable[[Item], Piece]

    def plan(self, items: Iterable[Item]) -> Iterator[Planned[Item]]:
        started = time.perf_counter()
        for item in items:
            read = time.perf_counter()
            steps = self._steps(self.piece_of(item))
            yield Planned(item, steps, read - started, time.perf_counter() - read)
            started = time.perf_counter()

    def _steps(self, piece: Piece) -> Steps:
        planned = self.bulkable.steps(piece.commands)
        return replace(planned, steps=tuple(map(self.with_text, planned.steps)))


def ahead(items: Iterable[Item]) -> Generator[Item, None, None]:
    """Yield the items, each made by another thread while the one before is in use."""
    iterator = iter(items)
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as maker:
        following = maker.submit(next, iterator, None)
        while (item := following.result()) is not None:
            following = maker.submit(next, iterator, None)
            yield item
