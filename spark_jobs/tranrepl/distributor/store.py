"""The command store: a folder of Parquet for each batch, on any path that Spark can write.

A folder counts only once its batch is registered in the distribution database.
"""

from __future__ import annotations

import shutil
import uuid
from typing import TYPE_CHECKING

from tranrepl.distributor.command_file import mounted_path
from tranrepl.distributor.database import PublicationRecord
from tranrepl.errors import InternalError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def new_folder() -> str:
    """Return a name that no other attempt has."""
    return uuid.uuid4().hex


def folder_path(record: PublicationRecord, folder: str) -> str:
    return f"{record.store.rstrip('/')}/{folder}"


def remove_folder(spark: SparkSession, path: str) -> None:
    """Remove a folder that was never registered."""
    mounted = mounted_path(path)
    if mounted is not None:
        shutil.rmtree(mounted, ignore_errors=True)
        return
    jvm = spark.sparkContext._jvm
    if jvm is None:
        raise InternalError("the Spark session has no JVM")
    hadoop_path = jvm.org.apache.hadoop.fs.Path(path)
    hadoop_path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()).delete(hadoop_path, True)
