"""Spark without pandas: it takes time and memory, and nothing of ours needs it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

Mapped = Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]
"""A function for `map_in_arrow`."""


def leave_pandas_out() -> None:
    """Make this process one in which pandas is not installed, unless it is loaded already.

    pyspark loads it as a session starts, pyarrow with the first array that it makes of another library's.
    """
    if not any(isinstance(finder, _NoPandas) for finder in sys.meta_path):
        sys.meta_path.insert(0, _NoPandas())


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: object = None) -> None:  # noqa: ARG002
        if fullname == "pandas":
            raise ModuleNotFoundError(f"{fullname} is left out of this process", name=fullname)


def map_in_arrow(frame: DataFrame, function: Mapped, ddl: str, *, barrier: bool = False) -> DataFrame:
    """Return what a function makes of each partition's batches, as `DataFrame.mapInArrow` does."""
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    # pyspark.sql.pandas.map_ops.PandasMapOpsMixin.mapInArrow, but for its question whether pandas is there.
    udf = UserDefinedFunction(function, ddl, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = udf(*(frame[it] for it in frame.columns))
    return DataFrame(frame._jdf.mapInArrow(column._jc, barrier, None), frame.sparkSession)
