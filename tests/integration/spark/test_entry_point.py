"""The frame of a Spark job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tranrepl.spark.entry_point import with_its_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_what_java_raises_is_one_line_that_says_why(spark: SparkSession) -> None:
    java = spark.sparkContext._jvm
    assert java is not None
    cause = java.java.net.ConnectException("no way to 127.0.0.1")
    wrapped = java.org.apache.spark.SparkException("It failed.", cause)
    failed = java.scala.util.Failure(wrapped)
    error = with_its_error([], lambda _: failed.get()).error
    assert error is not None
    expected = "Spark: org.apache.spark.SparkException: It failed, because of java.net.ConnectException: "
    assert error.message == f"{expected}no way to 127.0.0.1"
