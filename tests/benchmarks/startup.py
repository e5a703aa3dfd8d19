"""What it costs to start Spark for a job: small runs as Airflow's tasks make them, beside empty `spark-submit` jobs."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.benchmark_site import BenchmarkSite
from benchmarks.workloads import insert_in_one_transaction
from support.databases import connection_environment
from tranrepl.distribution.without_spark import run_without_spark as distribution_without_spark
from tranrepl.jobs.requests import DistributionRequest, LogReaderRequest
from tranrepl.jobs.results import JobResult
from tranrepl.log_reader.without_spark import run_without_spark as log_reader_without_spark
from tranrepl.spark.shell_submit import submit

MASTER = "local[*]"
_EMPTY_JOB = Path(__file__).with_name("empty_job.py")


@dataclass(frozen=True, slots=True)
class SmallRun:
    """Both jobs over a few changes, from where a task starts to the commit. All in seconds."""

    changes: int
    log_reader: float
    distribution: float
    of_two_empty_jobs: float
    """How many times two empty `spark-submit` jobs it took."""

    @property
    def total(self) -> float:
        return self.log_reader + self.distribution


@dataclass(frozen=True, slots=True)
class StartUp:
    """Seconds from the start of a job's process to its first line, and on from its last. The probe before it is timed
    with each backlog."""

    empty_job: float
    log_reader: float
    distribution: float
    small_runs: Sequence[SmallRun]


def measure_startup(ends: BenchmarkSite, sizes: Sequence[int], rounds: int) -> StartUp:
    """Measure Spark's start and small runs of `sizes` changes; the last is large enough for both jobs to start."""
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1"} | connection_environment(ends.site.connections.values())
    empty = statistics.median(_empty_job() for _ in range(rounds))
    runs = {changes: [_run(ends, changes) for _ in range(rounds)] for changes in sizes}
    small = [
        SmallRun(
            changes,
            statistics.median(log_reader.seconds for log_reader, _ in timed),
            statistics.median(distribution.seconds for _, distribution in timed),
            statistics.median(log_reader.seconds + distribution.seconds for log_reader, distribution in timed)
            / (2 * empty),
        )
        for changes, timed in runs.items()
    ]
    log_readers, distributions = zip(*runs[sizes[-1]], strict=True)
    return StartUp(
        empty,
        statistics.median(it.startup_seconds for it in log_readers),
        statistics.median(it.startup_seconds for it in distributions),
        small,
    )


def _empty_job() -> float:
    started = time.perf_counter()
    spark_submit = Path(sys.executable).with_name("spark-submit")
    # Whatever python3 PATH has may know nothing of pyspark.
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    command = [str(spark_submit), "--master", MASTER, str(_EMPTY_JOB)]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return time.perf_counter() - started


@dataclass(frozen=True, slots=True)
class _Task:
    """A task as Airflow runs it: a probe, and a job where there is something to do."""

    probe_seconds: float
    job_seconds: float
    result: JobResult

    @property
    def seconds(self) -> float:
        return self.probe_seconds + self.job_seconds

    @property
    def startup_seconds(self) -> float:
        """Return what the job's process took to start, where there was one."""
        return self.job_seconds - self.result.seconds


def _task(look: Callable[[], JobResult | None], job: Callable[[], JobResult]) -> _Task:
    """Run the probe and the job. Raises what stopped it."""
    started = time.perf_counter()
    idle = look()
    looked = time.perf_counter()
    result = idle or job()
    ended = time.perf_counter()
    result.raise_error()
    return _Task(looked - started, ended - looked, result)


def _run(ends: BenchmarkSite, changes: int) -> tuple[_Task, _Task]:
    """Return the tasks of the log reader and of the delivery."""
    if changes:
        insert_in_one_transaction(changes, ends.publisher)
    topology, publication = ends.site.topology, ends.site.publication
    reading = LogReaderRequest(publication=publication)
    delivering = DistributionRequest(publication=publication, subscription=publication.subscriptions[0].name)
    read = _task(partial(log_reader_without_spark, reading, topology), partial(submit, reading, MASTER))
    delivered = _task(partial(distribution_without_spark, delivering, topology), partial(submit, delivering, MASTER))
    if delivered.result.commands != changes:
        raise AssertionError(f"{delivered.result.commands} commands were delivered, {changes} were made")
    return read, delivered
