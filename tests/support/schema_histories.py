"""Random histories: steps of two writers at the Publisher, and of the jobs between them."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from support.history_site import TABLES, Options
from support.killed_jobs import (
    CHANGE_FAILPOINTS,
    CLEANUP_FAILPOINTS,
    COMMIT_FAILPOINTS,
    READER_FAILPOINTS,
    SNAPSHOT_FAILPOINTS,
    STREAM_FAILPOINTS,
    random_failpoint,
)
from support.random_ddl import DDL, ROWS
from tranrepl.distributor.merging import FEWEST_BATCHES
from tranrepl.failpoint import Failpoint

WRITERS = 2
_CALL_SYNTAXES = ("SCALL", "CALL", "MCALL", "XCALL")
_SUBSCRIPTIONS = 3
_MARIADB = 1
"""Which subscription's, of those that a site names."""
_WEIGHTS = {
    "rows": 8,
    "ddl": 6,
    "end": 4,
    "savepoint": 2,
    "read": 2,
    "deliver": 3,
    "initialize": 1,
    "clean up": 0.5,
    "set up": 0.5,
}


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


@dataclass(frozen=True, slots=True)
class CleanUp:
    """A run of the clean-up, killed at a failpoint where one is named."""

    killed_at: str | None = None
    before: tuple[Write, ...] = ()
    """What is committed before, each stored in a batch of its own, for there to be something to put together."""


@dataclass(frozen=True, slots=True)
class SetUp:
    """A run of setup, killed at a failpoint where one is named."""

    table: int
    upd_cmd: str | None = None
    """The call syntax that the file has for the table's UPDATEs from then on; None: as before."""
    killed_at: str | None = None


Step = Write | Transact | Read | Deliver | Initialize | CleanUp | SetUp


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
    upd_cmd = random.choice(_CALL_SYNTAXES)
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
    writer, subscription = random.randrange(WRITERS), random.randrange(_SUBSCRIPTIONS)
    match kind:
        case "rows" | "ddl":
            what = random.choice(list(ROWS if kind == "rows" else DDL))
            return _write(random, what, writer)
        case "end":
            return Transact(writer, random.choice(["commit", "commit", "commit", "rollback"]))
        case "savepoint":
            return Transact(writer, random.choice(["savepoint", "savepoint", "rollback to", "release"]))
        case "read":
            return Read(random_failpoint(random, READER_FAILPOINTS))
        case "deliver":
            return _delivery(random, subscription, options)
        case "clean up":
            return _clean_up(random)
        case "set up":
            return _set_up(random, options)
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
    return Deliver(subscription, killed_at, tuple(_write(random, it) for it in kinds))


def _clean_up(random: Random) -> CleanUp:
    killed_at = random_failpoint(random, CLEANUP_FAILPOINTS, 0.5)
    small = FEWEST_BATCHES + 2 if killed_at or random.random() < 0.5 else 0
    return CleanUp(killed_at, tuple(_write(random, random.choice(list(ROWS))) for _ in range(small)))


def _set_up(random: Random, options: Options) -> SetUp:
    """Choose a file in which UPDATEs go by another syntax, where the log has all that any of them wants."""
    table, killed_at = random.randrange(len(TABLES)), random_failpoint(random, (Failpoint.DEFINITIONS_WRITTEN,), 0.5)
    if options.statements or options.replica_identity != "full":
        return SetUp(table)
    return SetUp(table, random.choice(_CALL_SYNTAXES), killed_at)


def _write(random: Random, kind: str, writer: int = 0) -> Write:
    return Write(writer, kind, random.randrange(len(TABLES)), random.getrandbits(32))


def _delivery_failpoints(subscription: int, options: Options) -> tuple[Failpoint, ...]:
    streams = STREAM_FAILPOINTS if options.streams > 1 else ()
    return COMMIT_FAILPOINTS + streams + (CHANGE_FAILPOINTS * 2 if subscription == _MARIADB else ())
