"""Arrow batches are mapped as pyspark maps them, but for its question whether pandas is there."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from types import ModuleType

import pyarrow as pa
import pytest
from pyspark.errors import PySparkImportError
from pyspark.sql import DataFrame, SparkSession

from tranrepl.spark.without_pandas import leave_pandas_out, map_in_arrow

_DDL = "id bigint"


def _same(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


@pytest.mark.parametrize("barrier", [False, True])
def test_the_plan_is_the_one_of_pyspark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, barrier: bool) -> None:
    pandas = ModuleType("pandas")
    pandas.__version__ = "2.9.9"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    frame = spark.range(0, 10, 1, 2)
    ours, theirs = map_in_arrow(frame, _same, _DDL, barrier=barrier), frame.mapInArrow(_same, _DDL, barrier=barrier)
    assert _plan(ours) == _plan(theirs)
    assert ours.schema == theirs.schema
    assert sorted(row["id"] for row in ours.collect()) == list(range(10))


def test_pyspark_still_asks_for_pandas(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where it does not, its own function serves.
    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    leave_pandas_out()
    with pytest.raises(PySparkImportError, match=r"[Pp]andas"):
        spark.range(1).mapInArrow(_same, _DDL)


def _plan(frame: DataFrame) -> str:
    """Return what Spark is to do, without the numbers that it counts up."""
    return re.sub(r"#\d+L?", "", frame._jdf.queryExecution().toString())
