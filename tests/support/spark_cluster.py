"""A Spark standalone cluster on loopback: one master and two workers of one core each, with pyspark's own files."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

from support.processes import dying_with_owner
from tranrepl.spark.class_archive import start_variables

WORKERS = 2
_PATIENCE_SECONDS = 300.0
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(r"Registering worker ")


def short_lived() -> str:
    """Return options of a JVM that lives for one test."""
    # Without the options of this process, which keep Spark from saying what is waited for here.
    others = {name: value for name, value in os.environ.items() if name != "SPARK_SUBMIT_OPTS"}
    return f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 {start_variables(others).get('SPARK_SUBMIT_OPTS', '')}".rstrip()


@contextmanager
def spark_cluster(folder: Path, worker_environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the master's URL. `worker_environment` is what an operator of the cluster gives its workers."""
    folder.mkdir()
    package = find_spec("pyspark")
    assert package is not None
    assert package.origin is not None
    spark_class = str(Path(package.origin).parent / "bin" / "spark-class")
    environment = {
        # An operator's machine knows nothing of who submits.
        **{name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "TRANREPL", "SPARK_"))},
        "SPARK_HOME": str(Path(package.origin).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_JAVA_OPTS": short_lived(),
        **worker_environment,
    }
    with ExitStack() as stack:
        master, log = "org.apache.spark.deploy.master.Master", folder / "master.log"
        stack.enter_context(
            _process([spark_class, master, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"], environment, log)
        )
        url = _said(log, _MASTER, 1)[0]
        for number in range(WORKERS):
            options = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g"]
            work = ["--work-dir", str(folder / f"worker{number}")]
            worker = [spark_class, "org.apache.spark.deploy.worker.Worker", *options, *work, url]
            stack.enter_context(_process(worker, environment, folder / f"worker{number}.log"))
        _said(log, _REGISTERED, WORKERS)
        yield url


@contextmanager
def _process(command: list[str], environment: Mapping[str, str], log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            dying_with_owner(command, signal.SIGTERM),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(_PATIENCE_SECONDS)


def _said(log: Path, what: re.Pattern[str], times: int) -> list[str]:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while len(found := what.findall(log.read_text(encoding="utf-8", errors="replace"))) < times:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{log} never says {what.pattern}: {log.read_text(encoding='utf-8')[-2000:]}")
        time.sleep(0.1)
    return found
