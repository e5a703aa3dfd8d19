"""The one loop of both agents, and the intervals that it knows.

A run of an agent drains what there is, and ends. A continuous agent is the same job whose time is not over yet: it goes
on in one lasting Spark task, which ends where something is out of the ordinary, and drains again. So there is one way
to deal with what is out of the ordinary, and the lasting task is as right as the draining.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, ClassVar

from tranrepl.distributor.database import DistributionDatabase, PublicationRecord, RunRow, SubscriptionRecord
from tranrepl.errors import FencedError, InternalError, ReplicationError
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.shutdown import Shutdown
from tranrepl.printable import counted
from tranrepl.spark.lasting_task import Ending, LastingTask, TaskServer, Why
from tranrepl.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_SECONDS = 0.25
"""How soon an agent sees what it is not notified of: a shutdown, the end of a pause or of a snapshot."""
RECORD_SECONDS = 5.0
"""How often a lasting task records what it did, and looks at what it should be notified of."""
SAY_SECONDS = 10.0
"""How often the log says what was done."""
AGAIN_SECONDS = 60.0
"""After what time an agent does again what is rare, or what the other end refused: it may be mended by then."""
_MOST_FAILURES = 3
"""So many failures of lasting tasks within that time are got over by draining."""

log = logging.getLogger(__name__)


class AgentRun(ABC):
    """One run of an agent, continuous or not, with one row of history."""

    shutdown_grace_seconds: ClassVar[float]
    """For how many seconds after a shutdown was asked for the run still drains; what is at hand is ended in any
    case."""
    verb: ClassVar[str]
    """What the run does to commands, in the past tense."""

    def __init__(
        self, spark: SparkSession, topology: Topology, database: DistributionDatabase, shutdown: Shutdown
    ) -> None:
        self.spark = spark
        self.topology = topology
        self.database = database
        self.shutdown = shutdown
        self.total = JobResult()
        """What the run has done so far."""
        self._row: RunRow | None = None
        self._began = self._said_at = time.monotonic()
        self._said_commands = 0
        self._failed_at: list[float] = []

    def run(self) -> JobResult:
        """Drain what there is; where it is continuous, until its shutdown. Return what was done, with the error that
        ended it. Raises ReplicationError where it could not begin."""
        error: ReplicationError | None = None
        try:
            self._loop()
        except ReplicationError as problem:
            if self._row is None:
                raise
            error = problem
        except Exception as problem:
            if self._row is not None:
                # As where Spark has died: no row of history stays in progress.
                failed = InternalError(f"the run ended by {type(problem).__name__}")
                self.database.history.end_run(
                    self._row, self.timed(self.total).model_copy(update={"error": failed.report})
                )
            raise
        result = self.timed(self.total).model_copy(update={"error": error.report if error else None})
        self.database.history.end_run(self.row, result)
        log.info("%s %s", self.verb, _in_words(result))
        return result

    def _loop(self) -> None:
        while True:
            last = self.is_last()
            try:
                task = self.drain(last=last)
            except FencedError as error:
                if not self.shutdown.is_continuous:
                    raise
                self._try_again_after(error)
                continue
            if last or self.is_cut_short():
                return
            if task is not None:
                self._work(task)
                if self.is_cut_short():
                    return

    @abstractmethod
    def drain(self, *, last: bool) -> LastingTask | None:
        """Do what there is to do by now, as each run does. Return what goes on with it; None, once there is more to
        drain, where no task can. `last`: the run ends with this."""

    def is_last(self) -> bool:
        """Return whether the run ends with what there is by now."""
        return self.shutdown.is_due()

    def is_cut_short(self) -> bool:
        """Return whether what is not at hand is left to the next run: not where its time is over, by which a run does
        all there is, nor where it is not continuous."""
        if not self.shutdown.is_continuous:
            return False
        asked_at = self.shutdown.request.asked_at()
        return asked_at is not None and time.monotonic() - asked_at >= self.shutdown_grace_seconds

    @property
    def row(self) -> RunRow:
        """The run's row of history, once it has begun."""
        if self._row is None:
            raise InternalError("a run that has not begun has no row of history")
        return self._row

    def begin(self, record: PublicationRecord, subscription: SubscriptionRecord | None = None) -> None:
        """Begin the row of history, unless there is one."""
        if self._row is None:
            self._row = self.database.history.begin_run(record, subscription)

    def progress(self, so_far: JobResult) -> None:
        """Record what the run has done, and say it now and then."""
        self.database.history.record_progress(self.row, self.timed(so_far))
        if self._is_to_say():
            self._say(so_far)

    def timed(self, result: JobResult) -> JobResult:
        return result.model_copy(update={"seconds": time.monotonic() - self._began})

    # The lasting task

    def _work(self, task: LastingTask) -> None:
        began = time.monotonic()
        ending = self._in_spark(task)
        self.total = self.record_ending(ending).noticing(self.total.notices).model_copy(update={"error": None})
        if ending.why is Why.ERROR and ending.result.error is not None:
            error = ending.result.error.to_exception()
            if self.is_cut_short():
                raise error
            self._try_again_after(error)
        if time.monotonic() - began < LOOK_SECONDS:
            # Whatever ends each task as it begins, it is not to go round and round.
            self.shutdown.wait(LOOK_SECONDS)

    def _in_spark(self, task: LastingTask) -> Ending:
        """Let a task work until it ends; it is asked to where the run ends."""
        with ThreadPoolExecutor(1, "tranrepl-task") as executor, TaskServer(self.spark) as server:
            ending = executor.submit(server.run, task)
            while not wait([ending], LOOK_SECONDS).done:
                server.look_after(ends=self.is_last() or self.is_cut_short())
                self._look_after()
            try:
                return ending.result()
            except ReplicationError as error:
                result = self._recorded_of(task).model_copy(update={"error": error.report})
                return Ending(why=Why.ERROR, result=result)

    def _look_after(self) -> None:
        try:
            self.meanwhile()
        except ReplicationError as error:
            # What the task did is not to be lost by that.
            log.warning("looking after the task: %s", error.message)

    def meanwhile(self) -> None:
        """Do what is due while a task works."""
        if self._is_to_say():
            self._say(self.database.history.counted(self.row))

    def record_ending(self, ending: Ending) -> JobResult:
        """Take note of how a task ended. Return what the run has done by then."""
        return ending.result

    def _recorded_of(self, task: LastingTask) -> JobResult:
        """Return what a task that answers nothing has recorded of the run."""
        known, recorded = task.so_far, self.database.history.counted(self.row)
        if recorded.transactions <= known.transactions:
            return known
        return known.model_copy(update={name: getattr(recorded, name) for name in recorded.model_fields_set})

    def _try_again_after(self, error: ReplicationError) -> None:
        """Go on after an error that draining may get over. Raises it where it comes again and again."""
        now = time.monotonic()
        self._failed_at = [now, *(it for it in self._failed_at if now - it < AGAIN_SECONDS)]
        if len(self._failed_at) > _MOST_FAILURES:
            raise error
        log.warning("trying again after an error: %s", error.message)

    def _is_to_say(self) -> bool:
        return time.monotonic() - self._said_at >= SAY_SECONDS

    def _say(self, so_far: JobResult) -> None:
        self._said_at = time.monotonic()
        if so_far.commands != self._said_commands:
            self._said_commands = so_far.commands
            log.info("%s %s by now", self.verb, _in_words(so_far))


def _in_words(result: JobResult) -> str:
    return f"{counted(result.transactions, 'transaction')} with {counted(result.commands, 'command')}"
