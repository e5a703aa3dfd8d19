"""Logical messages of ours among the messages of a log.

Source: PostgreSQL documentation, "Logical Replication Message Formats", Message.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from psycopg import sql

from tranrepl.model.commands import Operation
from tranrepl.postgres.session import Session
from tranrepl.publisher.changes import Buffer, Bytes, Ints

_PREFIX_AT = 10
"""After the kind, the flags and a position."""
_TRANSACTIONAL = 1


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message that becomes a command of no article: its index, and what its command is."""

    index: int
    operation: Operation
    text: str


@dataclass(slots=True)
class FoundMessages:
    """Such messages of one batch, in order, and what is told of those that are none of ours."""

    messages: list[FoundMessage] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


class MessageReader(Protocol):
    """Reads one kind of message."""

    def read(self, buffer: Buffer, kinds: Bytes, starts: Ints) -> FoundMessages: ...


def messages_of(prefix: bytes, buffer: Buffer, kinds: Bytes, starts: Ints) -> Ints:
    """Return the indexes of transactional messages with a prefix of 16 bytes, its end included, shape (messages,)."""
    first, second = np.frombuffer(prefix, dtype=">u8").astype(np.int64)
    messages = np.flatnonzero(kinds == ord("M"))
    at = starts[messages] + _PREFIX_AT
    ours = (buffer.uint64(at) == first) & (buffer.uint64(at + 8) == second)
    ours &= buffer.bytes[starts[messages] + 1] == _TRANSACTIONAL
    return np.asarray(messages[ours])


def content(prefix: bytes, message: bytes) -> bytes:
    """Return what a message with the prefix says, without the length before it."""
    return message[_PREFIX_AT + len(prefix) + 4 :]


def write_message(session: Session, prefix: bytes, text: str) -> None:
    """Write a message into the log, in a transaction of its own. Raises psycopg.Error."""
    statement = sql.SQL("SELECT pg_catalog.pg_logical_emit_message(true, {}, {})")
    session.execute(statement.format(sql.Literal(prefix.rstrip(b"\0").decode()), sql.Literal(text)))
