"""The command store: a folder of Parquet for each batch, on any path that Spark can write.

A folder counts only once its batch is registered in the distribution database.
"""

from __future__ import annotations

import shutil
import uuid
from typing import TYPE_CHECKING, Any

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
    filesystem, hadoop_path = _hadoop(spark, path)
    filesystem.delete(hadoop_path, True)


def read_file(spark: SparkSession, path: str) -> str | None:
    """Return a small file of the store, read by Spark; None where it is not there."""
    filesystem, hadoop_path = _hadoop(spark, path)
    if not filesystem.exists(hadoop_path):
        return None
    stream = filesystem.open(hadoop_path)
    try:
        return bytes(stream.readAllBytes()).decode(errors="replace")
    finally:
        stream.close()


def write_file(spark: SparkSession, path: str, text: str) -> None:
    """Write a small file of the store by Spark, where none of the name is."""
    filesystem, hadoop_path = _hadoop(spark, path)
    stream = filesystem.create(hadoop_path, False)
    stream.write(bytearray(text.encode()))
    stream.close()


def _hadoop(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Return Hadoop's file system of a path, and the path as it takes it."""
    jvm = spark.sparkContext._jvm
    if jvm is None:
        raise InternalError("the Spark session has no JVM")
    hadoop_path = jvm.org.apache.hadoop.fs.Path(path)
    return hadoop_path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()), hadoop_path
