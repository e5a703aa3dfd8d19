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
    """Transactions with a command."""
    commands_by_article: dict[int, int] = {}
    """By `article_id`."""
    first_xact_seqno: str | None = None
    """Of the first command, in hexadecimal."""
    last_xact_seqno: str | None = None
    first_commit_time: int | None = None
    """The earliest of the commands', in µs since 1970 UTC."""
    last_commit_time: int | None = None
    """The latest."""
    last_commit_lsn: int | None = None
    """Commit LSN of the last whole transaction read."""
    end_lsn: int | None = None
    """All of the log before this was read; the slot may stand here once the batch is registered."""
    complete: bool = False
    """The log was read up to the plan's bound; False: there is more."""
    read_seconds: float = 0.0
    """Spent waiting for the log."""
    decode_seconds: float = 0.0
    transform_seconds: float = 0.0
    refusal: ErrorReport | None = None
    """Reading stopped before the end of a transaction: a published table was altered, or a change cannot become a
    command. What came before that transaction is good."""
    lacks_old_rows: bool = False
    """The refusal is of changes whose old rows are not in the log, though an article (the refusal's) needs them."""
    error: ErrorReport | None = None
    """Reading failed: the commands are not whole."""
    too_long: bool = False
    """It failed where a message is longer than a server's buffer."""
