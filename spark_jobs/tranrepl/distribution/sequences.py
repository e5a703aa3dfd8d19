"""Sequences of a Subscriber after rows have arrived: they are set to the Publisher's, so that neither end gives a
number that the other has given, once it is the Subscriber that is written to.

Nothing of a sequence is in the log. What the Publisher says of it after a delivery is above all that was delivered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tranrepl.errors import ReplicationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.model.sequences import (
    SequencePlan,
    SequenceState,
    plan_sequences,
    without_sequence,
)
from tranrepl.settings.publication import Subscription
from tranrepl.subscriber.base.subscriber import Subscriber
from tranrepl.subscriber.sequences import SequenceScope, SubscriberSequences

if TYPE_CHECKING:
    # A delivery without sequences does without the Publisher's modules.
    from tranrepl.publisher.publisher import Publisher

    OpenPublisher = Callable[[], AbstractContextManager[Publisher]]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UnfilledColumn:
    """A column that a sequence fills at the Publisher, and nothing at the Subscriber."""

    table: TableName
    """The Subscriber's."""
    name: str
    statement: str
    """Gives it a sequence."""


@dataclass(frozen=True, slots=True)
class AdvancedSequences:
    """What was done with the sequences of a Subscriber."""

    set: dict[TableName, SequenceState]
    refused: tuple[str, ...]
    """What was left as it is, in words, and why."""
    without: tuple[UnfilledColumn, ...] = ()


def follow_sequences(
    subscriber: Subscriber,
    settings: Subscription,
    articles: Callable[[], Sequence[RegisteredArticle]],
    publisher: OpenPublisher,
) -> tuple[str, ...]:
    """Set the sequences that the subscription wants to follow, after rows have arrived. Return what could not be done:
    whatever it is, the delivery was good. Articles are read, and the Publisher is asked, only where there may be a
    sequence to set."""
    sequences = subscriber.sequences
    if sequences is None or settings.sequences is False:
        return ()
    scope = SequenceScope.ALL if settings.sequences else SequenceScope.CREATED
    try:
        if not sequences.may_exist(scope):
            return ()
        done = advance_sequences(subscriber.where, sequences, scope, articles(), publisher)
    except ReplicationError as error:
        return (f"sequences were not set: {error.message}",)
    for name, state in done.set.items():
        log.info("set sequence %s to %d", name, state.last_value)
    return done.refused


def advance_sequences(
    where: str,
    sequences: SubscriberSequences,
    scope: SequenceScope,
    articles: Sequence[RegisteredArticle],
    publisher: OpenPublisher,
) -> AdvancedSequences:
    """Set the sequences of the articles' destinations to the Publisher's, where they are behind. Raises TransientError
    where a server does not answer, or somebody holds a sequence."""
    found = sequences.find(articles, scope)
    if scope is SequenceScope.CREATED and not found.by_column:
        return AdvancedSequences({}, ())
    with publisher() as opened:
        theirs, their_place = opened.sequences(articles), opened.where
    plan = plan_sequences(theirs, found)
    tables = {it.source: it.destination for it in articles}
    without = [(tables[it.article], it.name) for it in without_sequence(theirs, found)]
    return AdvancedSequences(
        _advanced(sequences, plan),
        (
            *lacking_rights(their_place, theirs.grants),
            *lacking_rights(where, found.grants),
            *(f"{where}: {it}" for it in plan.refused),
        ),
        tuple(UnfilledColumn(*it, sequences.fill_statement(*it)) for it in without),
    )


def _advanced(sequences: SubscriberSequences, plan: SequencePlan) -> dict[TableName, SequenceState]:
    return {name: plan.targets[name] for name in sequences.advance(plan.targets)} if plan.targets else {}


def lacking_rights(where: str, grants: Sequence[str]) -> tuple[str, ...]:
    """Return that our role may not know or set sequences, and what lets it; nothing where it may."""
    if not grants:
        return ()
    statements = " ".join(f"{it};" for it in grants)
    return (f"{where}: sequences were not set: rights are missing; their owner, or a superuser, may run: {statements}",)
