"""Logical messages of ours among the messages of a log.

Source: PostgreSQL documentation, "Logical Replication Message Formats", Message.
"""

from __future__ import annotations

import numpy as np

from tranrepl.publisher.changes import Buffer, Bytes, Ints

_PREFIX_AT = 10
"""After the kind, the flags and a position."""
_TRANSACTIONAL = 1


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
