"""Start a Spark job from a shell: `spark-submit` as a process of its own, the result by a file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from tranrepl.errors import InternalError, ReplicationError, TransientError
from tranrepl.jobs.requests import (
    DistributionRequest,
    LogReaderRequest,
    SnapshotRequest,
    ValidationRequest,
)
from tranrepl.jobs.results import JobResult
from tranrepl.spark.installation import require_java, require_spark_submit
from tranrepl.spark.output import is_chatter, submission_variables
from tranrepl.spark.spark_submit import (
    entry_point,
    master_settings,
    private_folder,
    spark_submit_binary,
    write_private,
)

Request = LogReaderRequest | DistributionRequest | SnapshotRequest | ValidationRequest

_LAST_LINES = 30
_KILLED = frozenset(status for it in (signal.SIGKILL, signal.SIGTERM) for status in (-it, 128 + it))
"""How a process ends that is killed, as where memory is short: itself, and as its parent tells it on."""


def submit(request: Request, master: str) -> JobResult:
    """Run the job and wait. Connections are read from this process's environment, which the job inherits.

    Raises ConfigurationError without Java or Spark, TransientError where the job was killed, InternalError where it
    ended without a result otherwise.
    """
    require_spark()
    with private_folder() as folder:
        request_path, result_path = folder / "request.json", folder / "result.json"
        write_private(request_path, request.model_dump_json())
        name = f"tranrepl-{request.publication.publication}-{request.job}"
        process = subprocess.run(
            [
                *command(name, master, entry_point(request.job)),
                "--request",
                str(request_path),
                "--result",
                str(result_path),
            ],
            env=job_environment(master),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if not result_path.exists():
            raise ended_without_result(request, process.returncode, process.stdout)
        return JobResult.model_validate_json(result_path.read_text(encoding="utf-8"))


def require_spark() -> None:
    """Raise ConfigurationError without Java or Spark."""
    require_java()
    require_spark_submit()


def command(name: str, master: str, script: Path, settings: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """Return the command that runs a script, as an application of this name with Spark's settings, without the script's
    own arguments."""
    given = {**master_settings(master), **settings}
    configuration = [part for setting, value in given.items() for part in ("--conf", f"{setting}={value}")]
    # Without the mode, whatever spark-defaults.conf says would count.
    where = ("--master", master, "--deploy-mode", "client")
    return [spark_submit_binary(), *where, "--name", name, *configuration, str(script)]


def job_environment(master: str) -> dict[str, str]:
    """Return the environment of the command: this process's, connections among it, and where Python is. On Kubernetes
    and YARN the executors' Python is that of their image or archive."""
    python = {"PYSPARK_DRIVER_PYTHON": sys.executable}
    if master.startswith(("local", "spark://")):
        python["PYSPARK_PYTHON"] = sys.executable
    return {**os.environ, **submission_variables(), **python}


def ended_without_result(request: Request, status: int, output: bytes) -> ReplicationError:
    """Return the error of a job whose process ended with a status, and wrote no result: a TransientError where it was
    killed."""
    lines = output.decode(errors="replace").splitlines()
    tail = [line for line in lines if not is_chatter(line)][-_LAST_LINES:]
    if status in _KILLED:
        return TransientError(
            f"the {request.job} job was killed (status {status}), and ended without a result",
            remedy="run again; where it happens again, give the machine more memory. Its last output:\n"
            + "\n".join(tail),
        )
    return InternalError(
        f"the {request.job} job ended with status {status} and without a result",
        remedy="its last output:\n" + "\n".join(tail),
    )
