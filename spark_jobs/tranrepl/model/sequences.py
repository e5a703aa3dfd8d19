"""Sequences that give columns their values: where one is at each end, and where the Subscriber's must go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tranrepl.model.names import TableName


@dataclass(frozen=True, slots=True)
class SequenceDefinition:
    """The numbers that a sequence can give, and in which order."""

    start: int
    increment: int
    minimum: int
    maximum: int
    cycles: bool
    """It begins again after its last number, so that none of its numbers says how far it is."""

    def holds(self, value: int) -> bool:
        return self.minimum <= value <= self.maximum


@dataclass(frozen=True, slots=True)
class SequenceState:
    """How far a sequence is."""

    last_value: int
    """Every number up to it may have been handed out, also to sessions that have not used it yet."""
    is_called: bool
    """Without it, `last_value` itself is the next number."""

    def next_number(self, increment: int) -> int:
        """Return the number that a sequence of this increment gives next, also where that is beyond its last one."""
        return self.last_value + (increment if self.is_called else 0)

    def is_behind(self, other: SequenceState, increment: int) -> bool:
        """Return whether a sequence of this increment may give a number again that one at `other` has handed out."""
        ahead = self.next_number(increment) - other.last_value
        distance = ahead if increment > 0 else -ahead
        return distance <= 0 if other.is_called else distance < 0


@dataclass(frozen=True, slots=True, order=True)
class ArticleColumn:
    """A column of an article's table."""

    article: TableName
    """The article's source."""
    name: str

    def __str__(self) -> str:
        return f"{self.name} of {self.article}"


@dataclass(frozen=True, slots=True)
class ColumnSequence:
    """The sequence that gives a column its values."""

    name: TableName
    definition: SequenceDefinition
    state: SequenceState | None
    """None where our role may not know it."""


@dataclass(frozen=True, slots=True)
class FoundSequences:
    """The sequences of articles' columns at one server."""

    by_column: Mapping[ArticleColumn, ColumnSequence] = field(default_factory=dict)
    grants: tuple[str, ...] = ()
    """Statements that give our role the rights that it lacks on them."""


@dataclass(frozen=True, slots=True)
class SequencePlan:
    """What is to be done with a Subscriber's sequences."""

    targets: Mapping[TableName, SequenceState]
    """Where sequences are set, by their names; the numbers of all others are beyond the Publisher's already."""
    refused: tuple[str, ...]
    """Which cannot be set, in words, and why."""


def plan_sequences(publisher: FoundSequences, subscriber: FoundSequences) -> SequencePlan:
    """Compare both ends, column by column. A sequence of several columns goes as far as any of theirs."""
    targets: dict[TableName, SequenceState] = {}
    refused: list[str] = []
    for column, found in sorted(subscriber.by_column.items()):
        theirs = publisher.by_column.get(column)
        if theirs is None or theirs.state is None or found.state is None:
            continue
        reason = _why_not(theirs.definition, theirs.state, found.definition)
        if reason is not None:
            refused.append(f"sequence {found.name}, of column {column}, is left as it is: {reason}")
        elif targets.get(found.name, found.state).is_behind(theirs.state, found.definition.increment):
            targets[found.name] = theirs.state
    return SequencePlan(targets, tuple(refused))


def _why_not(publisher: SequenceDefinition, state: SequenceState, subscriber: SequenceDefinition) -> str | None:
    if publisher.cycles or subscriber.cycles:
        return "with CYCLE, its numbers do not say how far it is"
    if (publisher.increment > 0) != (subscriber.increment > 0):
        return "it counts in the other direction than the Publisher's"
    if not subscriber.holds(state.last_value):
        return (
            f"the Publisher's is at {state.last_value}, and its own numbers go from {subscriber.minimum} to "
            f"{subscriber.maximum}"
        )
    return None


def without_sequence(publisher: FoundSequences, subscriber: FoundSequences) -> Iterable[ArticleColumn]:
    """Return columns that a sequence fills at the Publisher, and none at the Subscriber."""
    return sorted(publisher.by_column.keys() - subscriber.by_column.keys())
