"""The Spark connection: where a job runs, and which Spark settings it needs to run there."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from airflow.sdk import Connection

from tranrepl.errors import ConfigurationError
from tranrepl.spark.installation import require_spark_submit
from tranrepl.spark.submission import CONTINUOUS_LOCAL_MASTER_SETTINGS, LOCAL_MASTER_SETTINGS, spark_submit_binary
from tranrepl_airflow.job_connections import find_connection

SPARK_SUBMIT = "spark-submit"


@dataclass(frozen=True, slots=True)
class SparkConnection:
    """What matters here of an Airflow connection of type `spark`."""

    master: str
    binary: str | None
    """`spark-binary` of the connection's extras."""

    def default_conf(self, *, continuous: bool = False) -> Mapping[str, str]:
        """Return settings for a job on this master, continuous or not, under those that the user gave.

        The driver runs here in any case (client mode). On a cluster the executors' Python is the cluster's.
        """
        driver = {"spark.pyspark.driver.python": sys.executable}
        if not self.master.startswith("local"):
            return driver
        local = CONTINUOUS_LOCAL_MASTER_SETTINGS if continuous else LOCAL_MASTER_SETTINGS
        return {**driver, "spark.pyspark.python": sys.executable, **local}

    def submit_binary(self) -> str | None:
        """Return the spark-submit beside this Python, where neither the connection nor PATH has one; else None.

        Raises ConfigurationError where there is none at all, or it cannot be started.
        """
        if self.binary or shutil.which(SPARK_SUBMIT):
            require_spark_submit(self.binary or SPARK_SUBMIT)
            return None
        require_spark_submit()
        return spark_submit_binary()


def find_spark(connection_id: str, deploy_mode: str | None) -> SparkConnection:
    """Read the Spark connection.

    Raises ConfigurationError where it is missing (the provider would submit to YARN without a word), and where
    the provider would put the environment, which holds the passwords, on the command line or refuse it: YARN,
    Kubernetes and cluster mode (source: `SparkSubmitHook._build_spark_common_args`).
    """
    connection = find_connection(connection_id)
    if connection is None:
        raise ConfigurationError(
            f"not defined in Airflow: Spark connection {connection_id}",
            remedy=f"airflow connections add {connection_id} "
            """--conn-json '{"conn_type": "spark", "host": "local[2]"}' (or host spark://host:7077)""",
        )
    extra = connection.extra_dejson
    master = _master(connection)
    mode = deploy_mode or extra.get("deploy-mode") or "client"
    if mode != "client" or "yarn" in master or "k8s" in master:
        raise ConfigurationError(
            f"Spark connection {connection_id} means {master} in {mode} mode, where passwords would be passed on "
            "the command line",
            remedy="allowed: local[n] or spark://host:port, in client mode",
        )
    return SparkConnection(master, extra.get("spark-binary"))


def _master(connection: Connection) -> str:
    """Return the master as the provider builds it (source: `SparkSubmitHook._resolve_connection`)."""
    host = connection.host or ""
    is_master = connection.conn_type == "spark" and host and ("://" in host or not connection.port)
    address = host if is_master else f"{connection.conn_type}://{host}"
    return f"{address}:{connection.port}" if connection.port else address
