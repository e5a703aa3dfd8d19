"""The log followed as it is written: small batches, each stored, registered and then confirmed.

Whatever is out of the ordinary (a schema change, a script, a refusal, a large transaction) ends it at what is
registered, with nothing of it stored: the log reader goes on from there, as it does without this.
"""

from __future__ import annotations

import select
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from tranrepl.connections import Connection
from tranrepl.distributor.command_file import mounted_path, publish, write_few_commands
from tranrepl.distributor.database import Batch, DistributionDatabase, PublicationRecord, RunRow, StoredToken
from tranrepl.distributor.notifications import Event, Listener
from tranrepl.distributor.store import folder_path, new_folder
from tranrepl.errors import ErrorReport, FencedError, InternalError, ReplicationError
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

_GATHERED_SECONDS = 0.02
"""How long transactions are gathered for a batch."""
_LOOK_SECONDS = 0.005
_FULL_BYTES = 2 * 1024 * 1024
"""From then on, a batch waits for no more."""
_MOST_BYTES = 8 * 1024 * 1024
"""A transaction of more is read as it always was."""
_MOST_FULL_BATCHES = 8
"""After so many, one after the other, so is the log: that way takes longer to begin, and less for each change."""
_IDLE_SECONDS = 1.0
_PROGRESS_SECONDS = 5.0
_ALIVE_SECONDS = 60.0
"""After what time the history is told on, though there is nothing to tell."""


class Ending(StrEnum):
    """Why the log is followed no further."""

    STOPPED = "stopped"
    YIELDED = "yielded"
    """Another job asked for the log."""
    OUT_OF_THE_ORDINARY = "out of the ordinary"
    OVERTAKEN = "overtaken"
    """Another log reader was faster, or articles were changed."""
    LOST = "lost"
    """The server has ended the session."""
    REFUSED = "refused"
    """The server does not let the log be followed."""
    FAILED = "failed"


class Followed(BaseModel):
    """How far the log was followed, and why no further."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ending: Ending
    why: str = ""
    error: ErrorReport | None = None
    result: JobResult = JobResult()


@dataclass(frozen=True, slots=True)
class Following:
    """What is needed to follow the log, on whatever machine."""

    stream: LogStream
    articles: Sequence[RegisteredArticle]
    distributor: Connection
    record: PublicationRecord
    """As it is registered where the stream begins."""
    run: RunRow
    so_far: JobResult
    """What the run has done before."""
    clock: ClockDifference
    agent: str
    """Who is asked to stop."""
    seconds: float
    """How long to follow, at most."""
    polling_interval: float
    warned_of_unsigned: bool = False
    """The agent has warned of messages that only look like ours: they are ordinary then."""

    def follow(self) -> Followed:
        """Follow the log until there is a reason to end."""
        with (
            DistributionDatabase(self.distributor) as database,
            Listener(self.distributor, self.record.publication_id) as listener,
        ):
            follower = _Follower(self, database, listener, self.record)
            ended = follower.follow()
        return ended.model_copy(update={"result": follower.result})


@dataclass(frozen=True, slots=True)
class _Stored:
    """What is in a folder of the store, and not registered."""

    folder: Path
    batch: Batch | None
    tokens: Sequence[StoredToken]


@dataclass(slots=True)
class _Follower:
    following: Following
    database: DistributionDatabase
    listener: Listener
    record: PublicationRecord
    result: JobResult = field(default_factory=JobResult)
    _began_at: float = field(default_factory=time.monotonic)
    _passed_over_at: float = field(default_factory=time.monotonic)
    _listened_at: float = 0.0
    _progress_at: float = field(default_factory=time.monotonic)
    _recorded: int = 0
    _full: int = 0

    def follow(self) -> Followed:
        try:
            with self.following.stream.open() as stream:
                return self._follow(stream)
        except ReplicationError as error:
            # Of what is done with a stream that is open, no error comes here.
            return Followed(ending=Ending.REFUSED, why=error.message, error=error.report)

    def _follow(self, stream: OpenLogStream) -> Followed:
        try:
            while (ending := self._asked() or self._step(stream)) is None:
                pass
        except StreamEndedError as error:
            return Followed(ending=Ending.LOST, why=str(error))
        except FencedError as error:
            return Followed(ending=Ending.OVERTAKEN, why=error.message)
        except ReplicationError as error:
            return Followed(ending=Ending.FAILED, why=error.message, error=error.report)
        return Followed(ending=ending)

    def _asked(self) -> Ending | None:
        """Return how to end, where somebody asks for it or time is over."""
        now = time.monotonic()
        if now - self._began_at >= self.following.seconds:
            return Ending.STOPPED
        descriptor = self.listener.fileno()
        if descriptor is None:
            # It tries to listen again, not each time.
            if now - self._listened_at < _IDLE_SECONDS:
                return None
        elif not select.select([descriptor], [], [], 0)[0]:
            return None
        self._listened_at = now
        told = self.listener.wait(0.0)
        if any(it.event is Event.STOP and it.agent == self.following.agent for it in told):
            return Ending.STOPPED
        return Ending.YIELDED if any(it.event is Event.YIELD for it in told) else None

    def _step(self, stream: OpenLogStream) -> Ending | None:
        stream.receive()
        self._record_progress()
        if stream.arrived_at is None:
            if stream.arrived_bytes > _MOST_BYTES:
                return Ending.OUT_OF_THE_ORDINARY
            self._pass_over(stream)
            self._wait(stream)
            return None
        wait = stream.arrived_at + _GATHERED_SECONDS - time.monotonic()
        full = stream.arrived_bytes >= _FULL_BYTES
        if wait > 0 and not full:
            time.sleep(min(wait, _LOOK_SECONDS))
            return None
        self._full = self._full + 1 if full else 0
        if self._full > _MOST_FULL_BATCHES or stream.arrived_bytes > 2 * _MOST_BYTES:
            return Ending.OUT_OF_THE_ORDINARY
        return self._store(stream)

    def _wait(self, stream: OpenLogStream) -> None:
        """Wait until something arrives, or is told."""
        told = self.listener.fileno()
        arrived, _, _ = select.select([it for it in (stream.fileno(), told) if it is not None], [], [], _IDLE_SECONDS)
        if stream.fileno() in arrived:
            # Of other people's transactions, the server tells one by one how far it is.
            time.sleep(_LOOK_SECONDS / 5)

    def _store(self, stream: OpenLogStream) -> Ending | None:
        """Store and register what has arrived; nothing where something is out of the ordinary."""
        started, folder = time.perf_counter(), new_folder()
        path = mounted_path(folder_path(self.record, folder))
        part = stream.take()
        if path is None:
            raise InternalError("a log is followed into a store that is no mounted path")
        if part is None:
            return Ending.OUT_OF_THE_ORDINARY
        with _removed_where_it_fails(path):
            read, file = _written(path, stream, part)
        unsigned = read.unsigned is not None and not self.following.warned_of_unsigned
        if part.end is None or unsigned or not _is_ordinary(read):
            shutil.rmtree(path, ignore_errors=True)
            return Ending.OUT_OF_THE_ORDINARY
        batch = batch_of(folder, read, self.following.clock)
        if batch is None:
            shutil.rmtree(path, ignore_errors=True)
        else:
            with _removed_where_it_fails(path):
                publish(path, file)
        stored = time.perf_counter()
        self._register(stream, part.end, _Stored(path, batch, stored_tokens(read, self.following.clock)))
        seconds = {"read_to_store": stored - started, "register": time.perf_counter() - stored}
        done = JobResult() if batch is None else result_of(batch, read, self.following.articles)
        self.result = self.result.plus(done.model_copy(update={"phases": seconds}))
        reach(Failpoint.ADVANCED)
        return None

    def _register(self, stream: OpenLogStream, end: Position, stored: _Stored | None = None) -> None:
        """Register the log up to there, and what is stored of it; then let it go."""
        batch, tokens = (None, ()) if stored is None else (stored.batch, stored.tokens)
        try:
            self.record = self.database.batches.register(self.record, batch, end, tokens=tokens, same_articles=True)
        except FencedError:
            if stored is not None:
                shutil.rmtree(stored.folder, ignore_errors=True)
            raise
        reach(Failpoint.REGISTERED)
        self._passed_over_at = time.monotonic()
        stream.confirm(end)

    def _pass_over(self, stream: OpenLogStream) -> None:
        """Let the log go where it has nothing for us."""
        position = stream.read_to
        if position is None or time.monotonic() - self._passed_over_at < self.following.polling_interval:
            return
        self._register(stream, position)

    def _record_progress(self) -> None:
        now = time.monotonic()
        news = self._recorded != self.result.transactions
        if now - self._progress_at < (_PROGRESS_SECONDS if news else _ALIVE_SECONDS):
            return
        self._progress_at, self._recorded = now, self.result.transactions
        so_far = self.following.so_far.plus(self.result)
        seconds = self.following.so_far.seconds + now - self._began_at
        self.database.history.record_progress(self.following.run, so_far.model_copy(update={"seconds": seconds}))


@contextmanager
def _removed_where_it_fails(folder: Path) -> Iterator[None]:
    """Leave no folder in a store that is full."""
    try:
        yield
    except ReplicationError:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _written(folder: Path, stream: OpenLogStream, part: LogPart) -> tuple[LogRead, str]:
    """Write the part's commands to a file that no reader sees yet. Return the account of it, and the file's name."""
    accounts: list[LogRead] = []
    file = write_few_commands(folder, read_part(stream.log, stream.filters, part, accounts.append))
    return accounts[-1], file


def _is_ordinary(read: LogRead) -> bool:
    """Return whether there is nothing in it but rows that are to be registered."""
    return read.complete and not (
        read.error
        or read.refusal
        or read.needs_article_id
        or read.schema_changes
        or read.scripts
        or read.definitions
        or read.notices
    )
