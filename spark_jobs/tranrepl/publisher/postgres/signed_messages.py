"""Logical messages of ours in the log, tracer tokens among them: how they are written, and found again.

Every login of the Publisher may write messages, of any prefix. Ours are signed: a message begins with a MAC, in
hexadecimal, over its prefix, the id of its transaction and its text, made from a secret that setup creates. A message
that does not verify is none of ours, whatever it says.

Source: PostgreSQL documentation, "Logical Replication Message Formats", Message and Begin.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from psycopg.errors import InsufficientPrivilege

from tranrepl.errors import ConfigurationError
from tranrepl.model.arrays import Bytes, Ints
from tranrepl.model.tracer_token import TracerToken
from tranrepl.postgres.rights import lacking_right, our_role, quoted_role
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.publisher.changes import Buffer
from tranrepl.publisher.messages import Message, MessageKind
from tranrepl.publisher.postgres.message_secret import XIDS, MessageSecret, read_secrets

_PREFIX_AT = 10
"""After the kind, the flags and a position."""
_PREFIX_LENGTH = 16
_LENGTH_BYTES = 4
_TRANSACTIONAL = 1
XID_AT = 17
"""Where a Begin message has the id of its transaction."""
_SIGNATURE_LENGTH: Final = 64
_EMIT_FUNCTION = """
SELECT 'pg_catalog.' || p.oid::pg_catalog.regprocedure::text FROM pg_catalog.pg_proc p
 WHERE p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace AND p.proname = 'pg_logical_emit_message'
   AND p.proargtypes[2] = 'text'::pg_catalog.regtype
"""


@dataclass(frozen=True, slots=True)
class UnsignedMessage:
    """A message with a prefix of ours that is none of ours. `index`: among the messages of a batch; `xid`: of its
    transaction, 32 bits."""

    index: int
    kind: MessageKind
    xid: int


def prefix_of(kind: MessageKind) -> bytes:
    """Return a kind's prefix as the log has it: of 16 bytes, the end included."""
    return kind.value.encode() + b"\0"


def read_messages(
    buffer: Buffer, kinds: Bytes, starts: Ints, secrets: Collection[MessageSecret], open_xid: int = 0
) -> tuple[list[Message], list[UnsignedMessage]]:
    """Return the messages with a prefix of ours: those that verify, and those that do not, each in order.

    `open_xid` is the 32-bit id of the transaction that the first messages are in.
    """
    signed: list[Message] = []
    unsigned: list[UnsignedMessage] = []
    found = sorted((index, kind) for kind in MessageKind for index in _of_kind(kind, buffer, kinds, starts))
    begins = np.flatnonzero(kinds == ord("B")) if found else np.zeros(0, dtype=np.int64)
    for index, kind in found:
        before = int(np.searchsorted(begins, index))
        xid = int(buffer.uint32(starts[begins[before - 1 : before]] + XID_AT)[0]) if before else open_xid
        message = buffer.bytes[starts[index] : starts[index + 1]].tobytes()[_PREFIX_AT + _PREFIX_LENGTH :]
        signature, text = _divided(message[_LENGTH_BYTES:])
        if any(_verifies(it, kind, xid, signature, text) for it in secrets):
            signed.append(Message(index, kind, text))
        else:
            unsigned.append(UnsignedMessage(index, kind, xid))
    return signed, unsigned


def _of_kind(kind: MessageKind, buffer: Buffer, kinds: Bytes, starts: Ints) -> list[int]:
    """Return the indexes of transactional messages of one kind."""
    first, second = np.frombuffer(prefix_of(kind), dtype=">u8").astype(np.int64)
    messages = np.flatnonzero(kinds == ord("M"))
    messages = messages[starts[messages + 1] - starts[messages] >= _PREFIX_AT + _PREFIX_LENGTH]
    at = starts[messages] + _PREFIX_AT
    ours = (buffer.uint64(at) == first) & (buffer.uint64(at + 8) == second)
    ours &= buffer.bytes[starts[messages] + 1] == _TRANSACTIONAL
    return [int(it) for it in messages[ours]]


def _divided(content: bytes) -> tuple[bytes, bytes]:
    return content[:_SIGNATURE_LENGTH], content[_SIGNATURE_LENGTH:]


def _verifies(secret: MessageSecret, kind: MessageKind, xid: int, signature: bytes, text: bytes) -> bool:
    return secret.signs(xid) and hmac.compare_digest(signature, secret.signature(kind, xid, text))


def told_unsigned(messages: Sequence[UnsignedMessage], end: int) -> str | None:
    """Say that a message before the index `end` does not verify; None where all do. What it holds is anybody's, and is
    not repeated."""
    first = next((it for it in messages if it.index < end), None)
    if first is None:
        return None
    return (
        f"the Publisher's log holds a message of prefix {first.kind.value} that is not signed with setup's secret, by "
        f"transaction {first.xid}: it is ignored. Every login of the Publisher may write such messages"
    )


def write_message(session: Session, kind: MessageKind, publication: str, text: str, where: str) -> None:
    """Write a message in ASCII into the log, signed, in a transaction of its own.

    Raises psycopg.Error; MissingRightError where our role may not read the secret, and ConfigurationError where there
    is none.
    """
    secrets = read_secrets(session, where, publication)
    if not secrets:
        raise ConfigurationError(
            f"{where}: there is no secret to sign messages in the log with",
            remedy="run `tranrepl setup FILE`; what setup may not make, `tranrepl script FILE --publisher` prints",
        )
    content = text.encode("ascii")
    with session.transaction():
        row = session.execute("SELECT pg_catalog.pg_current_xact_id()::text").fetchone()
        xid = int(row[0]) % XIDS if row else 0
        message = (secrets[0].signature(kind, xid, content) + content).decode()
        session.execute("SELECT pg_catalog.pg_logical_emit_message(true, %s::text, %s::text)", [kind.value, message])


def post_token(session: Session, token: TracerToken, where: str) -> None:
    """Write a token into the log, in a transaction of its own. Raises MissingRightError where our role may not."""
    with translated_errors(where):
        try:
            write_message(session, MessageKind.TRACER, token.publication, token.message, where)
        except InsufficientPrivilege as error:
            role = our_role(session)
            grant = f"GRANT EXECUTE ON FUNCTION {_emit_function(session)} TO {quoted_role(role)}"
            raise lacking_right(where, f"role {role} may not write messages into the log", [grant]) from error


def _emit_function(session: Session) -> str:
    """Return the function that writes text into the log, with its arguments: PostgreSQL 17 gave it one more."""
    row = session.execute(_EMIT_FUNCTION).fetchone()
    return str(row[0]) if row else "pg_catalog.pg_logical_emit_message"
