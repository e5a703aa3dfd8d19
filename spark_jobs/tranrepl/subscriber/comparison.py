"""What validation asks of a Subscriber: its tables as they can be compared, and statements that correct their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tranrepl.errors import ConfigurationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.bitmask import bitmask
from tranrepl.model.commands import Method, Operation, Propagation
from tranrepl.model.comparison import Checksum, ColumnForm, ComparedEnd

Values = list[str | None]


@dataclass(frozen=True, slots=True)
class ComparableTable:
    """An article's table at the Subscriber."""

    article: RegisteredArticle
    forms: tuple[ColumnForm, ...]
    """The form of each published column, for both ends."""
    types: Mapping[str, str]
    """The published columns' types at the Subscriber, by name."""
    columns: tuple[str, ...]
    """Names of all columns that are there."""


@dataclass(frozen=True, slots=True)
class Correction:
    """One command. Values are in the Publisher's text form, by published column; None where they do not travel too."""

    article: RegisteredArticle
    operation: Operation
    before: Values | None
    after: Values | None
    changed: tuple[int, ...] | None = None
    """Positions of the columns that an UPDATE sets."""

    @property
    def mask(self) -> bytes | None:
        """The bitmap of the columns that an UPDATE sets."""
        if self.changed is None:
            return None
        return bitmask([at + 1 for at in self.changed], len(self.article.columns))


class SubscriberComparison(Protocol):
    """A Subscriber as it was when this was opened: nothing that is committed later shows in it."""

    @property
    def tables(self) -> Sequence[ComparableTable]: ...

    @property
    def problems(self) -> Sequence[tuple[RegisteredArticle, ConfigurationError]]:
        """Articles whose tables are not as they were set up."""
        ...

    def native_hashes(self) -> tuple[object, ...] | None:
        """Return what the server's own hash functions make of sample values; None where they are not used. A Publisher
        that says the same hashes alike."""
        ...

    def end(self, table: ComparableTable, checksum_by: Checksum, part_bytes: int) -> ComparedEnd:
        """Return the table's end, read in parts of about that many bytes where the database can."""
        ...

    @property
    def begin(self) -> str:
        """The statement that begins a transaction, for a person to run."""
        ...

    def statement(self, correction: Correction) -> str:
        """Return the statement that makes the correction, with its values, for a person to run."""
        ...


_STATEMENT = Propagation(Method.STATEMENT)


def by_statements(article: RegisteredArticle) -> RegisteredArticle:
    """Return the article as applied by plain statements: a generated procedure may have been edited by hand."""
    return article.model_copy(update={"ins_cmd": _STATEMENT, "upd_cmd": _STATEMENT, "del_cmd": _STATEMENT})
