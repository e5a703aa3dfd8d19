"""Whether what is registered of a log lies on it: the question to a Publisher, and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from tranrepl.model.position import Position


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """Which server's log it is, and which of its timelines."""

    system: str
    """The server's identifier: the same on copies of it that write no log of their own."""
    timeline: int
    """On which it writes now: another number from where its history was left, as after a restore."""
    ancestors: Mapping[int, Position] = field(default_factory=dict)
    """Earlier timelines that this log came from, each with the position at which it was left."""

    def left_at(self, timeline: int) -> Position | None:
        """Return where this log's history left a timeline; None where it never was on it."""
        return self.ancestors.get(timeline)


class RegisteredLog(Protocol):
    """What the distribution database knows of the log of one publication."""

    @property
    def position(self) -> Position:
        """All of the log before it is registered."""
        ...

    @property
    def proof(self) -> str | None:
        """What was registered with `position` to tell the log before it from another one (`Publisher.proof`)."""
        ...

    @property
    def start(self) -> Position | None:
        """Where reading it began; None where that is not known."""
        ...

    @property
    def timeline(self) -> int | None:
        """Return the timeline of the log, at `position`."""
        ...

    @property
    def last(self) -> bytes | None:
        """`xact_seqno` of the last registered transaction."""
        ...

    @property
    def last_commit_time(self) -> datetime | None:
        """Return a time by which the last registered transaction was committed; None where it is not known."""
        ...

    def renew(self) -> None:
        """Read it again: another log reader may have registered more since."""
        ...

    def latest_snapshot(self) -> bytes | None:
        """Return up to which transaction the latest snapshot shows the Publisher."""
        ...

    def delivered(self) -> str:
        """Return in words how far the Subscribers are."""
        ...


@dataclass(frozen=True, slots=True)
class Continuation:
    """Where reading goes on."""

    position: Position
    """How far the log is registered from now on: less than before, where the log went back and lost nothing of that."""
    timeline: int
    start: Position
    """Where to read from: every transaction before is registered, and none after, though `position` may be later."""
