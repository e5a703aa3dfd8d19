"""Random histories: steps of two writers at the Publisher, and of the jobs between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from random import Random

import psycopg

from support.child_job import ChildJob
from support.history_site import TABLES, HistorySite, Options
from support.random_ddl import DDL, ROWS, Chooser, Session, find_table
from support.site import Site
from support.whole_run import whole_run
from tranrepl.connections import Connection
from tranrepl.errors import ErrorKind, ErrorReport, ReplicationError
from tranrepl.failpoint import Failpoint
from tranrepl.jobs.results import JobResult

_WRITERS = 2
_SUBSCRIPTIONS = 3
_MOST_ROUNDS = 6
_WEIGHTS = {"rows": 8, "ddl": 6, "end": 4, "savepoint": 2, "read": 2, "deliver": 3, "initialize": 1}
_LOCK_TIMEOUT = "SET lock_timeout = '20ms'"

READER_FAILPOINTS = (
    *(Failpoint.FETCHED, Failpoint.STAGED, Failpoint.PUBLISHED),
    *(Failpoint.SCHEMA_CHANGED, Failpoint.REGISTERED, Failpoint.ADVANCED),
)
DELIVERY_FAILPOINTS = (
    *(Failpoint.BEGIN, Failpoint.APPLIED, Failpoint.BEFORE_COMMIT, Failpoint.CHANGE_BEGUN),
    *(Failpoint.COLUMNS_CHANGED, Failpoint.PROCEDURES_FOLLOWED, Failpoint.DEFINITION_RECORDED),
    *(Failpoint.WATERMARK_SET, Failpoint.AFTER_COMMIT),
)


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


@dataclass(frozen=True, slots=True)
class Initialize:
    """Snapshots of what waits for them, of one subscription."""

    subscription: int


Step = Write | Transact | Read | Deliver | Initialize


@dataclass(frozen=True, slots=True)
class History:
    options: Options
    steps: tuple[Step, ...]


def random_history(random: Random) -> History:
    """Return what `random` chooses; a quarter of the jobs is killed."""
    return History(_options(random), tuple(_step(random) for _ in range(random.randint(25, 60))))


def _options(random: Random) -> Options:
    upd_cmd = random.choice(["SCALL", "CALL", "MCALL", "XCALL"])
    return Options(
        statements=random.random() < 0.5,
        upd_cmd=upd_cmd,
        replica_identity="full" if upd_cmd in ("CALL", "MCALL", "XCALL") else random.choice(["full", "default"]),
        read_batch_size=random.choice([1, 2, 500_000]),
        commit_batch_size=random.choice([1, 3, 1000]),
        apply=random.choice(["auto", "serial"]),
    )


def _step(random: Random) -> Step:
    kind = random.choices(["rows", "ddl", "end", "savepoint", "read", "deliver", "initialize"], [8, 6, 4, 2, 2, 3, 1])[
        0
    ]
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
            return Read(_failpoint(random, READER_FAILPOINTS))
        case "deliver":
            return Deliver(subscription, _failpoint(random, DELIVERY_FAILPOINTS))
        case _:
            return Initialize(subscription)


def _failpoint(random: Random, points: tuple[Failpoint, ...]) -> str | None:
    return f"{random.choice(points)}:{random.randint(1, 3)}" if random.random() < 0.25 else None


@dataclass
class _Writer:
    """One session at the Publisher. What fails is rolled back to the last savepoint, or as a whole."""

    session: Session
    say: Callable[[str], None]
    savepoints: int = 0

    @property
    def is_open(self) -> bool:
        return self.session.info.transaction_status != psycopg.pq.TransactionStatus.IDLE

    def write(self, step: Write) -> None:
        published, random = TABLES[step.table], Random(step.seed)
        if not self.is_open:
            self.execute("BEGIN")
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


@dataclass(frozen=True, slots=True)
class _Job:
    """A job of a site, which a child process can run too."""

    name: str
    subscription: str = ""

    def __call__(self, site: Site) -> JobResult:
        try:
            match self.name:
                case "delivery":
                    return site.deliver(self.subscription)
                case "snapshot":
                    return site.take_snapshot(subscription=self.subscription)
                case _:
                    return site.read_log()
        except ReplicationError as error:
            return JobResult(error=error.report)

    def __str__(self) -> str:
        return f"{self.name} {self.subscription}".strip()


@dataclass
class Player:
    """Plays a history at a site; `told` is what happened, as statements that can be typed again."""

    at: HistorySite
    writers: tuple[_Writer, ...]
    told: list[str] = field(default_factory=list)

    def play(self, history: History) -> None:
        for step in history.steps:
            self._do(step)
        self.drain()

    def _do(self, step: Step) -> None:
        match step:
            case Write():
                self.writers[step.writer].write(step)
            case Transact():
                self.writers[step.writer].transact(step.what)
            case Read():
                self._run(_Job("log reader"), step.killed_at)
            case Deliver():
                self._run(_Job("delivery", self._name(step.subscription)), step.killed_at)
            case Initialize():
                # A snapshot waits for whoever writes.
                self.end_transactions()
                self._run(_Job("snapshot", self._name(step.subscription)))

    def _name(self, number: int) -> str:
        return self.at.names[number % len(self.at.names)]

    def _run(self, job: _Job, killed_at: str | None = None) -> None:
        self.told.append(f"-- {job}" + (f", killed at {killed_at}" if killed_at else ""))
        if killed_at is None:
            self._judge(job(self.at.site).error)
            return
        child = ChildJob(job, self.at.site, killed_at)
        if not child.killed():
            self.told.append("-- it was not killed")

    def _judge(self, error: ErrorReport | None) -> None:
        if error is None:
            return
        self.told.append(f"-- {error.kind}: {error.message}")
        assert error.kind is ErrorKind.TRANSIENT, f"{error.message}; {error.remedy}"

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
