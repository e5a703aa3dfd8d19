"""The servers to which a Publisher's connection may lead, and what may happen to them.

A log is a chain of transactions at positions 1, 2, 3 …: a position that is reached again, after the log went back,
holds another transaction. Transaction 1 stands for the rows with which a server began.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from typing import NamedTuple


class Event(Enum):
    """What may happen to a Publisher, and to what stands beside it."""

    CRASHED = auto()
    """The log is the same; the slot stands where the last checkpoint saved it."""
    PUBLISHER_RESTORED = auto()
    """From an older file-level backup, on the same timeline, with the slot of then, or without one. The server of
    before may live on: then one of them is a clone."""
    STANDBY_PROMOTED = auto()
    """A new timeline. The slot may stand behind the primary's, and the old primary may live on."""
    CONNECTION_MOVED = auto()
    """To the other server that lives on: split brain, or its end."""
    DUMPED_AND_RESTORED = auto()
    """Into another server, to which the connection then leads."""
    SLOT_DROPPED = auto()
    SLOT_MADE_ANEW = auto()
    """By hand, at the log's end."""
    DISTRIBUTION_RESTORED = auto()
    """The distribution database, from an older backup."""
    SUBSCRIBER_RESTORED = auto()
    """From an older backup."""
    SECOND_PUBLISHER = auto()
    """With the same database, publication and subscription names, and a distribution database of its own."""
    OVERTAKEN = auto()
    """By another log reader, which registers first what this one has read."""
    REINITIALIZED = auto()
    """`tranrepl reinitialize`, though nothing was refused."""


@dataclass(frozen=True, slots=True, eq=False)
class Transaction:
    """Made by `transaction`, which makes each but once."""

    position: int
    server: int
    """Which of the servers that took the position, one after another or side by side. We go by the commit time."""
    published: bool
    before: Transaction | None
    time: int
    """0 where nobody asks which came later."""


@cache
def transaction(position: int, server: int, published: bool, before: Transaction | None, time: int = 0) -> Transaction:
    return Transaction(position, server, published, before, time)


class Slot(NamedTuple):
    confirmed: int
    made: int
    """Where it was confirmed first: what is saved of it, until a checkpoint saves more."""
    name: int


class Server(NamedTuple):
    number: int
    """A copy of another server is another one."""
    system: int
    """The system identifier."""
    switches: tuple[int, ...]
    """Where each timeline before this one was left."""
    end: Transaction
    """The last one of the log, and by it all before."""
    slot: Slot | None
    standby: int | None
    """Up to where the standby of synchronized_standby_slots has the log; None where there is none."""

    @property
    def timeline(self) -> int:
        return len(self.switches) + 1

    @property
    def readable(self) -> int:
        """What whoever is bound to that standby may read."""
        return self.end.position if self.standby is None else self.standby


FIRST = transaction(1, 0, True, None)
FIRST_NAME, FORMER_NAME = 1, 0


def up_to(log: Transaction, position: int) -> Transaction:
    """Return the log's last transaction at or before a position."""
    while log.position > position and log.before is not None:
        log = log.before
    return log


def shown(log: Transaction) -> Transaction:
    """Return what a snapshot at the log's end shows: all up to its last published transaction."""
    while not log.published and log.before is not None:
        log = log.before
    return log


def published(log: Transaction, after: int, last: int) -> tuple[Transaction, ...]:
    """Return the published transactions after a position, up to another one."""
    found = []
    at: Transaction | None = up_to(log, last)
    while at is not None and at.position > after:
        if at.published:
            found.append(at)
        at = at.before
    return tuple(reversed(found))


def holds(log: Transaction, it: Transaction) -> bool:
    return up_to(log, it.position) is it


def written(server: Server, time: int) -> Iterator[Server]:
    """Yield the server with one more transaction, of our tables or of others that are not published."""
    for ours in (True, False):
        yield server._replace(end=transaction(server.end.position + 1, server.number, ours, server.end, time))


def crashed(server: Server) -> Server:
    return server._replace(slot=server.slot and server.slot._replace(confirmed=server.slot.made))


def restored(server: Server, number: int) -> Iterator[Server]:
    """Yield the server with an older copy of all files."""
    for position in range(1, server.end.position):
        switches = tuple(it for it in server.switches if it < position)
        for slot in _older_slots(server.slot, position):
            yield Server(number, server.system, switches, up_to(server.end, position), slot, None)


def promoted(server: Server, number: int) -> Iterator[Server]:
    """Yield a standby that may lag; the one of synchronized_standby_slots, where there is one."""
    positions = range(1, server.end.position + 1) if server.standby is None else (server.standby,)
    for position in positions:
        switches = (*server.switches, position)
        for slot in _older_slots(server.slot, position):
            if slot is not None or server.standby is None:
                yield Server(number, server.system, switches, up_to(server.end, position), slot, None)


def _older_slots(slot: Slot | None, position: int) -> set[Slot | None]:
    """Return what another copy may know of a slot, whose log ends at that position."""
    if slot is None:
        return {None}
    if slot.made > position:
        return {None, Slot(position, position, FORMER_NAME)}
    return {None, *(Slot(min(it, position), slot.made, slot.name) for it in (slot.made, slot.confirmed))}


def loaded_from_dump(number: int) -> Iterator[Server]:
    """Yield a server with the rows and without their history. A slot is created by hand, or by `tranrepl setup`."""
    for slot in (None, Slot(1, 1, FIRST_NAME)):
        yield Server(number, number, (), transaction(1, number, True, None), slot, None)
