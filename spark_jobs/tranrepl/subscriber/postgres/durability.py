"""Commits that waited for no disk: made to survive a crash of the server."""

from __future__ import annotations

from tranrepl.postgres.session import Session


def make_durable(session: Session) -> None:
    """Make all commits of the server durable that this session sees: a synchronous one, of the transaction that begins
    here or is open, writes out the log of those before it. The caller commits."""
    # A session that is kept commits without waiting for the disk again afterwards.
    session.execute("SET LOCAL synchronous_commit = on")
    # A transaction that has written nothing to the log, whether it has an xid or not, waits for no disk
    # (RecordTransactionCommit in PostgreSQL's xact.c). Nobody reads this message.
    session.execute("SELECT pg_logical_emit_message(true, 'tranrepl.durable', '')")
