"""Plays random histories at a site: writers with transactions that stay open, and jobs that are killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

import psycopg

from support.history_site import TABLES, HistorySite
from support.killed_jobs import SiteJob, run_killed
from support.random_ddl import DDL, Chooser, Session, find_table
from support.schema_histories import (
    WRITERS,
    CleanUp,
    Deliver,
    History,
    Initialize,
    Read,
    SetUp,
    Step,
    Transact,
    Write,
)
from support.thread_streams import streams_as_threads
from support.whole_run import whole_run
from tranrepl.connections import Connection
from tranrepl.errors import ErrorKind, ErrorReport

_MOST_ROUNDS = 6
_AWAITS_SNAPSHOT = ("the initial snapshot of subscription", "the initial snapshot of article")
"""What a delivery says after a snapshot that was killed, or found a label that is not registered yet."""
_LOCK_TIMEOUT = "SET lock_timeout = '20ms'"


class Writer(Protocol):
    """One session at a Publisher."""

    def write(self, step: Write) -> None: ...

    def transact(self, what: str) -> None: ...

    def end(self, what: str = "commit") -> None: ...


@dataclass
class _Writer:
    """One session at the Publisher. What fails is rolled back to the last savepoint, or as a whole."""

    session: Session
    say: Callable[[str], None]
    savepoints: int = 0
    repeatable: bool = False
    """The transaction sees the catalogue as it was at its first query."""

    @property
    def is_open(self) -> bool:
        return self.session.info.transaction_status != psycopg.pq.TransactionStatus.IDLE

    def write(self, step: Write) -> None:
        published, random = TABLES[step.table], Random(step.seed)
        if not self.is_open:
            self.repeatable = step.seed % 4 == 0
            self.execute("BEGIN ISOLATION LEVEL REPEATABLE READ" if self.repeatable else "BEGIN")
        if self.repeatable and step.kind in DDL:
            # It may not see what another one has altered meanwhile, and would stop.
            return
        try:
            table = find_table(self.session, published.base)
            if table is None:
                return
            text = Chooser(self.session, table, random, published.held).statement(step.kind)
            if text is not None:
                self.execute(_within(random, text))
        except psycopg.Error as error:
            self._recover(error)

    def transact(self, what: str) -> None:
        if not self.is_open:
            return
        match what:
            case "commit" | "rollback":
                self.end(what)
            case "savepoint":
                self.savepoints += 1
                self.execute(f"SAVEPOINT s{self.savepoints}")
            case _ if self.savepoints:
                self.execute(f"{what} s{self.savepoints}")
                self.savepoints -= 1

    def end(self, what: str = "commit") -> None:
        self.savepoints = 0
        if self.is_open:
            self.execute(what)

    def execute(self, text: str) -> None:
        self.say(text)
        self.session.execute(text.encode())

    def _recover(self, error: psycopg.Error) -> None:
        self.say(f"-- {error.diag.message_primary}")
        if self.savepoints:
            self.execute(f"ROLLBACK TO s{self.savepoints}")
        else:
            self.end("rollback")


def _within(random: Random, text: str) -> str:
    """Return the statement, in a subtransaction of some kind or in none."""
    match random.randrange(8):
        case 0:
            return f"DO $do$ BEGIN {text}; EXCEPTION WHEN OTHERS THEN NULL; END $do$"
        case 1:
            return f"SAVEPOINT by_itself; {text}; RELEASE by_itself"
        case _:
            return text


@dataclass
class Player:
    """Plays a history at a site; `told` is what happened, as statements that can be typed again."""

    at: HistorySite
    writers: Sequence[Writer]
    told: list[str] = field(default_factory=list)

    def play(self, history: History) -> None:
        with streams_as_threads():
            for step in history.steps:
                self._do(step)
            self.end_transactions()
            self._run(SiteJob("log reader"))
            for name, killed_at in zip(self.at.names, history.last_snapshots, strict=False):
                if killed_at is not None:
                    self._run(SiteJob("snapshot", name), killed_at)
            self.drain()

    def _do(self, step: Step) -> None:
        match step:
            case Write():
                self.writers[step.writer].write(step)
            case Transact():
                self.writers[step.writer].transact(step.what)
            case Read():
                self._run(SiteJob("log reader"), step.killed_at)
            case Deliver():
                self._deliver(step)
            case Initialize():
                self._initialize(step)
            case CleanUp():
                self._clean_up(step)
            case SetUp():
                self._set_up(step)

    def _deliver(self, step: Deliver) -> None:
        for it in step.before:
            self.writers[it.writer].write(it)
        if step.before:
            self.end_transactions()
            self._run(SiteJob("log reader"))
        self._run(SiteJob("delivery", self._name(step.subscription)), step.killed_at)

    def _initialize(self, step: Initialize) -> None:
        # A snapshot waits for whoever writes.
        self.end_transactions()
        self._run(SiteJob(step.what, self._name(step.subscription)), step.killed_at)
        if step.killed_at is not None and step.completed:
            self._run(SiteJob("log reader"))
            self._run(SiteJob("snapshot", self._name(step.subscription)))

    def _clean_up(self, step: CleanUp) -> None:
        for it in step.before:
            self.writers[it.writer].write(it)
            self.end_transactions()
            self._run(SiteJob("log reader"))
        self._run(SiteJob("clean-up"), step.killed_at)

    def _set_up(self, step: SetUp) -> None:
        # Setup waits for whoever writes.
        self.end_transactions()
        before = self.at.site.publication
        if step.upd_cmd is not None:
            self.at.call_updates(step.table, step.upd_cmd)
        if step.killed_at is not None:
            self._run(SiteJob("setup"), step.killed_at)
        # Whoever sees it die runs it again; where it refuses, the file stays as it is registered.
        if self._run(SiteJob("setup"), allowed=ErrorKind.CONFIGURATION) is not None:
            self.at.site.publication = before

    def _name(self, number: int) -> str:
        return self.at.names[number % len(self.at.names)]

    def _run(
        self, job: SiteJob, killed_at: str | None = None, allowed: ErrorKind = ErrorKind.TRANSIENT
    ) -> ErrorReport | None:
        """Run a job; return the error that it ended with."""
        self.told.append(f"-- {job}" + (f", killed at {killed_at}" if killed_at else ""))
        if killed_at is None:
            error = job(self.at.site).error
            self._judge(error, allowed)
            return error
        if not run_killed(job, self.at.site, killed_at):
            self.told.append("-- it was not killed")
        return None

    def _judge(self, error: ErrorReport | None, allowed: ErrorKind = ErrorKind.TRANSIENT) -> None:
        """Accept transient errors, and those of a kind that a job may end with. Setup may refuse what the log, read no
        further yet, does not announce."""
        if error is None:
            return
        self.told.append(f"-- {error.kind}: {error.message}")
        awaits_snapshot = error.message.startswith(_AWAITS_SNAPSHOT)
        expected = error.kind in (ErrorKind.TRANSIENT, allowed) or awaits_snapshot
        assert expected, f"{error.message}; {error.remedy}"

    def end_transactions(self) -> None:
        for writer in self.writers:
            writer.end()

    def drain(self) -> None:
        """Deliver everything, and take the snapshots that anything waits for."""
        self.end_transactions()
        for _ in range(_MOST_ROUNDS):
            self.told.append("-- run of everything")
            results = whole_run(self.at.site)
            for result in results.values():
                self._judge(result.error)
            if not any(it.error or it.batches or it.commands or it.snapshot or it.notices for it in results.values()):
                return
        raise AssertionError(f"it never comes to rest: {results}")


@contextmanager
def player(at: HistorySite) -> Iterator[tuple[Player, Session]]:
    told: list[str] = []
    with ExitStack() as stack:
        sessions = [stack.enter_context(_session(at.site.databases.publisher)) for _ in range(WRITERS)]
        writers = tuple(_Writer(it, _say(told, number)) for number, it in enumerate(sessions))
        yield Player(at, writers, told), sessions[0]


def _say(told: list[str], number: int) -> Callable[[str], None]:
    return lambda text: told.append(f"/* {number} */ {text}")


def _session(connection: Connection) -> Session:
    session = psycopg.connect(**connection.libpq_parameters("test"), autocommit=True)  # type: ignore[arg-type]
    session.execute(_LOCK_TIMEOUT)
    return session
