"""The warm Spark session in which the jobs are measured."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from support.quiet_spark import quiet_start
from tranrepl.garbage_collection import look_seldom
from tranrepl.spark.entry_point import SESSION_SETTINGS
from tranrepl.spark.output import silence_py4j, submission_variables
from tranrepl.spark.spark_submit import LOCAL_MASTER_SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORES = 2
_LOADING_SECONDS = 0.1


@contextmanager
def spark_session(master: str = f"local[{CORES}]") -> Iterator[SparkSession]:
    """Yield a session with the jobs' own settings, on loopback."""
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, **submission_variables()}
    silence_py4j()
    look_seldom()
    from pyspark.sql import SparkSession

    settings = {**SESSION_SETTINGS, **LOCAL_MASTER_SETTINGS, "spark.log.level": "ERROR"}
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with quiet_start():
        session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def keep_warm(spark: SparkSession) -> None:
    """Keep a Python worker for each core that has loaded what jobs load. Spark ends one that is idle for a minute, as
    while a backlog is built, and starting another would count as start-up.
    """

    def load(one: Iterable[int]) -> None:
        # Travels whole: a worker knows nothing of this package.
        for _ in one:
            pass
        for module in ("tranrepl.log_reader.storing", "tranrepl.distribution.delivery"):
            importlib.import_module(module)
        # A worker that were done already would take the next one's turn.
        time.sleep(_LOADING_SECONDS)

    spark.sparkContext.parallelize(range(CORES), CORES).foreachPartition(load)
