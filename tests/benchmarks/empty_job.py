"""The least that a PySpark job does: a session, and one task with a Python worker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from tranrepl.spark.without_pandas import map_in_arrow


def _nothing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    return iter(())


if __name__ == "__main__":
    spark = SparkSession.builder.appName("empty").getOrCreate()
    map_in_arrow(spark.range(0, 1, 1, 1), _nothing, "nothing int").collect()
    spark.stop()
