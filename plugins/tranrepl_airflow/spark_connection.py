"""The Spark connection: where a job runs, and which Spark settings it needs to run there."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from airflow.sdk import Connection

from tranrepl.errors import ConfigurationError
from tranrepl.spark.installation import require_spark_submit
from tranrepl.spark.spark_submit import master_settings, spark_submit_binary
from tranrepl_airflow.job_connections import find_connection

SPARK_SUBMIT = "spark-submit"
CLIENT = "client"
"""The deploy mode of every job: the driver is a process beside its task."""
_KUBERNETES = "airflow.providers.cncf.kubernetes"


@dataclass(frozen=True, slots=True)
class SparkConnection:
    """What matters here of an Airflow connection of type `spark`."""

    master: str
    binary: str | None
    """`spark-binary` of the connection's extras."""
    namespace: str | None = None
    """`namespace` of the connection's extras, for Kubernetes."""

    def default_conf(self, *, continuous: bool = False) -> Mapping[str, str]:
        """Return settings for a job on this master, continuous or not, under those that the user gave.

        The driver runs here in any case (client mode). On a cluster the executors' Python is the cluster's.
        """
        settings = {
            "spark.pyspark.driver.python": sys.executable,
            **master_settings(self.master, continuous=continuous),
        }
        if self.master.startswith("local"):
            settings["spark.pyspark.python"] = sys.executable
        if self.namespace and self.master.startswith("k8s"):
            settings["spark.kubernetes.namespace"] = self.namespace
        return settings

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

    Raises ConfigurationError where it is missing (the provider would submit to YARN without a word), in cluster mode,
    and on Kubernetes without the provider that the Spark provider needs there.
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
    mode = deploy_mode or extra.get("deploy-mode") or CLIENT
    if mode != CLIENT:
        raise ConfigurationError(
            f"Spark connection {connection_id} means {master} in {mode} mode: passwords would be passed on the command "
            "line, and a job reads its request and writes its result beside its task",
            remedy="remove the extra deploy-mode: jobs run in client mode, on local[n], spark://, k8s:// and yarn",
        )
    if "k8s" in master and not _is_installed(_KUBERNETES):
        raise ConfigurationError(
            f"Spark connection {connection_id} means {master}, for which Airflow's Spark provider needs another "
            "provider: apache-airflow-providers-cncf-kubernetes",
            remedy="pip install apache-airflow-providers-cncf-kubernetes (the extra tranrepl[kubernetes])",
        )
    return SparkConnection(master, extra.get("spark-binary"), extra.get("namespace"))


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _master(connection: Connection) -> str:
    """Return the master as the provider builds it (source: `SparkSubmitHook._resolve_connection`)."""
    host = connection.host or ""
    is_master = connection.conn_type == "spark" and host and ("://" in host or not connection.port)
    address = host if is_master else f"{connection.conn_type}://{host}"
    return f"{address}:{connection.port}" if connection.port else address
