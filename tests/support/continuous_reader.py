"""A continuous log reader, in a thread of the test's process or in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import Any

from support.observed import distribution_rows
from support.site import Site
from support.spark_here import SparkHere
from tranrepl.errors import ReplicationError
from tranrepl.jobs.requests import LogReaderRequest
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.shutdown import ShutdownRequest, heeding_shutdown
from tranrepl.log_reader import job as log_reader_job

_PATIENCE_SECONDS = 60.0
_STREAMS = "SELECT count(*) FROM pg_stat_replication WHERE application_name = 'tranrepl log reader'"
DUMPS = "FROM information_schema.processlist WHERE command = 'Binlog Dump' AND db = DATABASE()"
"""MariaDB's and MySQL's sessions that are sent the log."""


def read_continuously(site: Site, seconds: float) -> JobResult:
    """Run the log reader's job for so long."""
    spark: Any = site.spark or SparkHere()
    until = datetime.now(UTC) + timedelta(seconds=seconds)
    request = LogReaderRequest(publication=site.publication, continuous_until=until)
    return log_reader_job.run(spark, request, site.connections)


@dataclass(slots=True)
class ContinuousReader:
    site: Site
    asked: ShutdownRequest
    seconds: float
    _results: list[JobResult] = field(default_factory=list)
    _error: BaseException | None = None
    _thread: Thread | None = None

    def start(self) -> None:
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            self._results.append(read_continuously(self.site, self.seconds))
        except ReplicationError as error:
            self._results.append(JobResult(error=error.report))
        except BaseException as error:
            self._error = error
            raise

    def runs(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def wait_until_it_follows(self) -> None:
        wait_for(lambda: follows(self.site) or not self.runs())
        assert self.runs(), self._results

    def stop(self) -> JobResult:
        """Ask it to stop; return its result."""
        self.asked.ask()
        return self.result()

    def result(self) -> JobResult:
        """Wait for its end."""
        assert self._thread is not None
        self._thread.join(_PATIENCE_SECONDS)
        assert not self.runs()
        if self._error is not None:
            raise self._error
        return self._results[0]


@contextmanager
def continuous_reader(site: Site, seconds: float = 3600.0) -> Iterator[ContinuousReader]:
    """Start one that follows the log, and stop it at the end."""
    with heeding_shutdown() as asked:
        reader = ContinuousReader(site, asked, seconds)
        reader.start()
        try:
            reader.wait_until_it_follows()
            yield reader
        finally:
            reader.stop()


def follows(site: Site) -> bool:
    """Return whether a session follows the log."""
    at_postgres = site.databases.publisher.kind == "postgres"
    return site.at_publisher(_STREAMS if at_postgres else f"SELECT count(*) {DUMPS}") != [(0,)]


def wait_for(condition: Callable[[], bool], seconds: float = _PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def registered_commands(site: Site) -> int:
    """Return how many commands are registered."""
    ((count,),) = distribution_rows(site, "SELECT coalesce(sum(commands), 0)::bigint FROM msrepl_batches")
    return int(count)
