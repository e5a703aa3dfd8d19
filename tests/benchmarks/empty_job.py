"""What any `spark-submit` costs: a session, one row, the end."""

from __future__ import annotations

from pyspark.sql import SparkSession

session = SparkSession.builder.getOrCreate()
session.range(1).collect()
session.stop()
