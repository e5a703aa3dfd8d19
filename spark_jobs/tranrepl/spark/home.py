"""The Spark that jobs are started with."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from tranrepl.errors import ConfigurationError
from tranrepl.spark.submission import spark_submit_binary

_INSTALL = (
    f"install pyspark beside tranrepl ({sys.executable} -m pip install 'pyspark>=4.3'), or put the bin folder of "
)
_REMEDY = f"{_INSTALL}a Spark 4 on PATH"


def require_spark_submit(binary: str | None = None, environment: Mapping[str, str] = os.environ) -> None:
    """Raise ConfigurationError where spark-submit (this one, else the one that is found) cannot be started, or
    SPARK_HOME leads it to where no Spark is."""
    wanted = binary or spark_submit_binary()
    path = environment.get("PATH", os.defpath)
    if shutil.which(wanted, path=path) is None:
        found = shutil.which(wanted, mode=os.F_OK, path=path)
        if found is None:
            where = (
                f"{wanted} is not there"
                if "/" in wanted
                else f"{wanted} is neither on PATH nor beside {sys.executable}"
            )
            raise ConfigurationError(f"Spark jobs are started with spark-submit: {where}", remedy=_REMEDY)
        raise ConfigurationError(
            f"Spark jobs are started with spark-submit: {found} cannot be executed", remedy=f"chmod a+rx {found}"
        )
    home = environment.get("SPARK_HOME")
    if home and not os.access(Path(home, "bin", "spark-class"), os.X_OK):
        raise ConfigurationError(
            f"SPARK_HOME={home}: there is no Spark ({home}/bin/spark-class is missing, or cannot be executed)",
            remedy="unset SPARK_HOME, and the Spark beside spark-submit is taken; or set it to a Spark 4",
        )
