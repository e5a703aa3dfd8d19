"""One Spark application for several jobs of a run, one after another: Spark starts once.

The driver is told each job by a line in a named pipe, which ends with whoever submits: no driver is left behind. The
result is a file, as with a job by itself.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from tranrepl.jobs.results import JobResult
from tranrepl.spark.submission import entry_point, write_private
from tranrepl.spark.submit import Request, command, ended_without_result, job_environment, require_spark

_LOOKED_EVERY_SECONDS = 0.02


class SparkApplication:
    """Started with its first job; started again where it has ended before a job."""

    def __init__(self, publication: str, master: str) -> None:
        self._name = f"tranrepl-{publication}-run"
        self._master = master
        self._driver: _Driver | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._driver is not None:
            if kind is not None:
                self._driver.kill()
            self._driver.close()

    def submit(self, request: Request) -> JobResult:
        """Run the job and wait. Connections are read from this process's environment, which the driver inherits.

        Raises ConfigurationError without Java or Spark, InternalError where the driver ended without a result.
        """
        if self._driver is not None and not self._driver.runs():
            self._driver.close()
            self._driver = None
        if self._driver is None:
            require_spark()
            self._driver = _Driver(self._name, self._master)
        return self._driver.run(request)


class _Driver:
    """The process of `spark-submit`, in a private folder."""

    def __init__(self, name: str, master: str) -> None:
        with ExitStack() as opened:
            self._folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="tranrepl-")))
            pipe = self._folder / "jobs"
            os.mkfifo(pipe, mode=0o600)
            write_private(self._output, "")
            # Open for both: for one, it would wait for the driver, which may never come that far.
            self._jobs = os.open(pipe, os.O_RDWR)
            with self._output.open("wb") as output:
                self._process = subprocess.Popen(
                    [*command(name, master, entry_point("run")), "--jobs", str(pipe)],
                    env=job_environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            self._opened = opened.pop_all()
        self._submitted = 0

    @property
    def _output(self) -> Path:
        return self._folder / "output"

    def runs(self) -> bool:
        return self._process.poll() is None

    def run(self, request: Request) -> JobResult:
        self._submitted += 1
        folder, said = self._folder / str(self._submitted), self._output.stat().st_size
        folder.mkdir(mode=0o700)
        write_private(folder / "request.json", request.model_dump_json())
        os.write(self._jobs, f"{folder}\n".encode())
        result = folder / "result.json"
        ended = False
        while not result.exists():
            if ended:
                raise ended_without_result(request, self._process.returncode, self._output.read_bytes()[said:])
            # What it wrote before it ended is looked for once more.
            ended = not self.runs()
            time.sleep(_LOOKED_EVERY_SECONDS)
        return JobResult.model_validate_json(result.read_text(encoding="utf-8"))

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        """Let the driver end, which is told no more jobs, and wait for it."""
        with self._opened:
            os.close(self._jobs)
            self._process.wait()
