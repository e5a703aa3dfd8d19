"""Start a Spark job from a shell: `spark-submit` as a process of its own, the result by a file."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tranrepl.errors import InternalError
from tranrepl.jobs.requests import (
    DistributionRequest,
    LogReaderRequest,
    SnapshotRequest,
    StoreCheckRequest,
    ValidationRequest,
)
from tranrepl.jobs.results import JobResult
from tranrepl.spark.home import require_spark_submit
from tranrepl.spark.java import require_java
from tranrepl.spark.output import is_chatter, submission_variables
from tranrepl.spark.submission import LOCAL_MASTER_SETTINGS, entry_point, spark_submit_binary, write_private

Request = LogReaderRequest | DistributionRequest | SnapshotRequest | ValidationRequest | StoreCheckRequest

_LAST_LINES = 30


def submit(request: Request, master: str) -> JobResult:
    """Run the job and wait. Connections are read from this process's environment, which the job inherits.

    Raises ConfigurationError without Java or Spark, InternalError where the job ended without a result.
    """
    require_java()
    require_spark_submit()
    with tempfile.TemporaryDirectory(prefix="tranrepl-") as folder:
        request_path, result_path = Path(folder, "request.json"), Path(folder, "result.json")
        write_private(request_path, request.model_dump_json())
        process = subprocess.run(
            [*_command(request, master), "--request", str(request_path), "--result", str(result_path)],
            env={
                **os.environ,
                **submission_variables(),
                "PYSPARK_PYTHON": sys.executable,
                "PYSPARK_DRIVER_PYTHON": sys.executable,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if not result_path.exists():
            lines = process.stdout.decode(errors="replace").splitlines()
            tail = [line for line in lines if not is_chatter(line)][-_LAST_LINES:]
            raise InternalError(
                f"the {request.job} job ended with status {process.returncode} and without a result",
                remedy="its last output:\n" + "\n".join(tail),
            )
        return JobResult.model_validate_json(result_path.read_text(encoding="utf-8"))


def _command(request: Request, master: str) -> list[str]:
    settings = LOCAL_MASTER_SETTINGS if master.startswith("local") else {}
    configuration = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    return [
        spark_submit_binary(),
        "--master",
        master,
        "--name",
        f"tranrepl-{request.publication.publication}-{request.job}",
        *configuration,
        str(entry_point(request.job)),
    ]
