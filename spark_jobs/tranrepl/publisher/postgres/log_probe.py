"""A look at the log before it is read: does it hold a change of a published table at all?"""

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
from tranrepl.publisher.postgres.lsn import lsn_number, lsn_text, position_of
from tranrepl.publisher.publisher import Probe

_MESSAGES_BEFORE_15 = 1000
_PROBE_SECONDS = 2.0
_ROW_MESSAGES = b"IUDT"
_STREAM_START = b"S"
_WHOLE = ("proto_version", "1")
_AS_IT_IS_DECODED = ("proto_version", "2", "streaming", "on")
_STREAMED_FROM = "4MB"
"""A transaction of more shows its changes before its end is decoded."""
_XIDS = 1 << 32


_FOUND = Probe(True, FIRST_POSITION)


@dataclass(frozen=True, slots=True)
class _ProbedMessages:
    """The first messages: how many, whether a change is among them, where the last one stands, and the transaction
    that they are a part of, where they are one."""

    messages: int
    found_change: bool
    last: str
    streamed: bytes | None


def probe_log(session: Session, slot: str, publication: str, up_to: int) -> Probe:
    """Look for the first change of a published table before `up_to`, reading no further than that.

    A look that takes longer than `_PROBE_SECONDS` counts as one that found some. A large transaction is not decoded to
    its end for it, where it is known to be committed; of any other, nothing counts before its end.
    """
    messages = 1 if session.info.server_version >= 150000 else _MESSAGES_BEFORE_15
    arguments = (slot, lsn_text(up_to), messages)
    look = _look(session, arguments, [*_AS_IT_IS_DECODED, "publication_names", publication])
    if look is not None and look.streamed is not None:
        if look.found_change and _is_committed(session, int.from_bytes(look.streamed, "big")):
            return _FOUND
        look = _look(session, arguments, [*_WHOLE, "publication_names", publication])
    if look is None or look.found_change:
        return _FOUND
    # Before PostgreSQL 15 the log shows transactions that changed nothing of ours: pass over them part by part.
    return Probe(False, position_of(up_to if look.messages < messages else lsn_number(look.last)))


def _look(session: Session, arguments: tuple[str, str, int], options: list[str]) -> _ProbedMessages | None:
    """Probe the log once; return None where it takes too long, a change is longer than a server's buffer, or text
    cannot be shown to the session."""
    timeout = str(int(_PROBE_SECONDS * 1000))
    try:
        with session.transaction():
            session.execute(
                "SELECT pg_catalog.set_config('statement_timeout', %s, true), "
                "pg_catalog.set_config('logical_decoding_work_mem', %s, true)",
                [timeout, _STREAMED_FROM],
            )
            row = session.execute(
                "SELECT count(*), coalesce(bool_or(get_byte(data, 0) = ANY(%s)), false), "
                "coalesce(max(lsn), '0/0'::pg_lsn)::text, "
                "(array_agg(substr(data, 2, 4)) FILTER (WHERE get_byte(data, 0) = ANY(%s)))[1] "
                "FROM pg_catalog.pg_logical_slot_peek_binary_changes(%s, %s::pg_lsn, %s, VARIADIC %s::text[])",
                [list(_ROW_MESSAGES), list(_STREAM_START), *arguments, options],
            ).fetchone()
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


def whole_xid(xid: int, near: int) -> int:
    """Return a transaction's 64-bit id, from the 32 bits that the log has and the id of a transaction of about that
    time."""
    return near + (xid - near + _XIDS // 2) % _XIDS - _XIDS // 2
