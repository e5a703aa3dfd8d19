"""For submitting a Spark job: the script, the binary, the settings that a master needs."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from tranrepl.errors import InternalError, ReplicationError, TransientError

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
"""Added for a `local` master."""
# A JVM that mostly waits: Java's own begins with a 64th of the machine's memory, and keeps what one backlog has taken;
# it wakes up twenty times a second to count, for somebody who may watch.
_CONTINUOUS_JAVA_OPTIONS = "-XX:-UsePerfData -Xms64m -Xmn24m -XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=30"
CONTINUOUS_LOCAL_MASTER_SETTINGS = {
    **LOCAL_MASTER_SETTINGS,
    "spark.driver.extraJavaOptions": f"{_JAVA_OPTIONS} {_CONTINUOUS_JAVA_OPTIONS}",
    # The executor is the driver itself, and is taken for lost after two minutes without one.
    "spark.executor.heartbeatInterval": "30s",
}
"""The same, of a continuous job."""
_ENCRYPTED = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
"""Tasks carry passwords and rows over a network of many users. Spark makes the secret itself on Kubernetes."""


def master_settings(master: str, *, continuous: bool = False) -> Mapping[str, str]:
    """Return the settings that a job needs on a master."""
    if master.startswith("local"):
        return CONTINUOUS_LOCAL_MASTER_SETTINGS if continuous else LOCAL_MASTER_SETTINGS
    return _ENCRYPTED if master.startswith("k8s://") else {}


SHUTDOWN = "shutdown"
"""The line that asks the jobs of an application to shut down."""

_LOST_WORKER = re.compile(
    r"Python worker exited unexpectedly|Python worker failed to connect back|Python daemon failed to launch worker|"
    r"reading the port number from \S+ stdout|ExecutorLostFailure|"
    # What breaks while Spark begins to talk to it, by the first of Spark's own frames.
    r"java\.(?:io|net)\.\w+Exception[^\n]*"
    r"(?:\n\s+at (?!org\.apache\.spark\.)[^\n]*)*\n\s+at org\.apache\.spark\.api\.python\."
)
_SAID_WHY = "Error from python worker:"
"""Before what a Python process wrote that ended by itself."""


def failed_job(text: str, job: str, worker: str, left: str) -> ReplicationError:
    """Return the error of a Spark action, by what Spark says of it. Where a Python process of an executor, or the
    executor, was killed, also as it began: `worker` says which one that was, and `left` what becomes of its work."""
    if _LOST_WORKER.search(text) is not None and _SAID_WHY not in text:
        return TransientError(
            f"the Python worker {worker} was killed; {left}",
            remedy="run again; where it happens again, give the executors more memory",
        )
    return InternalError(f"{job} failed: {text.strip()[:2000]}")


_FOLDER = "tranrepl-private-"
_MAKING_SECONDS = 60.0
"""Between a folder's making and its lock; a killed process's may be there for longer."""


@contextmanager
def private_folder() -> Iterator[Path]:
    """Make a folder that only its owner can read, and remove it at the end. Those that killed processes have left go
    first: each is locked while its process lives, wherever that runs."""
    _remove_left_behind(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=_FOLDER) as name, _opened(Path(name)) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield Path(name)


def _remove_left_behind(where: Path) -> None:
    for folder in where.glob(f"{_FOLDER}*"):
        # Another process may be at it too, or it is nothing of ours: a link, a file, somebody else's.
        with suppress(OSError), _opened(folder) as descriptor:
            found = os.fstat(descriptor)
            if found.st_uid == os.getuid() and time.time() - found.st_mtime > _MAKING_SECONDS:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read."""
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(text, encoding="utf-8")


EntryPoint = Literal["log_reader", "distribution", "snapshot", "validation", "run"]


def entry_point(job: EntryPoint) -> Path:
    """Return the script that `spark-submit` runs: beside the package in a checkout, inside it in an installed wheel."""
    package = Path(__file__).parents[1]
    candidates = (package.parent / f"{job}.py", package / "spark_jobs" / f"{job}.py")
    return next(path for path in candidates if path.is_file())


def spark_submit_binary() -> str:
    """Return the spark-submit beside this Python, where pyspark is installed there; else whatever PATH has."""
    beside_python = Path(sys.executable).with_name("spark-submit")
    return str(beside_python) if beside_python.exists() else "spark-submit"
