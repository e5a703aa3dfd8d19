"""Jobs in child processes that can be killed: the real ones, without a JVM, which would take ten seconds to start."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from types import TracebackType
from typing import Self

from sandbox.in_process import deliver_stored, read_log_into_store
from sandbox.site import Site
from tranrepl import failpoint
from tranrepl.errors import ReplicationError
from tranrepl.jobs import JobResult

Job = Callable[[Site], JobResult]

LOG_READER: Job = read_log_into_store
DISTRIBUTION: Job = deliver_stored

_PATIENCE_SECONDS = 60.0

# Children are forked from a process that has imported what takes a second to import.
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(
    ["pytest", "tranrepl.check", "tranrepl.setup", "tranrepl.distribution.job", "tranrepl.log_reader.storing"]
)


class JobKilledError(Exception):
    """The process ended without a result."""


class ChildJob:
    """One run of a job. `stop_at`, as `TRANREPL_FAILPOINT` has it, is where it kills itself."""

    def __init__(self, job: Job, site: Site, stop_at: str | None = None) -> None:
        self._result, answers = _processes.Pipe(duplex=False)
        self._process = _processes.Process(target=_run, args=(job, site, stop_at, answers), daemon=True)
        self._process.start()
        answers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def runs(self) -> bool:
        return self._process.is_alive()

    def stop(self) -> None:
        """As it stands, until `go_on`."""
        os.kill(self._pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self._pid, signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.join(_PATIENCE_SECONDS)

    def result(self) -> JobResult:
        """Wait for its end. Raises JobKilledError where there is no result."""
        try:
            if not self._result.poll(_PATIENCE_SECONDS):
                raise TimeoutError(f"no result within {_PATIENCE_SECONDS} s")
            text = self._result.recv()
        except EOFError:
            self._process.join(_PATIENCE_SECONDS)
            raise JobKilledError(f"exit status {self._process.exitcode}") from None
        return JobResult.model_validate_json(text)

    def killed(self) -> bool:
        """Wait for its end. Whether it was SIGKILL."""
        self._process.join(_PATIENCE_SECONDS)
        return self._process.exitcode == -signal.SIGKILL

    @property
    def _pid(self) -> int:
        pid = self._process.pid
        assert pid is not None
        return pid


def _run(job: Job, site: Site, stop_at: str | None, answers: Pipe) -> None:
    if stop_at is not None:
        os.environ[failpoint.VARIABLE] = stop_at
    try:
        result = job(site)
    except ReplicationError as error:
        result = JobResult(error=error.to_report())
    answers.send(result.model_dump_json())
