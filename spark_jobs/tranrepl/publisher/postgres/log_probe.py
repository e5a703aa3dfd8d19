"""A look at the log before it is read: does it hold anything for us, a change of a published table or a message?

Other programs write messages into the log too. They are counted by the server, and ignored.
"""

from __future__ import annotations

from dataclasses import dataclass

from psycopg.errors import (
    CharacterNotInRepertoire,
    InternalError_,
    ProgramLimitExceeded,
    QueryCanceled,
    UntranslatableCharacter,
)

from tranrepl.model.position import FIRST_POSITION
from tranrepl.postgres.session import Session
from tranrepl.publisher.messages import MessageKind
from tranrepl.publisher.postgres.lsn import lsn_number, lsn_text, position_of
from tranrepl.publisher.postgres.message_secret import whole_xid
from tranrepl.publisher.postgres.signed_messages import prefix_of
from tranrepl.publisher.publisher import Probe

_FIRST = 1
_PART = 1000
"""Output messages after which a look ends, with the transaction that reaches them, where what is not ours is shown."""
_PROBE_SECONDS = 2.0
_ROW_MESSAGES = b"IUDT"
_STREAM_START = b"S"
_LOGICAL_MESSAGE = b"M"
_WHOLE = ("messages", "true", "proto_version", "1")
_AS_IT_IS_DECODED = ("messages", "true", "proto_version", "2", "streaming", "on")
_STREAMED_FROM = "4MB"
"""A transaction of more shows its changes before its end is decoded."""

_FOUND = Probe(True, FIRST_POSITION)
# A message begins with its kind, in a streamed transaction an id of four bytes, flags of one byte and a position of
# eight; its prefix comes next.
_QUERY = """
WITH shown AS (
SELECT lsn, data, get_byte(data, 0) AS kind
  FROM pg_catalog.pg_logical_slot_peek_binary_changes(%(slot)s, %(up_to)s::pg_lsn, %(messages)s,
                                                      VARIADIC %(options)s::text[]))
SELECT count(*),
       coalesce(bool_or(kind = ANY(%(changes)s) OR kind = %(logical_message)s AND (
           substr(data, 11, %(length)s) = ANY(%(prefixes)s) OR substr(data, 15, %(length)s) = ANY(%(prefixes)s)
       )), false),
       coalesce(max(lsn), '0/0'::pg_lsn)::text,
       (array_agg(substr(data, 2, 4)) FILTER (WHERE kind = %(stream_start)s))[1]
  FROM shown
"""


@dataclass(frozen=True, slots=True)
class _ProbedMessages:
    """The first messages: how many, whether a change or a message of ours is among them, where the last one stands,
    and the transaction that they are a part of, where they are one."""

    messages: int
    found_change: bool
    last: str
    streamed: bytes | None


def probe_log(session: Session, slot: str, publication: str, up_to: int) -> Probe:
    """Look for the first change of a published table, or message of ours, before `up_to`, reading no further than that.

    A look that takes longer than `_PROBE_SECONDS` counts as one that found some. A large transaction is not decoded to
    its end for it, where it is known to be committed; of any other, nothing counts before its end.
    """
    # Before PostgreSQL 15 the log shows transactions that changed nothing of ours; messages of other programs, always.
    last, limits = up_to, (_FIRST, _PART) if session.info.server_version >= 150000 else (_PART,)
    for messages in limits:
        look = _look_once(session, slot, publication, up_to, messages)
        if look is None or look.found_change:
            return _FOUND
        if look.messages < messages:
            return Probe(False, position_of(up_to))
        last = lsn_number(look.last)
    return Probe(False, position_of(last))


def _look_once(session: Session, slot: str, publication: str, up_to: int, messages: int) -> _ProbedMessages | None:
    """Probe the log for so many messages; return None where it takes too long to say."""
    arguments = (slot, lsn_text(up_to), messages)
    look = _look(session, arguments, [*_AS_IT_IS_DECODED, "publication_names", publication])
    if look is None or look.streamed is None:
        return look
    if look.found_change and _is_committed(session, int.from_bytes(look.streamed, "big")):
        return look
    return _look(session, arguments, [*_WHOLE, "publication_names", publication])


def _look(session: Session, arguments: tuple[str, str, int], options: list[str]) -> _ProbedMessages | None:
    """Probe the log once; return None where it takes too long, a change is longer than a server's buffer, or text
    cannot be shown to the session."""
    timeout, (slot, up_to, messages) = str(int(_PROBE_SECONDS * 1000)), arguments
    parameters = {
        "slot": slot,
        "up_to": up_to,
        "messages": messages,
        "options": options,
        "changes": list(_ROW_MESSAGES),
        "logical_message": _LOGICAL_MESSAGE[0],
        "stream_start": _STREAM_START[0],
        "prefixes": [prefix_of(it) for it in MessageKind],
        "length": len(prefix_of(MessageKind.SCHEMA)),
    }
    try:
        with session.transaction():
            session.execute(
                "SELECT pg_catalog.set_config('statement_timeout', %s, true), "
                "pg_catalog.set_config('logical_decoding_work_mem', %s, true)",
                [timeout, _STREAMED_FROM],
            )
            row = session.execute(_QUERY, parameters).fetchone()
    except (
        QueryCanceled,
        ProgramLimitExceeded,
        InternalError_,
        CharacterNotInRepertoire,
        UntranslatableCharacter,
    ):
        return None
    return _ProbedMessages(*row) if row else None


def _is_committed(session: Session, xid: int) -> bool:
    row = session.execute("SELECT pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text").fetchone()
    if row is None:
        return False
    whole = str(whole_xid(xid, int(row[0])))
    status = session.execute("SELECT pg_catalog.pg_xact_status(%s::text::xid8)", [whole]).fetchone()
    return status == ("committed",)
