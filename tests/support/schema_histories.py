"""Random histories: steps of two writers at the Publisher, and of the jobs between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from random import Random

import psycopg

from support.history_site import TABLES, HistorySite, Options
from support.killed_jobs import (
    CHANGE_FAILPOINTS,
    COMMIT_FAILPOINTS,
    READER_FAILPOINTS,
    SNAPSHOT_FAILPOINTS,
    STREAM_FAILPOINTS,
    SiteJob,
    random_failpoint,
    run_killed,
)
from support.random_ddl import DDL, ROWS, Chooser, Session, find_table
from support.streams_here import streams_as_threads
from support.whole_run import whole_run
from tranrepl.connections import Connection
from tranrepl.errors import ErrorKind, ErrorReport
from tranrepl.failpoint import Failpoint

_WRITERS = 2
_SUBSCRIPTIONS = 3
_MARIADB = 1
"""Which subscription's, of those that a site names."""
_MOST_ROUNDS = 6
_WEIGHTS = {"rows": 8, "ddl": 6, "end": 4, "savepoint": 2, "read": 2, "deliver": 3, "initialize": 1}
_TURNED = "line"
"""The table whose key gets another order, which stops what did not see it."""
_NOT_REPEATABLE = ("add label", "rename label")
_AWAITS_SNAPSHOT = "the initial snapshot of subscription"
"""What a delivery says after a reinitialization that was killed."""
_LOCK_TIMEOUT = "SET lock_timeout = '20ms'"


@dataclass(frozen=True, slots=True)
class Write:
    """A statement of one writer; `seed` chooses rows, columns and types from what the table has then."""

    writer: int
    kind: str
    table: int
    seed: int


@dataclass(frozen=True, slots=True)
class Transact:
    """`savepoint`, `rollback to`, `release`, `commit` or `rollback` of one writer, where it has anything open."""

    writer: int
    what: str


@dataclass(frozen=True, slots=True)
class Read:
    """A run of the log reader, killed at a failpoint where one is named."""

    killed_at: str | None = None


@dataclass(frozen=True, slots=True)
class Deliver:
    """A run of the distribution job of one subscription, killed at a failpoint where one is named."""

    subscription: int
    killed_at: str | None = None
    before: tuple[Write, ...] = ()
    """What is committed and read before, for the job to have something to do where it is to be killed."""


@dataclass(frozen=True, slots=True)
class Initialize:
    """Snapshots of what waits for them, or of all (`reinitialization`), of one subscription, killed at a failpoint
    where one is named."""

    subscription: int
    what: str
    killed_at: str | None = None
    completed: bool = False
    """It is completed at once, where it was killed: until then nothing is delivered."""


Step = Write | Transact | Read | Deliver | Initialize


@dataclass(frozen=True, slots=True)
class History:
    options: Options
    steps: tuple[Step, ...]
    last_snapshots: tuple[str | None, ...] = ()
    """Where the last snapshots that anything waits for are killed first, by subscription."""


def random_history(random: Random) -> History:
    """Return what `random` chooses; a quarter of the jobs is killed."""
    options = _options(random)
    steps = tuple(_step(random, options) for _ in range(random.randint(25, 60)))
    last = (random_failpoint(random, SNAPSHOT_FAILPOINTS) for _ in range(_SUBSCRIPTIONS))
    return History(options, steps, tuple(last))


def _options(random: Random) -> Options:
    upd_cmd = random.choice(["SCALL", "CALL", "MCALL", "XCALL"])
    return Options(
        statements=random.random() < 0.5,
        upd_cmd=upd_cmd,
        replica_identity="full" if upd_cmd in ("CALL", "MCALL", "XCALL") else random.choice(["full", "default"]),
        read_batch_size=random.choice([1, 2, 500_000]),
        commit_batch_size=random.choice([1, 3, 1000]),
        apply=random.choice(["auto", "serial"]),
        streams=random.choice([1, 1, 2]),
    )


def _step(random: Random, options: Options) -> Step:
    (kind,) = random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
    writer, subscription = random.randrange(_WRITERS), random.randrange(_SUBSCRIPTIONS)
    match kind:
        case "rows" | "ddl":
            what = random.choice(list(ROWS if kind == "rows" else DDL))
            return Write(writer, what, random.randrange(len(TABLES)), random.getrandbits(32))
        case "end":
            return Transact(writer, random.choice(["commit", "commit", "commit", "rollback"]))
        case "savepoint":
            return Transact(writer, random.choice(["savepoint", "savepoint", "rollback to", "release"]))
        case "read":
            return Read(random_failpoint(random, READER_FAILPOINTS))
        case "deliver":
            return _delivery(random, subscription, options)
        case _:
            killed_at = random_failpoint(random, SNAPSHOT_FAILPOINTS, 0.6)
            # One that is to be killed has something to do.
            what = "reinitialization" if killed_at else random.choice(["snapshot", "reinitialization"])
            return Initialize(subscription, what, killed_at, completed=random.random() < 0.7)


def _delivery(random: Random, subscription: int, options: Options) -> Deliver:
    killed_at = random_failpoint(random, _delivery_failpoints(subscription, options), 0.4)
    if killed_at is None:
        return Deliver(subscription)
    kinds = random.choices(list(ROWS), k=4)
    if killed_at.startswith(CHANGE_FAILPOINTS):
        kinds[1:1] = [random.choice(list(DDL)), random.choice(list(DDL))]
    writes = [Write(0, it, random.randrange(len(TABLES)), random.getrandbits(32)) for it in kinds]
    return Deliver(subscription, killed_at, tuple(writes))


def _delivery_failpoints(subscription: int, options: Options) -> tuple[Failpoint, ...]:
    streams = STREAM_FAILPOINTS if options.streams > 1 else ()
    return COMMIT_FAILPOINTS + streams + (CHANGE_FAILPOINTS * 2 if subscription == _MARIADB else ())


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
        if self.repeatable and (step.kind in _NOT_REPEATABLE or (step.kind in DDL and published.base == _TURNED)):
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
    writers: tuple[_Writer, ...]
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
                for it in step.before:
                    self.writers[it.writer].write(it)
                if step.before:
                    self.end_transactions()
                    self._run(SiteJob("log reader"))
                self._run(SiteJob("delivery", self._name(step.subscription)), step.killed_at)
            case Initialize():
                # A snapshot waits for whoever writes.
                self.end_transactions()
                self._run(SiteJob(step.what, self._name(step.subscription)), step.killed_at)
                if step.killed_at is not None and step.completed:
                    self._run(SiteJob("log reader"))
                    self._run(SiteJob("snapshot", self._name(step.subscription)))

    def _name(self, number: int) -> str:
        return self.at.names[number % len(self.at.names)]

    def _run(self, job: SiteJob, killed_at: str | None = None) -> None:
        self.told.append(f"-- {job}" + (f", killed at {killed_at}" if killed_at else ""))
        if killed_at is None:
            self._judge(job(self.at.site).error)
            return
        if not run_killed(job, self.at.site, killed_at):
            self.told.append("-- it was not killed")

    def _judge(self, error: ErrorReport | None) -> None:
        if error is None:
            return
        self.told.append(f"-- {error.kind}: {error.message}")
        awaits_snapshot = error.message.startswith(_AWAITS_SNAPSHOT)
        assert error.kind is ErrorKind.TRANSIENT or awaits_snapshot, f"{error.message}; {error.remedy}"

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
def player(at: HistorySite) -> Iterator[Player]:
    told: list[str] = []
    with ExitStack() as stack:
        sessions = [stack.enter_context(_session(at.site.databases.publisher)) for _ in range(_WRITERS)]
        writers = tuple(_Writer(it, _say(told, number)) for number, it in enumerate(sessions))
        yield Player(at, writers, told)


def _say(told: list[str], number: int) -> Callable[[str], None]:
    return lambda text: told.append(f"/* {number} */ {text}")


def _session(connection: Connection) -> Session:
    session = psycopg.connect(**connection.libpq_parameters("test"), autocommit=True)  # type: ignore[arg-type]
    session.execute(_LOCK_TIMEOUT)
    return session
