"""Jobs in child processes that can be killed: the real ones, without a JVM, which would take ten seconds to start."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from multiprocessing import forkserver
from multiprocessing.connection import Connection as Pipe
from types import TracebackType
from typing import Any, Self, TypeVar

from support.continuous_reader import read_continuously
from support.in_process import deliver_stored, read_log_into_store
from support.processes import fields_of
from support.site import Site
from support.spark_here import SparkHere
from tranrepl import failpoint
from tranrepl.admin.cleanup import clean_up
from tranrepl.errors import ReplicationError
from tranrepl.jobs.results import JobResult
from tranrepl.log_reader.reading_past import read_log_past
from tranrepl.publisher.postgres import slot_messages
from tranrepl.snapshot import copying, opening, without_spark

Of = TypeVar("Of")
Job = Callable[[Site], JobResult]

LOG_READER: Job = read_log_into_store
DISTRIBUTION: Job = deliver_stored


def read_for(seconds: float) -> Job:
    """Return the job of a continuous log reader for so long."""
    return partial(read_continuously, seconds=seconds)


def _deliver(site: Site) -> JobResult:
    """Run the whole job, which divides what is stored at schema changes."""
    return site.deliver()


STORED_DISTRIBUTION: Job = _deliver


def distribution_to(subscription: str) -> Job:
    """Return the whole job of one of several subscriptions."""
    return partial(Site.deliver, subscription=subscription)


def _set_up(site: Site) -> JobResult:
    site.set_up()
    return JobResult()


SETUP: Job = _set_up


def _read_two_ranges(site: Site) -> JobResult:
    """Read the log in two batches, however short it is."""
    slot_messages._WORTH_TWO_SESSIONS = 0
    return read_log_into_store(site)


LOG_READER_OF_TWO_RANGES: Job = _read_two_ranges


def _clean_up(site: Site) -> JobResult:
    return JobResult(batches=clean_up(site.topology).batches)


CLEANUP: Job = _clean_up


def _take_snapshot(site: Site) -> JobResult:
    """Take one with ranges of eight pages, and indexes built after the load."""
    copying.SMALLEST_RANGE, copying.LARGEST_RANGE, opening.LARGE_BYTES = 65_536, 65_536, 0
    return site.take_snapshot()


SNAPSHOT: Job = _take_snapshot


def _take_snapshot_of_whole_tables(site: Site) -> JobResult:
    """Take one with a range a table, however much it grows, and indexes built after the load."""
    opening.LARGE_BYTES = 0
    return site.take_snapshot()


SNAPSHOT_OF_WHOLE_TABLES: Job = _take_snapshot_of_whole_tables


def _take_snapshot_of_key_ranges(site: Site) -> JobResult:
    """Take one that reads the log where it goes on with ranges of an earlier one, with ranges of two pages."""
    spark: Any = SparkHere()
    without_spark.InThisProcess.read_log_past = partial(read_log_past, spark, site.topology)
    copying.SMALLEST_RANGE, copying.LARGEST_RANGE, opening.LARGE_BYTES = 16_384, 16_384, 0
    return site.take_snapshot()


SNAPSHOT_OF_KEY_RANGES: Job = _take_snapshot_of_key_ranges

_PATIENCE_SECONDS = 300.0

_processes = multiprocessing.get_context("forkserver")

_IMPORTED = (
    *("conftest", "support.child_job", "tranrepl.log_reader.storing", "tranrepl.publisher.postgres.publisher"),
    *("tranrepl.subscriber.postgres.dialect", "numpy.ma", "pyarrow.acero"),
)
"""Also what jobs import where they first need it."""


@cache
def _start_forkserver() -> None:
    """Fork children from a process that has imported what takes a second to import."""
    _processes.set_forkserver_preload(list(_IMPORTED))
    before = os.environ.get("PYTHONPATH")
    # Python 3.11 forgets to tell it where to look.
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    forkserver.ensure_running()
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


class JobKilledError(Exception):
    """The process ended without a result."""


class ChildJob:
    """One run of a job of a site, or of something else that can be pickled. `stop_at`, in the form of
    `TRANREPL_FAILPOINT`, is where it kills itself.
    """

    def __init__(self, job: Callable[[Of], JobResult], site: Of, stop_at: str | None = None) -> None:
        _start_forkserver()
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

    def wait_until_it_stands_still(self) -> None:
        """Wait until a failpoint has stopped it."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while fields_of(int(self._process.pid or 0))[0] != "T":
            if time.monotonic() > deadline or not self.runs():
                raise TimeoutError("it never came to its failpoint")
            time.sleep(0.01)

    def stop(self) -> None:
        """Stop it where it is, until `go_on`; do nothing where it has ended."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

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
        """Wait for its end; return whether it was SIGKILL."""
        self._process.join(_PATIENCE_SECONDS)
        return self._process.exitcode == -signal.SIGKILL

    def _signal(self, what: signal.Signals) -> None:
        assert self._process.pid is not None
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, what)


def _run(job: Callable[[Of], JobResult], site: Of, stop_at: str | None, answers: Pipe) -> None:
    # A job makes few cycles, and need not look for them among all that is imported.
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)
    if stop_at is not None:
        os.environ[failpoint.VARIABLE] = stop_at
    try:
        result = job(site)
    except ReplicationError as error:
        result = JobResult(error=error.report)
    answers.send(result.model_dump_json())
