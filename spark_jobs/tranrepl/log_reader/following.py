"""The log followed as it is written: small batches, each stored, registered and then confirmed.

Whatever is out of the ordinary (a schema change, a script, a refusal, a large transaction) ends it at what is
registered, with nothing of it stored: the log reader drains the log from there.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tranrepl.agent_loop import AGAIN_SECONDS, RECORD_SECONDS
from tranrepl.connections import Connection
from tranrepl.distributor.command_file import discard, write_few_commands
from tranrepl.distributor.command_store import CommandStore
from tranrepl.distributor.database import Batch, DistributionDatabase, PublicationRecord, RunRow, StoredToken
from tranrepl.distributor.notifications import HANDOVER, Listener
from tranrepl.errors import FencedError, ReplicationError
from tranrepl.failpoint import Failpoint, reach
from tranrepl.jobs.results import JobResult
from tranrepl.log_reader.batch_of_read import batch_of, result_of
from tranrepl.log_reader.reading import read_part
from tranrepl.log_reader.tracer_tokens import stored_tokens
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.clock_difference import ClockDifference
from tranrepl.model.position import Position
from tranrepl.publisher.log_range import LogPart
from tranrepl.publisher.log_read import LogRead
from tranrepl.publisher.log_stream import LogStream, OpenLogStream, StreamEndedError
from tranrepl.spark.lasting_task import DriverConnection, Ending, LastingTask, Why

_LOOK_SECONDS = 0.005
_IDLE_SECONDS = 1.0
"""How soon it sees that its listening session was lost."""
_FULL_BYTES = 2 * 1024 * 1024
"""From then on, a batch waits for no more."""
_MOST_BYTES = 8 * 1024 * 1024
"""A transaction of more is read as in any other run."""
_MOST_FULL_BATCHES = 8
"""After so many, one after the other, so is the log: that way takes longer to begin, and less for each change."""


@dataclass(frozen=True, slots=True)
class LogFollowing(LastingTask):
    """What is needed to follow the log, on whatever machine."""

    stream: LogStream
    articles: Sequence[RegisteredArticle]
    distributor: Connection
    record: PublicationRecord
    """As it is registered where the stream begins."""
    row: RunRow
    so_far: JobResult
    clock: ClockDifference
    polling_interval: float
    gathering_interval: float
    warned_of_unsigned: bool
    """The agent has warned of messages that only look like ours: they are ordinary then."""

    def work(self, driver: DriverConnection) -> Ending:
        """Follow the log until there is a reason to end."""
        with (
            DistributionDatabase(self.distributor) as database,
            Listener(self.distributor, self.record.publication_id) as listener,
        ):
            return _Follower(self, driver, database, listener, self.record, self.so_far).follow()


@dataclass(frozen=True, slots=True)
class _Stored:
    """What is in a folder of the store, and not registered."""

    folder: str
    batch: Batch | None
    tokens: Sequence[StoredToken]


@dataclass(slots=True)
class _Follower:
    following: LogFollowing
    driver: DriverConnection
    database: DistributionDatabase
    listener: Listener
    record: PublicationRecord
    total: JobResult
    _began_at: float = field(default_factory=time.monotonic)
    _registered_at: float = field(default_factory=time.monotonic)
    _recorded_at: float = field(default_factory=time.monotonic)
    _recorded: int = 0
    _full: int = 0

    def follow(self) -> Ending:
        try:
            with self.following.stream.open() as stream:
                return self._follow(stream)
        except ReplicationError as error:
            # Of what is done with a stream that is open, no error comes here.
            return self._ending(Why.REFUSED, error)

    def _follow(self, stream: OpenLogStream) -> Ending:
        try:
            while (why := self._asked() or self._step(stream)) is None:
                pass
        except StreamEndedError:
            why = Why.LOST
        except FencedError:
            why = Why.CHANGED
        except ReplicationError as error:
            return self._ending(Why.ERROR, error)
        return self._ending(why)

    def _ending(self, why: Why, error: ReplicationError | None = None) -> Ending:
        return Ending(why=why, result=self._timed().model_copy(update={"error": error.report if error else None}))

    def _timed(self) -> JobResult:
        seconds = self.following.so_far.seconds + time.monotonic() - self._began_at
        return self.total.model_copy(update={"seconds": seconds})

    def _asked(self) -> Why | None:
        """Return how to end, where somebody asks for it."""
        if self.driver.is_cut():
            return Why.ASKED
        return Why.HANDOVER if HANDOVER in self.listener.received() else None

    def _step(self, stream: OpenLogStream) -> Why | None:
        stream.receive()
        self._record_progress()
        if stream.arrived_at is None:
            if stream.arrived_bytes > _MOST_BYTES:
                return Why.UNUSUAL
            self._register_empty_log(stream)
            self.driver.wait(
                min(self.following.polling_interval, _IDLE_SECONDS), stream.fileno(), self.listener.fileno()
            )
            # Of other people's transactions, the server tells one by one how far it is.
            time.sleep(_LOOK_SECONDS / 5)
            return None
        wait = stream.arrived_at + self.following.gathering_interval - time.monotonic()
        full = stream.arrived_bytes >= _FULL_BYTES
        if wait > 0 and not full:
            time.sleep(min(wait, _LOOK_SECONDS))
            return None
        self._full = self._full + 1 if full else 0
        if self._full > _MOST_FULL_BATCHES or stream.arrived_bytes > 2 * _MOST_BYTES:
            return Why.UNUSUAL
        return self._store(stream)

    def _store(self, stream: OpenLogStream) -> Why | None:
        """Store and register what has arrived; nothing where something is out of the ordinary."""
        started, part, store = time.perf_counter(), stream.take(), self.record.store
        if part is None:
            return Why.UNUSUAL
        read, folder = _written(store, stream, part)
        unsigned = read.unsigned is not None and not self.following.warned_of_unsigned
        if part.end is None or unsigned or not _is_ordinary(read):
            discard(store, [folder])
            return Why.UNUSUAL
        batch = batch_of(folder, read, self.following.clock)
        if batch is None:
            discard(store, [folder])
        stored = time.perf_counter()
        self._register(stream, part.end, _Stored(folder, batch, stored_tokens(read, self.following.clock)))
        seconds = {"read_to_store": stored - started, "register": time.perf_counter() - stored}
        done = JobResult() if batch is None else result_of(batch, read, self.following.articles)
        self.total = self.total.plus(done.model_copy(update={"phases": seconds}))
        reach(Failpoint.ADVANCED)
        return None

    def _register(self, stream: OpenLogStream, end: Position, stored: _Stored | None = None) -> None:
        """Register the log up to there, and what is stored of it; then let it go."""
        batch, tokens = (None, ()) if stored is None else (stored.batch, stored.tokens)
        try:
            proof = stream.proof(
                self.record.registered_proof,
                self.record.registered_xact_seqno if batch is None else batch.last_xact_seqno,
            )
            self.record = self.database.batches.register(
                self.record, batch, end, tokens=tokens, proof=proof, same_articles=True
            )
        except FencedError:
            if stored is not None:
                discard(self.record.store, [stored.folder])
            raise
        reach(Failpoint.REGISTERED)
        self._registered_at = time.monotonic()
        stream.confirm(end)

    def _register_empty_log(self, stream: OpenLogStream) -> None:
        """Register and confirm log that has nothing for us, now and then."""
        position = stream.read_to
        if position is None or time.monotonic() - self._registered_at < self.following.polling_interval:
            return
        self._register(stream, position)

    def _record_progress(self) -> None:
        """Record what was done; where nothing was, that the log reader runs."""
        now = time.monotonic()
        news = self._recorded != self.total.transactions
        if now - self._recorded_at >= (RECORD_SECONDS if news else AGAIN_SECONDS):
            self._recorded_at, self._recorded = now, self.total.transactions
            self.database.history.record_progress(self.following.row, self._timed())


def _written(store: CommandStore, stream: OpenLogStream, part: LogPart) -> tuple[LogRead, str]:
    """Write the part's commands to the store. Return the account of it, and the folder."""
    accounts: list[LogRead] = []
    folder = write_few_commands(store, read_part(stream.log, stream.filters, part, accounts.append))
    return accounts[-1], folder


def _is_ordinary(read: LogRead) -> bool:
    """Return whether there is nothing in it but rows that are to be registered."""
    return read.complete and not (
        read.error
        or read.refusal
        or read.needs_definitions
        or read.schema_changes
        or read.scripts
        or read.definitions
        or read.notices
    )
