"""The Spark that `spark-submit` starts: whether it is there, and of the version of the pyspark that jobs import."""

from __future__ import annotations

import os
import re
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tranrepl.errors import ConfigurationError
from tranrepl.spark.home import require_spark_submit
from tranrepl.spark.submission import spark_submit_binary

_HADOOP = re.compile(r"hadoop-client-api-(.*)\.jar")
_CORE = re.compile(r"spark-core_[\d.]+-(\d+\.\d+)\..*jar")


def require_fitting_spark() -> None:
    """Raise ConfigurationError where there is no spark-submit, or where it starts a Spark of another version than
    pyspark's, as a SPARK_HOME of an older installation makes it do."""
    require_spark_submit()
    binary, told = shutil.which(spark_submit_binary()), os.environ.get("SPARK_HOME")
    installed = _pyspark_version()
    if installed is None:
        raise ConfigurationError(
            "pyspark is not installed in the environment of tranrepl",
            remedy=f"{sys.executable} -m pip install 'pyspark>=4.3'",
        )
    home = Path(told) if told else _home_of(Path(str(binary)))
    found = _spark_version(home)
    if found is not None and found != ".".join(installed.split(".")[:2]):
        raise ConfigurationError(
            f"spark-submit starts Spark {found} ({home}), and pyspark here is {installed}",
            remedy=f"{'unset SPARK_HOME' if told else 'take that folder from PATH'}, or install a Spark {installed}",
        )


def hadoop_version() -> str | None:
    """Return the version of Hadoop that this Spark has, which jars for other file systems must have too."""
    binary = shutil.which(spark_submit_binary())
    if binary is None:
        return None
    home = Path(os.environ.get("SPARK_HOME") or _home_of(Path(binary)))
    jars = (_HADOOP.fullmatch(it.name) for it in sorted(home.glob("jars/hadoop-client-api-*")))
    return next((it[1] for it in jars if it is not None), None)


def _home_of(binary: Path) -> Path:
    """Return Spark's home for pip's spark-submit, which is beside Python, or for the one in a Spark's own bin
    folder."""
    home = binary.resolve().parent.parent
    packages = sorted(home.glob("lib/python3*/site-packages/pyspark"))
    return packages[-1] if packages and not (home / "jars").is_dir() else home


def _spark_version(home: Path) -> str | None:
    """Return Spark's major and minor version by its jars: asking Spark itself takes a JVM's start."""
    names = (_CORE.fullmatch(it.name) for it in home.glob("jars/spark-core_*"))
    return next((it[1] for it in names if it is not None), None)


def _pyspark_version() -> str | None:
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return None
