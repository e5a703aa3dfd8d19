"""The account of one read of a Publisher's log."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from tranrepl.errors import ErrorReport


class LogRead(BaseModel):
    """What was read and why reading ended. LSNs as integers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    transactions: int = 0
    """Whole transactions, also those that changed nothing of ours."""
    message_bytes: int = 0
    changed_transactions: int = 0
    """Transactions with a change of a published table."""
    changes_by_article: dict[int, int] = {}
    """By `article_id`."""
    first_xact_seqno: str | None = None
    """Of the first change read, in hexadecimal."""
    last_xact_seqno: str | None = None
    first_commit_time: int | None = None
    """The earliest of the changes', in µs since 1970 UTC."""
    last_commit_time: int | None = None
    """The latest."""
    last_commit_lsn: int | None = None
    """Commit LSN of the last whole transaction read."""
    end_lsn: int | None = None
    """All of the log before this was read; the slot may stand here once the batch is registered."""
    complete: bool = False
    """The log was read up to the plan's bound; False: there is more."""
    read_seconds: float = 0.0
    decode_seconds: float = 0.0
    mismatch: ErrorReport | None = None
    """Reading stopped inside a transaction, because a published table was altered."""
    error: ErrorReport | None = None
    """Reading failed: the changes read are not whole."""
