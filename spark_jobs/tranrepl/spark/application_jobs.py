"""The frame of several Spark jobs in one application: each in a thread of its own, as a pipe names it.

The process that writes to the pipe decides whether they run side by side or in turn. All of them are asked to shut down
by a line, and by the end of that process: continuous jobs do not outlive it.
"""

from __future__ import annotations

import argparse
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Discriminator, TypeAdapter

from tranrepl.connections import Connection
from tranrepl.garbage_collection import look_seldom
from tranrepl.jobs.requests import DistributionRequest, LogReaderRequest, SnapshotRequest
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.shutdown import heeding_shutdown
from tranrepl.spark.entry_point import Run, log_to_stderr, started, with_its_error
from tranrepl.spark.spark_submit import SHUTDOWN, write_private

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Request = LogReaderRequest | SnapshotRequest | DistributionRequest
_REQUEST: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Discriminator("job")])
Jobs = Mapping[type[Request], Callable[[], Run[Any]]]
"""What imports each job, by its request."""
_MOST_AT_ONCE = 256


def main(jobs: Jobs, arguments: Sequence[str] | None = None) -> int:
    """Run the jobs that the pipe names, a folder a line, each with a request in it, and write each result there. Exit
    status 0."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--jobs", type=Path, required=True, help="the named pipe")
    options = parser.parse_args(arguments)
    log_to_stderr()
    look_seldom()
    application = _Application(jobs)
    try:
        with heeding_shutdown() as shutdown, ThreadPoolExecutor(_MOST_AT_ONCE, "tranrepl-job") as threads:
            for line in _lines(options.jobs):
                if line == SHUTDOWN:
                    shutdown.ask()
                else:
                    threads.submit(application.run, Path(line)).add_done_callback(_end_where_it_has_no_result)
            shutdown.ask()
    finally:
        application.stop()
    return 0


def _end_where_it_has_no_result(job: Future[None]) -> None:
    """End this process where a job could not leave its result: what submitted it would wait for ever."""
    error = job.exception()
    if error is not None:
        traceback.print_exception(error)
        os._exit(1)


def _lines(pipe: Path) -> Iterator[str]:
    """Yield lines until the pipe has no writer. One that is gone already is not waited for."""
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, encoding="utf-8") as lines:
        for line in lines:
            yield line.rstrip("\n")


@dataclass(slots=True)
class _Application:
    jobs: Jobs
    spark: SparkSession | None = field(default=None)
    _starting: Lock = field(default_factory=Lock)

    def run(self, folder: Path) -> None:
        request = _REQUEST.validate_json((folder / "request.json").read_text(encoding="utf-8"))
        result = with_its_error(request.connection_ids(), lambda connections: self._result(request, connections))
        # It is there when it is whole.
        write_private(folder / "written.json", result.model_dump_json())
        (folder / "written.json").rename(folder / "result.json")

    def _result(self, request: Request, connections: Mapping[str, Connection]) -> JobResult:
        run, spark = self._started(request)
        agent = _agent(request)
        # Threads of Python are pinned to threads of the JVM, whose properties these are.
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", agent)
        spark.sparkContext.setLocalProperty("spark.job.description", agent)
        # What a job sets in its session is nothing to the next one.
        return run(spark.newSession(), request, connections)

    def _started(self, request: Request) -> tuple[Run[Any], SparkSession]:
        job = self.jobs[type(request)]
        with self._starting:
            if self.spark is None:
                self.spark, run = started(f"tranrepl run {request.publication.publication}", job)
                return run, self.spark
        return job(), self.spark

    def stop(self) -> None:
        if self.spark is not None:
            self.spark.stop()


def _agent(request: Request) -> str:
    """Return the name of whom the job is of, as Spark shows it."""
    return request.job if isinstance(request, LogReaderRequest) else f"{request.job} {request.subscription}"
