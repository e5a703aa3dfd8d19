"""Schema changes as a reading of the log meets them: decided where they stand, and given an `article_id` each."""

from __future__ import annotations

from dataclasses import dataclass

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.commands import Operation
from tranrepl.model.schema_change import SchemaChange


@dataclass(frozen=True, slots=True)
class SchemaReading:
    """How schema changes are read."""

    article_ids: tuple[int, ...] = ()
    """Numbers for definitions that a reading finds; it ends before the transaction that needs one more."""


@dataclass(frozen=True, slots=True)
class PlacedSchemaChange:
    """A schema change, and the place among the changes of a batch at which it stands."""

    place: int
    article: RegisteredArticle
    """The definition before."""
    change: SchemaChange


@dataclass(frozen=True, slots=True)
class PlacedMessage:
    """A message that is a command of no article, and the place among the changes of a batch at which it stands."""

    place: int
    operation: Operation
    text: str
    """The command's after image."""
