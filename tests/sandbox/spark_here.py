"""What the log reader job asks of Spark, done in this process: one task of one partition, and an accumulator. The job
itself is the real one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


class SparkHere:
    """In the place of a `SparkSession`, for `tranrepl.log_reader.job` with a store on a mounted path."""

    def __init__(self) -> None:
        self.sparkContext = _Context()


class _OnePartition:
    def foreachPartition(self, function: Callable[[Iterable[int]], None]) -> None:  # noqa: N802 — Spark's name
        function([0])


class _Accumulator:
    def __init__(self) -> None:
        self.value: list[Any] = []

    def add(self, values: list[Any]) -> None:
        self.value += values


class _Context:
    def parallelize(self, _values: list[int], _partitions: int) -> _OnePartition:
        return _OnePartition()

    def accumulator(self, _start: object, _parameter: object) -> _Accumulator:
        return _Accumulator()
