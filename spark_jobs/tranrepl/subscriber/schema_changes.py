"""Schema changes at a Subscriber: which of their parts are still to be done, whatever the database.

A part that somebody has done by hand is passed over and told; one that contradicts the table that is there is refused.
The definition that an article's table and procedures stand at is recorded at the Subscriber
(`MSsubscription_articles`): it moves in the transaction of the change, or where DDL ends a transaction, right after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from tranrepl.errors import ConfigurationError, ErrorDetails, ReplicationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.schema_change import ColumnAction, ColumnChange, SchemaChange
from tranrepl.schema.words import column_in_words
from tranrepl.subscriber.batching.steps import SchemaStep
from tranrepl.subscriber.custom_calls import other_columns


@dataclass(frozen=True, slots=True)
class DestinationColumn:
    """A column of the table that is there; its type as the database spells it."""

    name: str
    type_name: str
    not_null: bool


class AlteredTable(Protocol):
    """A destination table that a schema change alters. Errors are of `tranrepl.errors`."""

    @property
    def where(self) -> str:
        """The Subscriber and the table as messages name them."""
        ...

    def columns(self) -> Mapping[str, DestinationColumn]:
        """Return the columns that the table has now, by name."""
        ...

    def has_type(self, column: DestinationColumn, change: ColumnChange) -> bool:
        """Return whether a column has the type that the change gives it."""
        ...

    def alter(self, change: ColumnChange) -> Iterator[str]:
        """Do a part that is to be done, and yield the statements that ran, or what was left alone instead."""
        ...


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


def alter_columns(change: SchemaChange, table: AlteredTable) -> Iterator[str]:
    """Alter the destination, part by part, and yield what was done or left alone, in words.

    Raises ConfigurationError where the table that is there contradicts the change.
    """
    for part in change.columns:
        if _is_done(change, part, table):
            if part.action is not ColumnAction.DROP_NOT_NULL:
                yield f"{table.where}: {column_in_words(part)}: it was done already"
        else:
            yield from table.alter(part)


def _is_done(change: SchemaChange, part: ColumnChange, table: AlteredTable) -> bool:
    columns = table.columns()
    found = columns.get(part.column)
    match part.action:
        case ColumnAction.ADD:
            if found is not None and not table.has_type(found, part):
                raise _contradicts(
                    change,
                    part,
                    table,
                    f"the table has a column of that name, of type {found.type_name}",
                    f"rename or drop column {part.column} of the destination, or give it type {part.type_name}",
                )
            return found is not None
        case ColumnAction.DROP:
            return found is None
        case ColumnAction.RENAME:
            return _is_renamed(change, part, table, columns)
        case ColumnAction.RETYPE:
            return table.has_type(_required(change, part, table, found), part)
        case ColumnAction.DROP_NOT_NULL:
            return not _required(change, part, table, found).not_null


def _is_renamed(
    change: SchemaChange, part: ColumnChange, table: AlteredTable, columns: Mapping[str, DestinationColumn]
) -> bool:
    new_name = part.new_name or part.column
    if part.column in columns and new_name in columns:
        raise _contradicts(
            change,
            part,
            table,
            f"the table has columns {part.column} and {new_name}",
            f"rename or drop the one that is not the article's: the article's is {part.column} until then",
        )
    if part.column not in columns and part.generation_expression is not None:
        # It does not travel: the table may do without it.
        return True
    if part.column not in columns and new_name not in columns:
        raise _missing(change, part, table)
    return part.column not in columns


def _required(
    change: SchemaChange, part: ColumnChange, table: AlteredTable, found: DestinationColumn | None
) -> DestinationColumn:
    if found is None:
        raise _missing(change, part, table)
    return found


def _missing(change: SchemaChange, part: ColumnChange, table: AlteredTable) -> ConfigurationError:
    return _contradicts(
        change,
        part,
        table,
        f"the table has no column {part.column}",
        f"add column {part.column} to the destination again; or where its rows do not matter, "
        f"`tranrepl reinitialize FILE --article {change.source}` copies them",
    )


def _contradicts(
    change: SchemaChange, part: ColumnChange, table: AlteredTable, problem: str, remedy: str
) -> ConfigurationError:
    return ConfigurationError(
        f"article {change.source}: {table.where}: the schema change ({column_in_words(part)}) cannot be applied: "
        f"{problem}",
        remedy=f"{remedy}; then deliver again",
        article=str(change.source),
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
