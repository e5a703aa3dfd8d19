"""What the JVMs of both jobs do, once and with nothing: its classes are those of the archive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from tranrepl.spark.entry_point import spark_session
from tranrepl.spark.spark_submit import private_folder
from tranrepl.spark.without_pandas import map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _same(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return iter(batches)


def train(spark: SparkSession, folder: Path) -> None:
    """Run one task without SQL, then write a stored batch, read, sort, divide and deliver it."""
    from pyspark.sql import functions as F  # noqa: N812

    accumulator = spark.sparkContext.accumulator(0)
    spark.sparkContext.parallelize([0], 1).foreach(accumulator.add)
    commands, stored = "seqno binary, id bigint", str(folder / "batch")
    rows = spark.range(0, 100, 1, 1).select(F.col("id").cast("string").cast("binary").alias("seqno"), "id")
    map_in_arrow(rows, _same, commands).write.parquet(stored)
    chosen = spark.read.parquet(stored).where(F.col("seqno") > F.lit(b"1")).coalesce(1)
    chosen.inputFiles()
    ordered = map_in_arrow(chosen.sortWithinPartitions("seqno", "id"), _same, commands)
    ordered.collect()
    streams = ordered.repartitionById(2, (F.col("id") % 2).cast("int")).sortWithinPartitions("seqno", "id")
    map_in_arrow(streams, _same, commands, barrier=True).collect()
    chosen.agg(F.min("seqno")).first()


if __name__ == "__main__":
    session = spark_session("tranrepl class archive")
    with private_folder() as path:
        train(session, path)
    session.stop()
