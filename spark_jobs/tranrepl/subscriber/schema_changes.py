"""Schema changes at a Subscriber: which of their parts are still to be done, whatever the database.

A part that somebody has done by hand is passed over and told; one that contradicts the table that is there is refused.
The definition that an article's table and procedures stand at is recorded at the Subscriber
(`MSsubscription_articles`): it moves in the transaction of the change, or where DDL ends a transaction, right after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum, auto

from tranrepl.errors import ConfigurationError, ErrorDetails, ReplicationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.schema_change import SchemaChange
from tranrepl.subscriber.batching.steps import SchemaStep
from tranrepl.subscriber.custom_calls import other_columns


class Recorded(Enum):
    """What the recorded definition says of a schema change."""

    BEFORE = auto()
    """The table and the procedures stand at the old definition: the change is to be done."""
    AFTER = auto()
    """They stand at the new one or a later one."""


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


def standing(
    step: SchemaStep, recorded: Mapping[str, int], articles: Mapping[int, RegisteredArticle], where: str
) -> Recorded:
    """Return what the definitions recorded at a Subscriber, by article (source), say of a change. `articles` are all
    definitions, by number.

    Definitions of an article get growing numbers; its name may be another one's meanwhile. Raises ConfigurationError
    where the table stands at an earlier one than the change begins with.
    """
    names = [str(it.source) for it in (step.old, step.change, step.new) if it is not None]
    by_name = next((recorded[it] for it in names if it in recorded), None)
    table = step.old.source_object_id
    of_table = (it for it in recorded.values() if it in articles and articles[it].source_object_id == table)
    found = max(of_table, default=by_name)
    if found is None or found == step.old.article_id:
        return Recorded.BEFORE
    if found > step.old.article_id:
        return Recorded.AFTER
    raise ConfigurationError(
        f"article {step.change.source}: {where}: its table has definition {found}, and the schema change that "
        f"comes next begins with definition {step.old.article_id}: one between was skipped",
        remedy=f"`tranrepl reinitialize FILE -s NAME --article {step.change.source}` brings the table to the "
        "article's definition and copies its rows",
        article=str(step.change.source),
    )


def told(step: SchemaStep, where: str) -> Sequence[str]:
    """Return what a change leaves alone at the Subscribers, in words."""
    article = f"{where}: article {step.change.source}"
    said = [f"{article}: {note}" for note in step.change.notes]
    if step.new is not None:
        said += [f"{article}: {it}" for it in other_columns(step.old, step.new)]
    else:
        said.append(f"{article} ended ({step.change.tag}): table {step.old.destination} stays as it is")
    return said


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
