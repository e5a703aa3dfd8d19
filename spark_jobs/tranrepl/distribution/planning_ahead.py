"""Pieces on their way to a connection: read and planned while the one before is applied."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from tranrepl.subscriber.batching.commit_batches import Piece
from tranrepl.subscriber.batching.steps import Bulkable, Operations, Step, Steps

_FEW_COMMANDS = 1000

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Planned(Generic[Item]):
    """A piece, or what holds one, with the steps that apply it."""

    item: Item
    steps: Steps
    read_seconds: float
    plan_seconds: float
    operations: Mapping[int, Operations] = field(default_factory=dict)
    """What could go in bulk when it was planned, by article_id."""


@dataclass(frozen=True, slots=True)
class Planner(Generic[Item]):
    """Plans pieces in order. What may go in bulk is asked for each."""

    bulkable: Callable[[], Bulkable]
    with_text: Callable[[Step], Step]
    piece_of: Callable[[Item], Piece]

    def plan(self, items: Iterable[Item]) -> Iterator[Planned[Item]]:
        started = time.perf_counter()
        for item in items:
            read = time.perf_counter()
            bulkable = self.bulkable()
            steps = self._steps(self.piece_of(item), bulkable)
            yield Planned(item, steps, read - started, time.perf_counter() - read, bulkable.operations)
            started = time.perf_counter()

    def up_to_date(self, planned: Planned[Item]) -> Planned[Item]:
        """Return it planned again, where a schema change that was applied meanwhile has changed what may go in bulk."""
        bulkable, piece = self.bulkable(), self.piece_of(planned.item)
        if planned.operations is bulkable.operations or piece.changes_schema:
            return planned
        present = piece.commands["article_id"].unique().to_pylist()
        if all(planned.operations.get(it) == bulkable.operations.get(it) for it in present):
            return planned
        return replace(planned, steps=self._steps(piece, bulkable), operations=bulkable.operations)

    def is_short_change(self, planned: Planned[Item]) -> bool:
        """Return whether it is a schema change with few commands beside it, which is applied sooner than another piece
        is planned."""
        piece = self.piece_of(planned.item)
        return piece.changes_schema and len(piece.commands) < _FEW_COMMANDS

    def _steps(self, piece: Piece, bulkable: Bulkable) -> Steps:
        if piece.changes_schema:
            # What may go in bulk was found out with the tables as they were before.
            bulkable = replace(bulkable, operations={})
        planned = bulkable.steps(piece.commands)
        return replace(planned, steps=tuple(map(self.with_text, planned.steps)))


def ahead(items: Iterable[Item], is_short: Callable[[Item], bool] = lambda _: False) -> Generator[Item, None, None]:
    """Yield the items, each made by another thread while the one before is in use; one that is short, together with
    the one behind it."""
    iterator = iter(items)
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as maker:
        following = maker.submit(_made, iterator, is_short)
        while (made := following.result()).items:
            yield from made.items[:-1]
            if made.error is None:
                following = maker.submit(_made, iterator, is_short)
            yield made.items[-1]
            if made.error is not None:
                raise made.error


@dataclass(frozen=True, slots=True)
class _Made(Generic[Item]):
    """Items that were made together, and what kept more from being made."""

    items: list[Item]
    error: Exception | None = None


def _made(iterator: Iterator[Item], is_short: Callable[[Item], bool]) -> _Made[Item]:
    items: list[Item] = []
    try:
        for item in iterator:
            items.append(item)
            if not is_short(item):
                break
    except Exception as error:
        if not items:
            raise
        # They come before it.
        return _Made(items, error)
    return _Made(items)
