"""What is asked of a Subscriber's sequences: the interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Protocol

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.model.sequences import FoundSequences, SequenceState


class SequenceScope(Enum):
    """Say for which destinations sequences are read."""

    CREATED = auto()
    """Tables that setup made for this subscription."""
    ALL = auto()


class SubscriberSequences(Protocol):
    """Sequences that fill columns of the articles' destinations."""

    def may_exist(self, scope: SequenceScope) -> bool:
        """Return whether there may be one of such a destination, as far as one look tells."""
        ...

    def find(self, articles: Sequence[RegisteredArticle], scope: SequenceScope) -> FoundSequences:
        """Return how far they are. Waits a few seconds for them at most."""
        ...

    def fill_statement(self, table: TableName, column: str) -> str:
        """Return the statement that gives a column a sequence."""
        ...

    def advance(self, targets: Mapping[TableName, SequenceState]) -> list[TableName]:
        """Set sequences, by their names, and return those that were set: one that has meanwhile come as far stays as it
        is. Waits a few seconds for them at most."""
        ...
