"""Processes in which pandas is not loaded: it takes time and memory, and nothing of ours needs it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder


def leave_pandas_out() -> None:
    """Make this process one in which pandas is not installed, unless it is loaded already.

    pyarrow loads it with the first array that it makes of another library's, which delays the start, and
    nothing of ours needs it. Not for drivers, where pyspark asks for it before it plans `mapInArrow`.
    """
    if not any(isinstance(finder, _NoPandas) for finder in sys.meta_path):
        sys.meta_path.insert(0, _NoPandas())


@contextmanager
def without_pandas() -> Iterator[None]:
    """Leave pandas out of what is imported meanwhile: as a driver starts its session, pyspark loads it to see whether
    its tests could run. Who needs it later gets it."""
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: object = None) -> None:  # noqa: ARG002
        if fullname == "pandas":
            raise ModuleNotFoundError(f"{fullname} is left out of this process", name=fullname)
