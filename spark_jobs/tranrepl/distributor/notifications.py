"""Notifications among a publication's agents, by NOTIFY in the distribution database.

Nothing depends on a notification: an agent looks by itself when it has waited long enough. A pooler that lends its
sessions for a transaction lets none through.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from enum import StrEnum
from multiprocessing.connection import wait
from typing import Self

import psycopg
import sqlalchemy as sa
from psycopg import sql

from tranrepl.connections import Connection
from tranrepl.errors import ReplicationError
from tranrepl.postgres.session import Session, connect

_CONNECT_AGAIN_SECONDS = 5.0

log = logging.getLogger(__name__)


class Notification(StrEnum):
    REGISTERED = "registered"
    """The log reader has registered commands, or setup has."""
    HANDOVER = "handover"
    """Another job needs the Publisher's log: the continuous log reader hands it over."""
    TRIED = "tried"
    """Somebody who listens wants to know whether notifications come through. It asks for nothing."""


REGISTERED, HANDOVER, TRIED = Notification.REGISTERED, Notification.HANDOVER, Notification.TRIED
_KNOWN = frozenset(Notification)


def channel(publication_id: int) -> str:
    """Return the name of a publication's channel."""
    return f"tranrepl_{publication_id}"


def notify(connection: sa.Connection, publication_id: int, notification: Notification) -> None:
    """Tell everybody who listens, once the transaction is committed; nobody, where it is not."""
    connection.execute(sa.select(sa.func.pg_notify(channel(publication_id), notification.value)))


@dataclass(slots=True)
class Listener:
    """Listens to a publication's channel, in a session of its own: `with Listener(...) as listener`.

    A session that is lost, or that cannot be opened, is opened again some seconds later; what was notified meanwhile is
    never heard.
    """

    connection: Connection
    publication_id: int
    _session: Session | None = field(default=None, init=False)
    _open_again_at: float = field(default=0.0, init=False)

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int | None:
        """Return the descriptor that becomes readable when a notification has come; None while no session is open."""
        return None if self._session is None else self._session.fileno()

    def wait(self, timeout: float) -> set[Notification]:
        """Return the notifications since the last call, each once: as soon as there is one, and nothing after
        `timeout` seconds. Returns at once where the session is lost: one may have been missed."""
        deadline = time.monotonic() + timeout
        if self._session is None:
            self._open()
            if self._session is None:
                time.sleep(max(0.0, deadline - time.monotonic()))
            return set()
        try:
            received = list(self._session.notifies(timeout=timeout, stop_after=1))
        except psycopg.Error as error:
            self._say_lost(error)
            self.close()
            return set()
        return {Notification(it.payload) for it in received if it.payload in _KNOWN}

    def received(self) -> set[Notification]:
        """Return the notifications since the last call, each once, without waiting."""
        descriptor = self.fileno()
        if descriptor is not None and not wait([descriptor], 0.0):
            return set()
        return self.wait(0.0)

    def _open(self) -> None:
        if time.monotonic() < self._open_again_at:
            return
        try:
            self._session = connect(self.connection, "tranrepl listening", autocommit=True)
            self._session.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel(self.publication_id))))
        except (ReplicationError, psycopg.Error) as error:
            self._say_lost(error)
            self.close()

    def _say_lost(self, error: Exception) -> None:
        log.warning("no notifications for some seconds: %s", " ".join(str(error).split()))

    def close(self) -> None:
        """Listen no more, for some seconds at least: the next `wait` after them opens another session."""
        self._open_again_at = time.monotonic() + _CONNECT_AGAIN_SECONDS
        if self._session is not None:
            self._session.close()
            self._session = None
