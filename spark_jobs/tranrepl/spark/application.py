"""One Spark application for several jobs, in turn or side by side: Spark starts once.

The driver reads each job from a line in a named pipe, which ends with the process that submits: no driver is left. The
result is a file, as with a job by itself.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Event, Lock
from types import TracebackType
from typing import Self

from tranrepl.jobs.results import JobResult
from tranrepl.settings.publication import Publication
from tranrepl.spark.shell_submit import Request, command, ended_without_result, job_environment, require_spark
from tranrepl.spark.spark_submit import (
    SHUTDOWN,
    entry_point,
    master_settings,
    private_folder,
    write_private,
)

_SHORTEST_LOOK_SECONDS, _LONGEST_LOOK_SECONDS = 0.02, 1.0
"""How often a result is looked for: more seldom the longer the job has run, as for a continuous one looking often were
most of what it costs. For one that is asked to shut down, as often as in the beginning."""
_SIDE_BY_SIDE = {"spark.scheduler.mode": "FAIR"}
"""A lasting task keeps its core, and what is left of them goes round among the jobs."""


class SparkApplication:
    """Started with its first job; started again where it has ended before a job.

    `side_by_side`: jobs come from several threads and are continuous. The processes then are a group of their own,
    which an interrupt from the terminal does not reach: who submits asks the jobs to shut down.
    """

    def __init__(self, publication: str, master: str, *, side_by_side: bool = False) -> None:
        self._name = f"tranrepl-{publication}-run"
        self._master = master
        self._side_by_side = side_by_side
        self._drivers: list[_Driver] = []
        self._starting = Lock()
        self._asked_to_shut_down = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.kill()
        for driver in self._drivers:
            driver.close()

    def submit(self, request: Request) -> JobResult:
        """Run the job and wait. Connections are read from this process's environment, which the driver inherits.

        Raises ConfigurationError without Java or Spark, TransientError where the driver was killed, InternalError where
        it ended without a result otherwise.
        """
        return self._running().run(request)

    def _running(self) -> _Driver:
        with self._starting:
            if not self._drivers or not self._drivers[-1].runs():
                require_spark()
                settings = self._settings()
                self._drivers.append(_Driver(self._name, self._master, settings, own_group=self._side_by_side))
                if self._asked_to_shut_down:
                    self._drivers[-1].ask_to_shut_down()
            return self._drivers[-1]

    def _settings(self) -> Mapping[str, str]:
        if not self._side_by_side:
            return {}
        return {**master_settings(self._master, continuous=True), **_SIDE_BY_SIDE}

    def ask_to_shut_down(self) -> None:
        """Ask the jobs that run, and those that come, to shut down after what is at hand."""
        with self._starting:
            self._asked_to_shut_down = True
            for driver in self._drivers[-1:]:
                driver.ask_to_shut_down()

    def kill(self) -> None:
        """Kill the processes."""
        for driver in self._drivers[-1:]:
            driver.kill()


class _Driver:
    """The process of `spark-submit`, in a private folder."""

    def __init__(self, name: str, master: str, settings: Mapping[str, str], *, own_group: bool) -> None:
        with ExitStack() as opened:
            self._folder = opened.enter_context(private_folder())
            pipe = self._folder / "jobs"
            os.mkfifo(pipe, mode=0o600)
            write_private(self._output, "")
            # Open for both: for one, it would wait for the driver, which may never come that far.
            self._jobs = os.open(pipe, os.O_RDWR)
            self._own_group = own_group
            with self._output.open("wb") as output:
                self._process = subprocess.Popen(
                    [*command(name, master, entry_point("run"), settings), "--jobs", str(pipe)],
                    env=job_environment(master),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=own_group,
                )
            self._opened = opened.pop_all()
        self._numbers = itertools.count(1)
        self._asked_to_shut_down = Event()

    @property
    def _output(self) -> Path:
        return self._folder / "output"

    def runs(self) -> bool:
        return self._process.poll() is None

    def ask_to_shut_down(self) -> None:
        self._tell(SHUTDOWN)
        self._asked_to_shut_down.set()

    def _tell(self, line: str) -> None:
        os.write(self._jobs, f"{line}\n".encode())

    def run(self, request: Request) -> JobResult:
        folder, said = self._folder / str(next(self._numbers)), self._output.stat().st_size
        folder.mkdir(mode=0o700)
        write_private(folder / "request.json", request.model_dump_json())
        self._tell(str(folder))
        result = folder / "result.json"
        ended, began = False, time.monotonic()
        while not result.exists():
            if ended:
                raise ended_without_result(request, self._process.returncode, self._output.read_bytes()[said:])
            # What it wrote before it ended is looked for once more.
            ended = not self.runs()
            self._wait(time.monotonic() - began)
        return JobResult.model_validate_json(result.read_text(encoding="utf-8"))

    def _wait(self, lasted: float) -> None:
        if self._asked_to_shut_down.is_set():
            time.sleep(_SHORTEST_LOOK_SECONDS)
        else:
            self._asked_to_shut_down.wait(min(max(lasted / 50, _SHORTEST_LOOK_SECONDS), _LONGEST_LOOK_SECONDS))

    def kill(self) -> None:
        if self._own_group:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()

    def close(self) -> None:
        """Let the driver end, which gets no more jobs, and wait for it."""
        with self._opened:
            os.close(self._jobs)
            self._process.wait()


_LOCAL = re.compile(r"local(\[(?P<cores>\*|[0-9]+)\])?")


def with_cores_for_agents(master: str, publication: Publication) -> str:
    """Return the master, where it is a local one with cores enough for continuous agents: one for the log reader, one
    for each stream of a delivery, and one for what else there is to do. They are threads, which mostly wait."""
    local = _LOCAL.fullmatch(master)
    if local is None:
        return master
    asked = local["cores"] or "1"
    cores = (os.cpu_count() or 1) if asked == "*" else int(asked)
    needed = 2 + sum(it.subscription_streams for it in publication.subscriptions)
    return f"local[{max(cores, needed)}]"
