"""The account of one read of a Publisher's log."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from tranrepl.errors import ErrorReport
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.position import StoredPosition
from tranrepl.model.schema_change import SchemaChange


class ReadFailure(StrEnum):
    """Why reading failed, where something else can be tried."""

    TOO_LONG = "too long"
    """A change is longer than a server's buffer."""
    TOO_MANY_READERS = "too many readers"
    """Others read the log, as many as the server allows."""


class ReadSchemaChange(BaseModel):
    """A schema change, and the command that carries it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    xact_seqno: str
    """In hexadecimal."""
    command_id: int
    change: SchemaChange


class ReadScript(BaseModel):
    """The name of a script for the Subscribers, and the command that carries it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    xact_seqno: str
    """In hexadecimal."""
    command_id: int
    name: str
    digest: str


class ReadToken(BaseModel):
    """A tracer token, and the command that carries it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    xact_seqno: str
    """In hexadecimal."""
    command_id: int
    token: str
    commit_time: int
    """µs since 1970 UTC, by the Publisher's clock."""


class LogRead(BaseModel):
    """What was read and why reading ended."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    transactions: int = 0
    """Whole transactions, also those that changed nothing of ours."""
    message_bytes: int = 0
    changed_transactions: int = 0
    """Transactions with a command."""
    commands_by_article: dict[int, int] = {}
    """Numbers of commands, by `article_id`."""
    first_xact_seqno: str | None = None
    """The first command's, in hexadecimal."""
    last_xact_seqno: str | None = None
    first_commit_time: int | None = None
    """The earliest of the commands', in µs since 1970 UTC."""
    last_commit_time: int | None = None
    """Commit time of the latest transaction, in µs since 1970 UTC."""
    last_commit: str | None = None
    """`xact_seqno` of the last whole transaction read, in hexadecimal."""
    end: StoredPosition | None = None
    """All of the log before this was read; it may be kept from here once the batch is registered."""
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
    rows_unknown: str | None = None
    """Why the log does not say which rows the article of the refusal has now; None where it does."""
    schema_changes: tuple[ReadSchemaChange, ...] = ()
    """In the order of their commands."""
    scripts: tuple[ReadScript, ...] = ()
    """In the order of their commands."""
    tokens: tuple[ReadToken, ...] = ()
    """In the order of their commands."""
    definitions: tuple[RegisteredArticle, ...] = ()
    """Definitions of articles that schema changes made: new ones, and those in force of which more is known."""
    notices: tuple[str, ...] = ()
    """Notes on schema changes that are left alone, and on scripts that no Subscriber runs."""
    unsigned: str | None = None
    """A note on the first message that only looks like ours, and is ignored; None where there is none."""
    needs_definitions: bool = False
    """Reading ended before a schema change that makes a definition, for which there was no number, or before setup's
    message."""
    redefinition: str | None = None
    """Reading ended before setup's message of this digest."""
    ends_in_transaction: bool = False
    """It ended so in the middle of a transaction, which may be written in part."""
    error: ErrorReport | None = None
    """Reading failed: the commands are not whole."""
    failure: ReadFailure | None = None
    """Why it failed, where something else can be tried."""
