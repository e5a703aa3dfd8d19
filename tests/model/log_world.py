"""What is known, where, of a Publisher's log, and which rules keep it true."""

from __future__ import annotations

from enum import Enum, IntEnum, auto
from typing import NamedTuple

from model.publisher_servers import Server, Transaction


class Mutation(Enum):
    """One rule of the protocol, broken."""

    # What a session at the Publisher proves before it reads: `Protocol._problem`.
    SYSTEM_IDENTIFIER_IS_NOT_COMPARED = auto()
    TIMELINES_ARE_NOT_COMPARED = auto()
    A_SLOT_PAST_WHAT_IS_REGISTERED_IS_READ = auto()
    A_SLOT_BEFORE_THE_START_IS_READ = auto()
    """One of before it was made anew, as an older copy of the server has it."""
    AN_END_BEFORE_WHAT_IS_REGISTERED_IS_NO_MATTER = auto()
    THE_LOG_BEHIND_THE_SLOT_IS_NOT_LOOKED_AT = auto()
    """From its confirmed position to the registered one."""
    EARLIER_COMMITS_ARE_ALLOWED = auto()
    """There, other transactions are allowed that were committed before that position was registered."""
    SNAPSHOTS_ARE_NOT_LOOKED_AT = auto()
    """A Subscriber may be ahead of what is registered, by its snapshot."""
    # Reading and delivering.
    SESSIONS_ARE_NOT_COMPARED = auto()
    """Those that read may be at another server, or another start of it, than the one that looked."""
    READERS_DO_NOT_LOOK_AT_THE_SLOT = auto()
    REGISTERING_DOES_NOT_COMPARE = auto()
    REGISTERING_COMPARES_THE_POSITION_ONLY = auto()
    STANDBYS_ARE_NOT_WAITED_FOR = auto()
    WATERMARKS_DO_NOT_NAME_THE_PUBLISHER = auto()
    SUBSCRIBER_IS_NOT_COMPARED = auto()
    """Its last transaction with what is registered."""
    # Reinitialising.
    A_NEW_SLOT_HAS_THE_FORMER_NAME = auto()
    """So that an older copy of the server seems to have it."""
    REGISTRATION_IS_FORGOTTEN_LAST = auto()
    """When the new slot is there."""
    COMMANDS_ARE_KEPT = auto()
    SUBSCRIPTIONS_DO_NOT_WAIT = auto()
    FORMER_WATERMARK_IS_LEFT = auto()
    """That of the Publisher of before, when another one's snapshot begins."""
    SNAPSHOT_DOES_NOT_PROVE_THE_PUBLISHER = auto()
    SNAPSHOT_DOES_NOT_WAIT_FOR_STANDBYS = auto()


OLD = frozenset(Mutation) - {
    Mutation.A_SLOT_PAST_WHAT_IS_REGISTERED_IS_READ,
    Mutation.EARLIER_COMMITS_ARE_ALLOWED,
    Mutation.REGISTERING_DOES_NOT_COMPARE,
    Mutation.REGISTRATION_IS_FORGOTTEN_LAST,
    Mutation.COMMANDS_ARE_KEPT,
    Mutation.SUBSCRIPTIONS_DO_NOT_WAIT,
}
"""How it was: no identity; a slot past what is registered was all that was refused."""


class Registration(NamedTuple):
    """What the distribution database knows of the log."""

    system: int
    timeline: int
    slot: int
    """Its name."""
    start: int
    read: Transaction
    """The last one of what is registered. Of one that is not published, only the position is known."""
    time: int | None
    """When it was registered, where anybody asks."""

    @property
    def position(self) -> int:
        return self.read.position


class Snapshot(NamedTuple):
    system: int
    timeline: int
    position: int
    last: Transaction
    """That it shows."""


class Distributor(NamedTuple):
    registration: Registration | None
    commands: tuple[Transaction, ...]
    waits: bool
    """The subscription, for its snapshot."""
    snapshot: Snapshot | None
    """That it began with, or is to begin with."""
    keyed: int
    """The Publisher that the subscription's watermark names."""


class Subscriber(NamedTuple):
    rows: Transaction | None
    """The last one applied; None while a snapshot is loaded."""
    watermarks: tuple[tuple[int, int], ...]
    """By Publisher."""

    def watermark(self, key: int) -> int | None:
        return dict(self.watermarks).get(key)

    def at(self, rows: Transaction | None, key: int, watermark: int) -> Subscriber:
        return Subscriber(rows, tuple(sorted((dict(self.watermarks) | {key: watermark}).items())))


class Step(IntEnum):
    IDLE = auto()
    # A run.
    OPEN = auto()
    READ = auto()
    REGISTERED = auto()
    DELIVERING = auto()
    # An administrator.
    FORGOTTEN = auto()
    DROPPED = auto()
    MADE = auto()
    EXPORTED = auto()
    BEGUN = auto()
    LOADED = auto()


class Runner(NamedTuple):
    step: Step
    registration: Registration | None = None
    """As it was found."""
    read: Registration | None = None
    """As it is to be."""
    commands: tuple[Transaction, ...] = ()
    connected: bool = False
    """Its session still is at the server where it looked, which was not restarted since."""
    fenced: bool = False


class Administrator(NamedTuple):
    step: Step
    snapshot: Snapshot | None = None
    connected: bool = False


NO_RUN, NOBODY = Runner(Step.IDLE), Administrator(Step.IDLE)


class World(NamedTuple):
    server: Server
    """To which the connection leads."""
    other: Server | None
    distributor: Distributor
    subscriber: Subscriber
    backup: Distributor | Subscriber | None
    second: int
    """The state of a second Publisher with one transaction: 0, it is not there; 1, not delivered; 2, delivered."""
    runner: Runner
    administrator: Administrator
    refused: bool
    writes: int
    """How many may still come."""
    faults: int


class Start(NamedTuple):
    """How it begins: all is delivered."""

    standby: int | None = None
    """Where the standby of synchronized_standby_slots stands."""
    waits: bool = False
    """The subscription has no snapshot yet."""
