"""What the jobs ask of Spark where the store is on a mounted path and a delivery has one connection, done in this
process: tasks one after the other, and an accumulator. The jobs themselves are the real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

_Function = Callable[[Iterable[Any]], Iterable[Any]]


class SparkHere:
    """Stands in for a `SparkSession`."""

    def __init__(self) -> None:
        self.sparkContext = _Context()


class _Partitions:
    """Partitions, each computed when its result is read."""

    def __init__(self, partitions: Sequence[Sequence[Any]], function: _Function = iter) -> None:
        self._partitions = partitions
        self._function = function

    def foreachPartition(self, function: Callable[[Iterable[Any]], None]) -> None:  # noqa: N802 — Spark's name
        for it in self._partitions:
            function(it)

    def mapPartitions(self, function: _Function) -> _Partitions:  # noqa: N802
        return _Partitions(self._partitions, function)

    def map(self, function: Callable[[Any], Any]) -> _Partitions:
        return _Partitions(self._partitions, lambda values: map(function, values))

    def collect(self) -> list[Any]:
        return [answer for it in self._partitions for answer in self._function(it)]


class _Accumulator:
    def __init__(self) -> None:
        self.value: list[Any] = []

    def add(self, values: list[Any]) -> None:
        self.value += values


class _Context:
    defaultParallelism = 2  # noqa: N815

    def parallelize(self, values: Sequence[Any], partitions: int) -> _Partitions:
        """Cut where Spark cuts."""
        bounds = [len(values) * number // partitions for number in range(partitions + 1)]
        return _Partitions([values[first:end] for first, end in pairwise(bounds)])

    def setJobGroup(self, group: str, description: str, interruptOnCancel: bool = False) -> None:  # noqa: N802, N803
        pass

    def cancelJobGroup(self, group: str) -> None:  # noqa: N802
        raise NotImplementedError

    def getConf(self) -> dict[str, str]:  # noqa: N802
        return {}

    def accumulator(self, _start: object, _parameter: object) -> _Accumulator:
        return _Accumulator()
