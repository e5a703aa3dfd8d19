"""The lasting Spark task of a continuous agent, and the connection that binds it to its driver: the driver cuts it to
end the task, and it is cut where the driver has died."""

from __future__ import annotations

import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from multiprocessing.connection import wait
from types import TracebackType
from typing import TYPE_CHECKING, Self
from uuid import uuid4

from py4j.protocol import Py4JError
from pydantic import BaseModel, ConfigDict
from pyspark.errors import PySparkException

from tranrepl import garbage_collection
from tranrepl.errors import ReplicationError, TransientError
from tranrepl.jobs.results import JobResult
from tranrepl.spark.pyarrow_setup import prepare_lasting_worker
from tranrepl.spark.spark_submit import failed_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_CONNECTS_WITHIN_SECONDS = 60.0
"""What a task may wait for a core, and for its Python process."""
_CONNECTS_AT_SHUTDOWN_WITHIN_SECONDS = 5.0


class Why(StrEnum):
    """Why a lasting task ended. What comes next is the same after most of them: the agent drains."""

    ASKED = "its driver ended it"
    CHANGED = "settings, articles or the subscription have changed, or another job was faster"
    UNUSUAL = "something is in the log that is read as in any other run"
    SCHEMA_CHANGE = "a schema change or a script is to be delivered"
    BACKLOG = "many commands are to be delivered"
    HANDOVER = "hand-over of the log to another job"
    LOST = "the Publisher has ended the session"
    REFUSED = "the Publisher does not let its log be followed"
    ERROR = "an error"


class Ending(BaseModel):
    """What the task answers with."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    why: Why
    result: JobResult
    """What the run has done up to then, before the task too; with the error, where one ended it."""


class DriverConnection:
    """The task's end of the connection."""

    def __init__(self, host: str, port: int) -> None:
        """Connect. Raises TransientError where the driver is not there."""
        try:
            self._connection = socket.create_connection((host, port), _CONNECTS_WITHIN_SECONDS)
        except OSError as error:
            raise TransientError(f"a task cannot reach its driver at {host}: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def is_cut(self) -> bool:
        """Return whether the task is to end, after what it has at hand."""
        return self.wait(0.0)

    def wait(self, seconds: float, *others: int | None) -> bool:
        """Wait until it is cut, or until something can be read from another descriptor, and no longer than so many
        seconds. Return whether it is cut."""
        watched = [self._connection.fileno(), *(it for it in others if it is not None)]
        # The driver sends nothing: what can be read is the end.
        return self._connection.fileno() in wait(watched, seconds)


class TaskServer:
    """The driver's end, for one task. Nobody who connects learns anything: that it is cut is all there is to know."""

    def __init__(self, spark: SparkSession) -> None:
        self._host, bind_address = driver_addresses(spark)
        # A connection that nobody has accepted lives as long as this does.
        self._socket = socket.create_server((bind_address, 0))
        self._socket.setblocking(False)
        self._port = self._socket.getsockname()[1]
        self._spark = spark
        self._group = f"tranrepl-{uuid4()}"
        self._connects_until = time.monotonic() + _CONNECTS_WITHIN_SECONDS
        self._is_late = self._ends = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def run(self, task: LastingTask) -> Ending:
        """Run the task until it ends. Raises ReplicationError where it died without an answer, and where it was
        cancelled before it had connected."""
        # The group of this thread's jobs: Spark interrupts what it has begun of them.
        self._spark.sparkContext.setJobGroup(self._group, "continuous agent", interruptOnCancel=True)
        one = self._spark.sparkContext.parallelize([0], 1)
        in_spark = _InSpark(garbage_collection.pickled(task), self._host, self._port)
        try:
            (answer,) = one.mapPartitions(in_spark).collect()
        except (PySparkException, Py4JError) as error:
            if not self._is_late:
                raise failed_job(
                    str(error),
                    "the Spark task of a continuous agent",
                    "of a continuous agent",
                    "what it had not committed is rolled back",
                ) from error
            if self._ends:
                return Ending(why=Why.ASKED, result=task.so_far)
            raise self._late() from error
        return Ending.model_validate_json(answer)

    def look_after(self, *, ends: bool) -> None:
        """Let the task end, where it is to and has connected: one that found no driver would end by an error. Cancel
        one that has not connected in time: nothing else would end it. To be called now and then."""
        if self._socket.fileno() < 0:
            return
        if ends:
            self._ends = True
            self._connects_until = min(self._connects_until, time.monotonic() + _CONNECTS_AT_SHUTDOWN_WITHIN_SECONDS)
        if wait([self._socket], 0.0):
            if ends:
                # Not by closing the listening socket alone: that resets a connection, perhaps as it is being made.
                with suppress(OSError):
                    self._socket.accept()[0].close()
                self._socket.close()
        elif time.monotonic() > self._connects_until:
            self._is_late = True
            self._spark.sparkContext.cancelJobGroup(self._group)

    def _late(self) -> TransientError:
        return TransientError(
            f"the Spark task of a continuous agent did not begin within {_CONNECTS_WITHIN_SECONDS:.0f} s",
            remedy="give Spark a core for each agent and stream, and one more; executors must reach the driver at "
            f"{self._host}",
        )


class LastingTask(ABC):
    """What a task begins with. It travels pickled inside the function that Spark runs, passwords and all."""

    __slots__ = ()

    so_far: JobResult
    """What the run has done before."""

    @abstractmethod
    def work(self, driver: DriverConnection) -> Ending:
        """Work until something ends it. Raises what goes wrong as it begins."""


@dataclass(frozen=True, slots=True)
class _InSpark:
    pickled: bytes
    """The task."""
    host: str
    port: int

    def __call__(self, one: Iterable[int]) -> Iterator[str]:
        """Do the task, and yield its `Ending`, for `mapPartitions` over any one element."""
        prepare_lasting_worker()
        # A worker that leaves something unread is not used again.
        for _ in one:
            pass
        task: LastingTask = garbage_collection.unpickled(self.pickled)
        try:
            with DriverConnection(self.host, self.port) as driver:
                ending = task.work(driver)
        except ReplicationError as error:
            ending = Ending(why=Why.ERROR, result=task.so_far.model_copy(update={"error": error.report}))
        yield ending.model_dump_json()


def driver_addresses(spark: SparkSession) -> tuple[str, str]:
    """Return the address at which executors reach this process, and the one it binds to."""
    configuration = spark.sparkContext.getConf()
    host = configuration.get("spark.driver.host") or "127.0.0.1"
    return host, configuration.get("spark.driver.bindAddress") or host
