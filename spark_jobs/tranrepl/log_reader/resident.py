"""A log reader that stays up: it drains the log as any other, follows it as long as nothing is out of the ordinary, and
drains it again.

Whatever `following` does not do itself, it leaves to the draining, at what is registered: so one is as right as the
other.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack
from threading import Thread
from typing import TYPE_CHECKING

from tranrepl.distributor.command_file import mounted_path
from tranrepl.distributor.database import PublicationRecord, RunRow
from tranrepl.distributor.notifications import YIELD, Listener, notify, stop
from tranrepl.errors import ConfigurationError, FencedError, ReplicationError, TransientError
from tranrepl.jobs.requests import LogReaderRequest
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.staying import Stay
from tranrepl.log_reader.agent import pass_over
from tranrepl.log_reader.draining import LogReader
from tranrepl.log_reader.following import Ending, Followed, Following
from tranrepl.log_reader.hand_over import is_in_use
from tranrepl.log_reader.opening import OpenLogReader, open_log_reader
from tranrepl.log_reader.tracer_tokens import is_token_due, post_token
from tranrepl.publisher.schema_reading import SchemaReading
from tranrepl.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5
_ASK_AGAIN_SECONDS = 1.0
_SAY_SECONDS = 10.0
_RECORD_SECONDS = 5.0
_GIVE_UP_SECONDS = 15.0
"""A task that was asked to stop for so long does not hear it."""
_OTHERS_SECONDS = 2.0
"""How long the log is left to other jobs after the last of them has asked for it."""
_PATIENCE_SECONDS = 60.0
"""How long another job may have the log at the end, until this one gives up."""
_REFUSED_SECONDS = 60.0
"""After what time a server that did not let the log be followed is asked again."""
_MOST_OVERTAKEN = 5
_STOP_SECONDS = 20.0
"""So long after somebody has asked for the end, what is left of a long log is for the next run."""


class ResidentLogReader:
    """One run of it, with one row of history."""

    def __init__(self, spark: SparkSession, request: LogReaderRequest, topology: Topology, stay: Stay) -> None:
        self._spark = spark
        self._request = request
        self._publication = request.publication
        self._topology = topology
        self._stay = stay
        self._agent = uuid.uuid4().hex
        self._began = time.perf_counter()
        self._result = JobResult()
        self._run: RunRow | None = None
        self._version: int | None = None
        self._refused_until = 0.0
        self._token_at = time.monotonic()
        self._said_at = time.monotonic()
        self._said = 0
        self._recorded_at = 0.0
        self._changed = False
        self._warned_of_unsigned = False

    def run(self) -> JobResult:
        """Stay up until it is time to end, and read the log to its end then. Raises ReplicationError where it could not
        begin."""
        with self._topology.distributor() as database:
            self._database = database
            error: ReplicationError | None = None
            try:
                self._read()
            except ReplicationError as problem:
                if self._run is None:
                    raise
                error = problem
            result = self._so_far().model_copy(update={"error": error.report if error else None})
            if self._run is not None:
                database.history.end_run(self._run, result)
        return result

    def _so_far(self) -> JobResult:
        return self._result.model_copy(update={"seconds": time.perf_counter() - self._began})

    def _read(self) -> None:
        ask, overtaken = True, 0
        while True:
            last = self._stay.is_over()
            try:
                following = self._drain(ask=ask, last=last)
                overtaken = 0
            except FencedError:
                overtaken += 1
                if overtaken > _MOST_OVERTAKEN:
                    raise
                continue
            if last or self._changed or self._is_to_end():
                return
            ask = following is None or self._follow(following)

    def _drain(self, *, ask: bool, last: bool) -> Following | None:
        """Read the log to its end. Return how it is followed from there; None where it has to be drained again."""
        with ExitStack() as stack:
            opened = self._opened(stack, ask=ask)
            if self._run is None:
                self._run = self._database.history.begin_run(opened.record)
            reader = self._reader(opened)
            if reader is None:
                return None
            try:
                reader.drain()
            finally:
                self._result = self._result.plus(reader.result)
                self._warned_of_unsigned = reader.warned_of_unsigned
            if last or self._is_to_end():
                return None
            # It has got that far, also where there was nothing to read.
            self._record_progress_of(JobResult())
            following = self._following(opened, reader)
            if following is None:
                self._wait_for_changes(opened)
            return following

    def _opened(self, stack: ExitStack, *, ask: bool) -> OpenLogReader:
        """Open what is read. Where another job has asked for the log, wait until it is free, and ask for nothing."""
        deadline = None
        while True:
            try:
                return stack.enter_context(open_log_reader(self._topology, ask=ask))
            except TransientError as error:
                if ask or not is_in_use(error):
                    raise
                if self._stay.is_over():
                    deadline = deadline or time.monotonic() + _PATIENCE_SECONDS
                    if time.monotonic() >= deadline:
                        raise
            time.sleep(self._publication.polling_interval)

    def _reader(self, opened: OpenLogReader) -> LogReader | None:
        """Return what drains the log; None where the publication is set up by another file by now."""
        before, self._version = self._version, opened.record.articles_version
        try:
            reader = LogReader(self._spark, self._request, opened)
        except ConfigurationError as error:
            if before in (None, self._version):
                raise
            self._notice([f"the log reader has ended, as the publication was set up anew: {error.message}"])
            self._changed = True
            return None
        reader.record_progress = self._record_progress_of
        reader.say = self._say_drained
        reader.is_to_end = self._is_to_end
        reader.warned_of_unsigned = self._warned_of_unsigned
        return reader

    def _is_to_end(self) -> bool:
        """Return whether to leave the rest of the log to the next run: not at its time, up to which a run reads all."""
        asked_at = self._stay.asked_at()
        return asked_at is not None and time.monotonic() - asked_at >= _STOP_SECONDS

    def _record_progress_of(self, drained: JobResult) -> None:
        if time.monotonic() - self._recorded_at >= _RECORD_SECONDS:
            self._record(self._so_far().plus(drained))

    def _say_drained(self, drained: JobResult) -> None:
        so_far = self._result.plus(drained)
        self._say(so_far.transactions, so_far.commands)

    def _record(self, so_far: JobResult) -> None:
        self._say(so_far.transactions, so_far.commands)
        if self._run is not None:
            self._database.history.record_progress(self._run, so_far)
            self._recorded_at = time.monotonic()

    def _say(self, transactions: int, commands: int) -> None:
        """Tell of what was registered, where something was, and seldom."""
        if commands == self._said or time.monotonic() - self._said_at < _SAY_SECONDS:
            return
        self._said, self._said_at = commands, time.monotonic()
        log.info("registered %d commands of %d transactions", commands, transactions)

    def _following(self, opened: OpenLogReader, reader: LogReader) -> Following | None:
        """Return how the log is followed; None where it cannot be."""
        if mounted_path(opened.record.store) is None or time.monotonic() < self._refused_until or self._run is None:
            return None
        # The articles after the version that says by which of them is read.
        record = opened.database.publications.get(self._publication.publication)
        articles = opened.database.articles.active(self._publication, record)
        if record.registered_to is None:
            return None
        schema = SchemaReading() if self._publication.replicate_ddl else None
        stream = opened.publisher.log_stream(articles, record.registered_to, schema)
        if stream is None:
            return None
        return Following(
            stream,
            articles,
            self._topology.distributor_connection,
            record,
            self._run,
            self._so_far(),
            reader.clock,
            self._agent,
            self._stay.seconds_left() + _GIVE_UP_SECONDS,
            self._publication.polling_interval,
            self._warned_of_unsigned,
        )

    def _wait_for_changes(self, opened: OpenLogReader) -> None:
        """Wait until the log holds something for us, looking at it at times."""
        record, up_to = opened.record, None
        record = opened.database.publications.get(self._publication.publication)
        while not self._stay.is_over():
            self._stay.wait(self._publication.polling_interval)
            self._post_due_token(record)
            before, up_to = up_to, opened.publisher.readable_end_of_log(_say_nothing)
            if up_to == before:
                continue
            record, found = pass_over(opened, record, up_to)
            if found or record.articles_version != self._version:
                return

    def _follow(self, following: Following) -> bool:
        """Follow the log. Return whether it may be asked for then: not, where another job has."""
        began = time.monotonic()
        followed = self._followed(following)
        self._result = self._result.plus(followed.result)
        if followed.ending is Ending.FAILED and followed.error is not None:
            raise followed.error.to_exception()
        if followed.ending is Ending.YIELDED:
            self._leave_to_others(following.record)
            return False
        if followed.ending is Ending.REFUSED and followed.error is not None:
            if is_in_use(followed.error.to_exception()):
                return False
            self._notice([f"the log is not followed as it is written, but looked at at times: {followed.why}"])
            self._refused_until = time.monotonic() + _REFUSED_SECONDS
        if time.monotonic() - began < self._publication.polling_interval:
            self._stay.wait(self._publication.polling_interval)
        return True

    def _followed(self, following: Following) -> Followed:
        """Return how the log was followed, in a task of Spark's, which is told when to stop."""
        from tranrepl.log_reader.lasting_task import follow_in_task

        group, future = f"tranrepl-{self._agent}", Future[Followed]()

        def work() -> None:
            try:
                future.set_result(follow_in_task(self._spark, following, group))
            except BaseException as error:  # noqa: BLE001 — whatever it is, who waits must hear of it
                future.set_exception(error)

        Thread(target=work, name=group, daemon=True).start()
        asked_at: float | None = None
        with self._stay.woken_by(future) as woken:
            while not future.done():
                if self._stay.is_over():
                    asked_at = asked_at or time.monotonic()
                    if self._ask_to_stop(following.record, asked_at, future):
                        self._spark.sparkContext.cancelJobGroup(group)
                else:
                    woken.wait(self._seconds_to_wait())
                    self._post_due_token(following.record)
                self._say_recorded(following.record)
        try:
            return future.result()
        except ReplicationError:
            if asked_at is not None and time.monotonic() - asked_at >= _GIVE_UP_SECONDS:
                return Followed(ending=Ending.STOPPED)
            raise

    def _seconds_to_wait(self) -> float:
        """Return after what time there is something to do, though the task goes on."""
        seconds = min(_SAY_SECONDS, self._stay.seconds_left())
        if self._publication.tracer_interval is not None:
            seconds = min(seconds, self._token_at - time.monotonic())
        return max(seconds, _LOOK_SECONDS)

    def _ask_to_stop(self, record: PublicationRecord, asked_at: float, future: Future[Followed]) -> bool:
        """Tell the task to stop. Return whether it does not hear."""
        self._tell(record)
        wait([future], 2 * _LOOK_SECONDS)
        return not future.done() and time.monotonic() - asked_at >= _GIVE_UP_SECONDS

    def _tell(self, record: PublicationRecord) -> None:
        with self._database.transaction() as connection:
            notify(connection, record.publication_id, stop(self._agent))

    def _say_recorded(self, record: PublicationRecord) -> None:
        if time.monotonic() - self._said_at < _SAY_SECONDS:
            return
        row = self._database.history.newest(record)
        if row is not None and self._run is not None and row["id"] == self._run.id:
            self._say(int(str(row["delivered_transactions"])), int(str(row["delivered_commands"])))
        self._said_at = time.monotonic()

    def _post_due_token(self, record: PublicationRecord) -> None:
        interval = self._publication.tracer_interval
        if interval is None or time.monotonic() < self._token_at:
            return
        self._token_at = time.monotonic() + interval
        if is_token_due(self._publication, self._database, record):
            with self._topology.publisher("tranrepl log reader") as publisher:
                self._notice(post_token(publisher))

    def _leave_to_others(self, record: PublicationRecord) -> None:
        """Wait until nobody has asked for the log for a while."""
        with Listener(self._topology.distributor_connection, record.publication_id) as listener:
            until = time.monotonic() + _OTHERS_SECONDS
            while time.monotonic() < until and not self._stay.is_over():
                if YIELD in listener.wait(_LOOK_SECONDS):
                    until = time.monotonic() + _OTHERS_SECONDS

    def _notice(self, what: Sequence[str]) -> None:
        for it in what:
            log.warning("%s", it)
        self._result = self._result.noticing(what)


def _say_nothing(_: str) -> None:
    pass
