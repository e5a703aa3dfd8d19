"""What whoever submits a Spark job needs: the script, the binary, the settings of a local master."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

# One stream of short-lived objects: the parallel collectors only take time from the Python side. So does the optimising
# compiler, which is done when the job is.
_JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
LOCAL_MASTER_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A local master has no workers to talk to, and nothing of ours listens anywhere else.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
}
"""What whoever submits a job adds for a `local` master."""
# A JVM that mostly waits: Java's own begins with a 64th of the machine's memory, and keeps what one backlog has taken;
# it wakes up twenty times a second to count, for whoever may watch.
_STAYING_JAVA_OPTIONS = "-XX:-UsePerfData -Xms64m -Xmn24m -XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=30"
STAYING_LOCAL_MASTER_SETTINGS = {
    **LOCAL_MASTER_SETTINGS,
    "spark.driver.extraJavaOptions": f"{_JAVA_OPTIONS} {_STAYING_JAVA_OPTIONS}",
    # The executor is the driver itself, and is taken for lost after two minutes without one.
    "spark.executor.heartbeatInterval": "30s",
}
"""The same, of a job that stays up."""


STOP = "stop"
"""The line that asks the jobs of an application to stop."""

LOST_WORKER = "Python worker exited unexpectedly"
"""Spark's words for a Python process of an executor that was killed."""


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read."""
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(text, encoding="utf-8")


EntryPoint = Literal["log_reader", "distribution", "snapshot", "validation", "store_check", "run"]


def entry_point(job: EntryPoint) -> Path:
    """Return the script that `spark-submit` runs: beside the package in a checkout, inside it in an installed wheel."""
    package = Path(__file__).parents[1]
    candidates = (package.parent / f"{job}.py", package / "spark_jobs" / f"{job}.py")
    return next(path for path in candidates if path.is_file())


def spark_submit_binary() -> str:
    """Return the spark-submit beside this Python, where pyspark is installed there; else whatever PATH has."""
    beside_python = Path(sys.executable).with_name("spark-submit")
    return str(beside_python) if beside_python.exists() else "spark-submit"
