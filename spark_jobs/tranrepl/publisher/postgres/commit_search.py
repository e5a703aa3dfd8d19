"""Whether a transaction that was read before is still in the Publisher's log."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tranrepl.postgres.session import Session
from tranrepl.publisher.postgres.lsn import lsn_text, seqno_of

_COMMIT = ord("C")
_POSTGRES_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)

_AS_IT_IS = "SELECT pg_catalog.set_config('client_encoding', pg_catalog.current_setting('server_encoding'), true)"
# With messages: a transaction of nothing else, as a tracer token's, is not shown without.
# A Commit message: byte 1 flags, 2 to 9 the LSN of the commit, 10 to 17 its end, 18 to 25 its time in microseconds.
_FIND = """
SELECT substr(data, 19, 8)
  FROM pg_catalog.pg_logical_slot_peek_binary_changes(
       %s, %s::pg_lsn, NULL, 'proto_version', '1', 'publication_names', %s, 'binary', 'true', 'messages', 'true')
 WHERE get_byte(data, 0) = %s AND substr(data, 3, 8) = %s
"""


def holds_commit(session: Session, slot: str, publication: str, lsn: int, latest: datetime) -> bool:
    """Return whether a transaction of the publication commits at `lsn`, in the log after what the slot has confirmed,
    and did so at `latest` or before.

    Where a log went back and has grown again, a transaction at the same place is a later one. The log is decoded up to
    there.
    """
    parameters = [slot, lsn_text(lsn + 1), publication, _COMMIT, seqno_of(lsn)]
    # No value is looked at: none may keep the server from showing the commit.
    with session.transaction():
        session.execute(_AS_IT_IS)
        rows = session.execute(_FIND, parameters).fetchall()
    return any(_time(bytes(stamp)) <= latest for (stamp,) in rows)


def _time(stamp: bytes) -> datetime:
    return _POSTGRES_EPOCH + timedelta(microseconds=int.from_bytes(stamp, "big", signed=True))
