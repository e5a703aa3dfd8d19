"""The frame of several Spark jobs in one application: each as it is told, until nobody tells any more."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Discriminator, TypeAdapter

from tranrepl.connections import Connection
from tranrepl.jobs.requests import DistributionRequest, LogReaderRequest, SnapshotRequest
from tranrepl.jobs.results import JobResult
from tranrepl.spark.entry_point import Run, log_to_stderr, started, with_its_error
from tranrepl.spark.submission import write_private

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Request = LogReaderRequest | SnapshotRequest | DistributionRequest
_REQUEST: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Discriminator("job")])
Jobs = Mapping[type[Request], Callable[[], Run[Any]]]
"""What imports each job, by its request."""


def main(jobs: Jobs, arguments: Sequence[str] | None = None) -> int:
    """Run the jobs that the pipe names, a folder a line, each with a request in it, and write each result there. Exit
    status 0."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--jobs", type=Path, required=True, help="the named pipe")
    options = parser.parse_args(arguments)
    log_to_stderr()
    application = _Application(jobs)
    try:
        for folder in _lines(options.jobs):
            application.run(Path(folder))
    finally:
        application.stop()
    return 0


def _lines(pipe: Path) -> Iterator[str]:
    """Yield lines until the pipe has no writer. One that is gone already is not waited for."""
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, encoding="utf-8") as told:
        for line in told:
            yield line.rstrip("\n")


@dataclass(slots=True)
class _Application:
    jobs: Jobs
    spark: SparkSession | None = field(default=None)

    def run(self, folder: Path) -> None:
        request = _REQUEST.validate_json((folder / "request.json").read_text(encoding="utf-8"))
        result = with_its_error(request.connection_ids(), lambda connections: self._result(request, connections))
        # It is there when it is whole.
        write_private(folder / "written.json", result.model_dump_json())
        (folder / "written.json").rename(folder / "result.json")

    def _result(self, request: Request, connections: Mapping[str, Connection]) -> JobResult:
        job = self.jobs[type(request)]
        if self.spark is None:
            self.spark, run = started(f"tranrepl run {request.publication.publication}", job)
        else:
            run = job()
        # What a job sets in its session is nothing to the next one.
        return run(self.spark.newSession(), request, connections)

    def stop(self) -> None:
        if self.spark is not None:
            self.spark.stop()
