"""The log reader job: the Publisher's log into the store, once up to its end, or continuously."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tranrepl.agent_loop import AGAIN_SECONDS, LOOK_SECONDS, AgentRun
from tranrepl.connections import Connection
from tranrepl.distributor.database import DistributionDatabase, PublicationRecord
from tranrepl.distributor.notifications import HANDOVER, Listener
from tranrepl.errors import ConfigurationError, TransientError
from tranrepl.jobs.requests import LogReaderRequest
from tranrepl.jobs.results import JobResult
from tranrepl.jobs.shutdown import Shutdown, shutdown_at
from tranrepl.log_reader.draining import LogDraining
from tranrepl.log_reader.following import LogFollowing
from tranrepl.log_reader.log_handover import is_in_use
from tranrepl.log_reader.opening import OpenLogReader, open_log_reader
from tranrepl.log_reader.tracer_tokens import claim_token, post_token
from tranrepl.log_reader.without_spark import register_empty_log
from tranrepl.publisher.log_range import SchemaReading
from tranrepl.publisher.publisher import say_nothing
from tranrepl.spark.lasting_task import Ending, LastingTask, Why
from tranrepl.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OTHERS_SECONDS = 2.0
"""How long the log is left to other jobs after the last of them has asked for it."""

log = logging.getLogger(__name__)


def run(spark: SparkSession, request: LogReaderRequest, connections: Mapping[str, Connection]) -> JobResult:
    """Read all that was committed before now; where the request is continuous, until its shutdown. The result, error or
    not, is in the history."""
    topology, shutdown = Topology(request.publication, connections), shutdown_at(request.continuous_until)
    with topology.distributor() as database:
        result = LogReaderRun(spark, request, topology, database, shutdown).run()
    for notice in result.notices:
        log.warning("%s", notice)
    return result


class LogReaderRun(AgentRun):
    """One run of the log reader: it drains the log, and follows it as long as nothing is out of the ordinary."""

    shutdown_grace_seconds = 20.0
    verb = "stored"

    def __init__(
        self,
        spark: SparkSession,
        request: LogReaderRequest,
        topology: Topology,
        database: DistributionDatabase,
        shutdown: Shutdown,
    ) -> None:
        super().__init__(spark, topology, database, shutdown)
        self._request = request
        self._publication = request.publication
        self._version: int | None = None
        self._refused_until = 0.0
        self._token_at = time.monotonic()
        self._is_set_up_otherwise = False
        self._warned_of_unsigned = False

    def drain(self, *, last: bool) -> LastingTask | None:
        """Read the log to its end. Return how it is followed from there; None where it is to be drained again, once it
        holds something."""
        with ExitStack() as stack:
            opened = self._opened(stack)
            self.begin(opened.record)
            reader = self._reader(opened)
            if reader is None:
                return None
            try:
                reader.drain()
            finally:
                self.total = self.total.plus(reader.result)
                self._warned_of_unsigned = reader.warned_of_unsigned
            if last or self.is_cut_short():
                return None
            # It has got that far, also where there was nothing to read.
            self.progress(self.total)
            following = self._following(opened, reader)
            if following is None:
                self._wait_for_changes(opened)
            return following

    def is_cut_short(self) -> bool:
        return self._is_set_up_otherwise or super().is_cut_short()

    def _opened(self, stack: ExitStack) -> OpenLogReader:
        """Open what is read. A run asks for the log once, as it begins; a continuous one that has left it to another
        job waits until it is free: after its time, for so long at most as another job may take."""
        asks, said, deadline = self._row is None, False, 0.0
        while True:
            try:
                return stack.enter_context(open_log_reader(self.topology, self.database, ask=asks))
            except TransientError as error:
                if not is_in_use(error):
                    # A Publisher that cannot be reached is an error of this run. What is refused has read nothing
                    # either, and would be taken for what setup mends.
                    self.begin(self.database.publications.get(self._publication.publication))
                    raise
                if asks:
                    raise
                if self.shutdown.is_due():
                    deadline = deadline or time.monotonic() + AGAIN_SECONDS
                    if time.monotonic() >= deadline:
                        raise
            if not said:
                log.info("waiting until another job has read the log")
                said = True
            time.sleep(LOOK_SECONDS)

    def _reader(self, opened: OpenLogReader) -> LogDraining | None:
        """Return what drains the log; None where the publication is set up by another file by now."""
        before, self._version = self._version, opened.record.articles_version
        try:
            reader = LogDraining(self.spark, self._request, opened)
        except ConfigurationError as error:
            if before in (None, self._version):
                raise
            self._notice([f"the log reader has ended, as the publication was set up again: {error.message}"])
            self._is_set_up_otherwise = True
            return None
        reader.record_progress = lambda drained: self.progress(self.total.plus(drained))
        reader.is_to_end = self.is_cut_short
        reader.warned_of_unsigned = self._warned_of_unsigned
        return reader

    # The log, followed in a lasting task

    def _following(self, opened: OpenLogReader, reader: LogDraining) -> LogFollowing | None:
        """Return how the log is followed; None where it cannot be."""
        if time.monotonic() < self._refused_until:
            return None
        # The articles after the version that says by which of them is read.
        record = self.database.publications.get(self._publication.publication)
        articles = reader.articles
        if record.articles_version != opened.record.articles_version:
            try:
                articles = self.database.articles.active(self._publication, record)
            except ConfigurationError:
                # The file is another one's by now: the next look at the log ends it.
                return None
        if record.registered_to is None:
            return None
        schema = SchemaReading(follows=self._publication.replicate_ddl)
        stream = opened.publisher.log_stream(articles, record.registered_to, schema)
        if stream is None:
            return None
        return LogFollowing(
            stream,
            articles,
            self.topology.distributor_connection,
            record,
            self.row,
            self.timed(self.total),
            reader.clock,
            self._publication.polling_interval,
            self._publication.log_reader.gathering_interval or record.store.gathering_interval,
            self._warned_of_unsigned,
        )

    def meanwhile(self) -> None:
        super().meanwhile()
        self._post_due_token(self.row.record)

    def record_ending(self, ending: Ending) -> JobResult:
        """Wait where the log is handed over to another job; note where it cannot be followed."""
        if ending.why is Why.HANDOVER:
            self._wait_for_the_log()
        error = ending.result.error
        if ending.why is Why.REFUSED and error is not None and not is_in_use(error.to_exception()):
            self._refused_until = time.monotonic() + AGAIN_SECONDS
            notice = f"the log is not followed as it is written, but looked at at times: {error.message}"
            log.warning("%s", notice)
            return ending.result.noticing([notice])
        return ending.result

    def _wait_for_the_log(self) -> None:
        """Wait until nobody has asked for the log for a while."""
        with Listener(self.topology.distributor_connection, self.row.record.publication_id) as listener:
            until = time.monotonic() + _OTHERS_SECONDS
            while time.monotonic() < until and not self.shutdown.is_due():
                if HANDOVER in listener.wait(LOOK_SECONDS):
                    until = time.monotonic() + _OTHERS_SECONDS

    # Where it is not followed

    def _wait_for_changes(self, opened: OpenLogReader) -> None:
        """Wait until the log holds something for us, polling it."""
        record, up_to = self.database.publications.get(self._publication.publication), None
        recorded_at = time.monotonic()
        while not self.shutdown.is_due():
            self.shutdown.wait(self._publication.polling_interval)
            self._post_due_token(record)
            if time.monotonic() - recorded_at >= AGAIN_SECONDS:
                # Deliveries at the end of their time wait for a log reader that is not silent.
                recorded_at = time.monotonic()
                self.progress(self.total)
            before, up_to = up_to, opened.publisher.readable_end_of_log(say_nothing)
            if up_to == before:
                continue
            record, found = register_empty_log(opened, record, self.database.articles.registered(record), up_to)
            if found or record.articles_version != self._version:
                return

    def _post_due_token(self, record: PublicationRecord) -> None:
        interval = self._publication.tracer_interval
        if interval is None or time.monotonic() < self._token_at:
            return
        self._token_at = time.monotonic() + interval
        if claim_token(self._publication, self.database, record):
            with self.topology.publisher("tranrepl log reader") as publisher:
                self._notice(post_token(publisher))

    def _notice(self, what: Sequence[str]) -> None:
        for it in what:
            log.warning("%s", it)
        self.total = self.total.noticing(what)
