"""Check that Spark can write the command store and remove files there, where the store is no mounted path."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tranrepl.connections import Connection
from tranrepl.distributor.store import remove_folder
from tranrepl.errors import ConfigurationError
from tranrepl.jobs.requests import StoreCheckRequest
from tranrepl.jobs.results import JobResult
from tranrepl.spark.installation import hadoop_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JARS = {
    "s3a": "org.apache.hadoop:hadoop-aws",
    "abfs": "org.apache.hadoop:hadoop-azure",
    "abfss": "org.apache.hadoop:hadoop-azure",
    "gs": "com.google.cloud.bigdataoss:gcs-connector",
}
_CAUSE = re.compile(r"(?:Caused by: |: )?((?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error)?): (.*)")


def run(spark: SparkSession, request: StoreCheckRequest, connections: Mapping[str, Connection]) -> JobResult:
    """Write one row into the store as a job would, and remove it.

    Raises ConfigurationError that says what Spark lacks: jars, rights, or a way to the store.
    """
    del connections
    store = request.publication.distributor.store.rstrip("/")
    path = f"{store}/_tranrepl_check_{uuid.uuid4().hex}"
    try:
        spark.range(0, 1, 1, 1).write.parquet(path)
        remove_folder(spark, path)
    except (PySparkException, Py4JError) as error:
        raise store_error(store, str(error)) from error
    return JobResult()


def store_error(store: str, text: str) -> ConfigurationError:
    """Return what Spark said of a store, and what to do about it."""
    scheme = urlsplit(store).scheme
    causes = _CAUSE.findall(text)
    cause = ": ".join(causes[-1]) if causes else next(iter(text.strip().splitlines()), "")
    return ConfigurationError(
        f"distributor.store: {store!r}: Spark cannot write there: {cause}", remedy=_remedy(scheme, text)
    )


def _remedy(scheme: str, text: str) -> str:
    if "No FileSystem for scheme" in text or "ClassNotFoundException" in text:
        return _missing_jars(scheme)
    if any(it in text for it in ("UnknownHost", "ConnectException", "NoRouteToHost", "SocketTimeout")):
        return "check the host and port in the store's URL, and that it is reached from where Spark runs"
    if any(it in text for it in ("AccessDenied", "AccessControl", "Credential", "NoAuth", "Forbidden", "403")):
        return (
            "give Spark credentials that may write and delete there: spark.hadoop.* settings in spark-defaults.conf, "
            "or the environment of spark-submit"
        )
    return "allowed: a path or URL that Spark can write and delete in"


def _missing_jars(scheme: str) -> str:
    package = _JARS.get(scheme)
    if package is None:
        return (
            f"Spark knows no file system {scheme}://; allowed: a path, s3a://…, hdfs://…, or one whose jars Spark has"
        )
    version = f":{hadoop_version() or 'VERSION'}" if package.startswith("org.apache.hadoop") else ":VERSION"
    return (
        f"Spark has no jars for {scheme}://: add `spark.jars.packages {package}{version}` to spark-defaults.conf "
        "(in SPARK_CONF_DIR), or put the jars into Spark's jars folder"
    )
