"""pyarrow without pandas, in a process of our own."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder


def leave_pandas_out() -> None:
    """Make this process one in which pandas is not installed, unless it is loaded already.

    pyarrow loads it with the first array that it makes of another library's, which takes a third of a second, and
    nothing of ours needs it. For our own processes: Spark's Python workers and the shell, not drivers, where pyspark
    asks for it before it plans `mapInArrow`.
    """
    if not any(isinstance(finder, _NoPandas) for finder in sys.meta_path):
        sys.meta_path.insert(0, _NoPandas())


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: object = None) -> None:  # noqa: ARG002
        if fullname == "pandas":
            raise ModuleNotFoundError(f"{fullname} is left out of this process", name=fullname)
