"""A part of a Publisher's log, to be read: where it begins and ends, and what reading it gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from tranrepl.errors import DataError, ErrorReport, ReplicationError
from tranrepl.model.arrays import Bools
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.position import Position, Positions
from tranrepl.model.schema_change import SchemaChange
from tranrepl.publisher.changes import Changes, RefusedChange
from tranrepl.publisher.log_read import ReadFailure


@dataclass(frozen=True, slots=True)
class Limits:
    """A batch ends with the transaction that reaches one of these, or is `last_xact_seqno`."""

    transactions: int
    message_bytes: int
    last_xact_seqno: bytes | None = None


class NeedsArticleId(Exception):  # noqa: N818 — reading ends, and nothing is wrong
    """A schema change makes a definition, and no number is left for it."""


@dataclass(frozen=True, slots=True)
class SchemaReading:
    """How schema changes are read."""

    article_ids: tuple[int, ...] = ()
    """Numbers for definitions that a reading finds; it ends before the transaction that needs one more."""
    follows: bool = True
    """False: a table that is another one than its article stops the reading, whatever the log says of it."""
    definitions: tuple[str, ...] | None = None
    """Digests of setup's pending definitions, of which the log has a message: a reading ends before that. None: not
    known."""
    begins_with: tuple[SchemaChange, ...] = ()
    """Changes to the definitions that the log is read by: they are the first commands of the first transaction."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing is read after the last whole transaction: a published table was altered, or what follows cannot be
    held together."""

    error: ErrorReport
    lacks_old_rows: bool = False
    """Whether changes lack old rows in the log, though the article of the error needs them."""
    rows_unknown: str | None = None
    """Why the log does not say which rows the article of the error has now; None where it does."""


@dataclass(frozen=True, slots=True)
class LogPart:
    """Changes that were read at a time, in commit order. `transactions` are the whole ones that end in it, also those
    that changed nothing of ours; nothing is read after a part with a `refusal`, or one that reached a limit."""

    changes: Changes | None
    last_commit: bytes | None = None
    """`xact_seqno` of the last transaction that ends in it."""
    end: Position | None = None
    """All of the log before this is read then; None where no transaction ends in it."""
    transactions: int = 0
    message_bytes: int = 0
    decode_seconds: float = 0.0
    limit_reached: bool = False
    refusal: Refusal | None = None
    unreadable: RefusedChange | None = None
    """The first change with a value that cannot be read."""
    definitions: Sequence[RegisteredArticle] = ()
    """Definitions of articles that schema changes in it made: new ones, and those in force of which more is known."""
    notices: Sequence[str] = ()
    """Notes on schema changes that are left alone, and on scripts that no Subscriber runs."""
    unsigned: str | None = None
    """Notes on messages that only look like ours, and are ignored; None where there are none."""
    needs_definitions: bool = False
    """The part ends before a schema change whose definition has no number yet (`SchemaReading`), or before setup's
    message."""
    redefinition: str | None = None
    """The part ends before setup's message of this digest."""
    ends_in_transaction: bool = False
    """The part ends in the middle of a transaction, for want of a number."""


class LogReadError(Exception):
    """Reading failed: what came before is not whole. Its own error is in it."""

    def __init__(self, error: ReplicationError, failure: ReadFailure | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.failure = failure


class UnclearRowsError(Exception):
    """The log does not say for some rows whether a filter is true: `rows`, shape (rows,), are those of which it does
    not."""

    def __init__(self, reason: str, rows: Bools) -> None:
        super().__init__(reason)
        self.reason = reason
        self.rows = rows


class RowFilters(Protocol):
    """Articles' row filters, evaluated as the Publisher evaluates them."""

    def columns(self, article: RegisteredArticle) -> tuple[int, ...]:
        """Return the positions of the published columns that the article's filter looks at."""
        ...

    def matches(self, article: RegisteredArticle, rows: pa.StringArray, columns: Sequence[pa.StringArray]) -> Bools:
        """Return for which rows the article's filter is true; NULL is not.

        `columns` hold the values of `columns(article)`, one array a column; `rows` the same, one string a row, no two
        alike for different values. Raises DataError where the condition itself fails, as a division by zero does;
        UnclearRowsError where the values of some rows are not known.
        """
        ...


@dataclass(frozen=True, slots=True)
class TooLong:
    """A change that is too long for the Publisher to show."""

    readable_to: Position | None
    """Everything before this can be read; None: nothing."""
    error: DataError
    """It names the transaction, and the article as far as it can be known."""


class LogRange(Protocol):
    """A part of the log, read in whole transactions, within limits, for some articles.

    Reading changes nothing at the Publisher, so it may be repeated at will. The range travels pickled inside the
    function that Spark runs, password and all: options of a data source would show it in Spark's plans and UI.
    """

    @property
    def where(self) -> str:
        """The Publisher whose log it is, as messages name it."""
        ...

    @property
    def positions(self) -> Positions: ...

    @property
    def articles(self) -> Sequence[RegisteredArticle]: ...

    @property
    def start(self) -> Position: ...

    @property
    def up_to(self) -> Position: ...

    def side_by_side(self) -> Sequence[LogRange]:
        """Return the ranges that it is best cut into, in order, each to be read by itself."""
        ...

    def between(self, start: Position, up_to: Position) -> LogRange:
        """Return another part of the same log, read in the same way."""
        ...

    def row_filters(self) -> AbstractContextManager[RowFilters | None]:
        """Open what evaluates the articles' row filters; None where they have none."""
        ...

    def changes(self) -> Iterator[LogPart]:
        """Read and decode, part by part. Raises LogReadError."""
        ...

    def find_too_long(self) -> TooLong | None:
        """Look for the first change that is too long to be read."""
        ...

    def old_rows_remedy(self, article: RegisteredArticle) -> str:
        """Return the way on where the log lacks old rows that the article needs."""
        ...
