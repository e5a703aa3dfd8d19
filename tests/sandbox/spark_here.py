"""What the log reader job asks of Spark, done in this process: one task over one row, an accumulator, and removing a
folder. The job itself is the real one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa


class SparkHere:
    """In the place of a `SparkSession`, for `tranrepl.log_reader.job` with a store on a mounted path."""

    def __init__(self) -> None:
        self.sparkContext = _Context()
        self._jsparkSession = _Java()

    def range(self, *_: int) -> _OneRow:
        return _OneRow()


class _OneRow:
    def mapInArrow(  # noqa: N802 — Spark's name
        self, function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], _schema: str
    ) -> _OneRow:
        self._function = function
        return self

    def collect(self) -> list[pa.RecordBatch]:
        return list(self._function([pa.RecordBatch.from_pydict({"id": [0]})]))


class _Accumulator:
    def __init__(self) -> None:
        self.value: list[Any] = []

    def add(self, values: list[Any]) -> None:
        self.value += values


class _Context:
    def __init__(self) -> None:
        self._jvm = _Java()

    def accumulator(self, _start: object, _parameter: object) -> _Accumulator:
        return _Accumulator()


class _Java:
    """Whatever of the JVM is asked for is this; what is done is that a file system deletes a path."""

    def __init__(self, path: str = "") -> None:
        self._path = path

    def __getattr__(self, _name: str) -> _Java:
        return self

    def __call__(self, *arguments: Any) -> _Java:
        return _Java(arguments[0]) if arguments and isinstance(arguments[0], str) else self

    def delete(self, _path: _Java, _recursive: bool) -> None:
        shutil.rmtree(self._path, ignore_errors=True)
