"""What agents of a publication tell one another at once, by NOTIFY in the distribution database.

Nothing depends on a notification: whoever waits looks by itself when it has waited long enough. A pooler that lends its
sessions for a transaction lets none through.
"""

from __future__ import annotations

import logging
import select
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

import psycopg
import sqlalchemy as sa
from psycopg import sql

from tranrepl.connections import Connection
from tranrepl.errors import ReplicationError
from tranrepl.postgres.session import Session, connect

_CONNECT_AGAIN_SECONDS = 5.0

log = logging.getLogger(__name__)


class Event(StrEnum):
    REGISTERED = "registered"
    """The log reader has registered commands, or setup has."""
    STOP = "stop"
    """One agent is asked to end what it has at hand (`Notification.agent`)."""
    YIELD = "yield"
    """Another job needs the Publisher's log: whoever reads it lets go of it for a moment."""
    TRIED = "tried"
    """Somebody who listens wants to know whether notifications come through. It asks for nothing."""


@dataclass(frozen=True, slots=True)
class Notification:
    event: Event
    agent: str = ""
    """Whom it is for, of `Event.STOP`: a name that no other run of any agent has. Else it is for all."""

    @property
    def payload(self) -> str:
        return f"{self.event}:{self.agent}" if self.agent else str(self.event)

    @classmethod
    def of(cls, payload: str) -> Notification | None:
        """Return what a payload says; None where it is of another version."""
        event, _, agent = payload.partition(":")
        return cls(Event(event), agent) if event in set(Event) else None


REGISTERED = Notification(Event.REGISTERED)
YIELD = Notification(Event.YIELD)
TRIED = Notification(Event.TRIED)


def stop(agent: str) -> Notification:
    """Return what asks one agent to end."""
    return Notification(Event.STOP, agent)


def channel(publication_id: int) -> str:
    """Return the name of a publication's channel."""
    return f"tranrepl_{publication_id}"


def notify(connection: sa.Connection, publication_id: int, notification: Notification) -> None:
    """Tell everybody who listens, once the transaction is committed; nobody, where it is not."""
    connection.execute(sa.select(sa.func.pg_notify(channel(publication_id), notification.payload)))


@dataclass(slots=True)
class Listener:
    """Listens to a publication's channel, in a session of its own: `with Listener(...) as listener`.

    A session that is lost, or that cannot be opened, is opened again some seconds later; what was told meanwhile is
    never heard.
    """

    connection: Connection
    publication_id: int
    says_when_lost: bool = True
    _session: Session | None = field(default=None, init=False)
    _open_again_at: float = field(default=0.0, init=False)

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int | None:
        """Return the descriptor that becomes readable when something was told; None while no session is open."""
        return None if self._session is None else self._session.fileno()

    def wait(self, timeout: float) -> set[Notification]:
        """Return what was told since the last call, each once: as soon as there is something, and nothing after
        `timeout` seconds. Returns at once where the session is lost: something may have been told."""
        deadline = time.monotonic() + timeout
        if self._session is None:
            self._open()
            if self._session is None:
                time.sleep(max(0.0, deadline - time.monotonic()))
            return set()
        try:
            told = list(self._session.notifies(timeout=timeout, stop_after=1))
        except psycopg.Error as error:
            self._say_lost(error)
            self.close()
            return set()
        return {it for it in map(Notification.of, (one.payload for one in told)) if it is not None}

    def told(self) -> set[Notification]:
        """Return what was told since the last call, each once, without waiting."""
        descriptor = self.fileno()
        if descriptor is not None and not select.select([descriptor], [], [], 0)[0]:
            return set()
        return self.wait(0.0)

    def _open(self) -> None:
        if time.monotonic() < self._open_again_at:
            return
        try:
            session = connect(self.connection, "tranrepl listening", autocommit=True)
            session.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel(self.publication_id))))
        except (ReplicationError, psycopg.Error) as error:
            self._open_again_at = time.monotonic() + _CONNECT_AGAIN_SECONDS
            self._say_lost(error)
            return
        self._session = session

    def _say_lost(self, error: Exception) -> None:
        if self.says_when_lost:
            log.warning("no notifications for some seconds: %s", " ".join(str(error).split()))

    def close(self) -> None:
        """Listen no more, for some seconds at least: the next `wait` after them opens another session."""
        if self._session is not None:
            self._session.close()
            self._session = None
            self._open_again_at = time.monotonic() + _CONNECT_AGAIN_SECONDS
