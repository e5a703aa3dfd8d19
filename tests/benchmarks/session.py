"""A Spark session with the jobs' own settings, on two cores."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tranrepl.jobs import LOCAL_MASTER_SETTINGS
from tranrepl.spark_job import SESSION_SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    settings = {**SESSION_SETTINGS, **LOCAL_MASTER_SETTINGS, "spark.log.level": "ERROR"}
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()
