"""Schema changes on their way to a Subscriber: which a definition lacks, and errors that name the one that fails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tranrepl.errors import ConfigurationError, ErrorDetails, ReplicationError
from tranrepl.model.schema_change import SchemaChange
from tranrepl.subscriber.batching.steps import SchemaStep


@contextmanager
def naming_change(step: SchemaStep) -> Iterator[None]:
    """Let an error say that the delivery stopped before a schema change, and where that is stored."""
    try:
        yield
    except ReplicationError as error:
        error.add(ErrorDetails(schema_change=True))
        if isinstance(error, ConfigurationError):
            error.add(ErrorDetails(xact_seqno=step.xact_seqno.hex(), command_id=step.command_id))
        raise


def chain_of_changes(changes: Sequence[SchemaChange], recorded: int, wanted: int) -> list[SchemaChange] | None:
    """Return the changes, of all in order, that lead from one definition of an article to another; None where they do
    not lead there."""
    chain, at = [], recorded
    for change in changes:
        if at == wanted:
            break
        if change.article_id == at and change.new_article_id is not None:
            chain.append(change)
            at = change.new_article_id
    return chain if at == wanted else None
