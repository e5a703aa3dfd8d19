"""A schema change in words: what browsing, notices, alerts and the monitor say of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tranrepl.model.schema_change import (
    SETUP_TAG,
    ColumnAction,
    ColumnChange,
    LabelAction,
    LabelChange,
    PartitionAction,
    PartitionChange,
    SchemaChange,
)


class _Words(NamedTuple):
    statement: str
    """As SQL would say it."""
    effect: str
    """For a reader who does not want the statement."""


def parts_in_words(change: SchemaChange) -> Iterator[str]:
    """Yield what is done to the Subscribers' table, as SQL would say it, a part each."""
    yield from (it.statement for it in _parts(change))
    if change.new_article_id is None:
        yield "the article ends"
    if change.rows_unknown is not None:
        yield f"the log lacks its rows: {change.rows_unknown}"


def effects_in_words(change: SchemaChange) -> Iterator[str]:
    """Yield what a schema change did, a part each, for a reader who does not want the statements."""
    yield from (it.effect for it in _parts(change))
    yield from change.notes


def change_in_words(change: SchemaChange, table: object | None = None) -> str:
    """Return a schema change on one line: `ALTER TABLE public.t: ADD COLUMN c integer, DROP COLUMN d`. `table`: what
    it is called, where that is not the article's source."""
    parts = [*parts_in_words(change), *(change.notes if change.tag == SETUP_TAG else ())]
    return f"{change.tag} {table or change.source}: {', '.join(parts) or 'nothing for the Subscribers'}"


def _parts(change: SchemaChange) -> Iterator[_Words]:
    yield from map(_column, change.columns)
    yield from map(_label, change.labels)
    yield from map(_partition, change.partitions)


def _column(change: ColumnChange) -> _Words:
    name, column = change.column, f"column {change.column}"
    match change.action:
        case ColumnAction.ADD:
            rows = "" if change.existing_value is None else f" (rows: {change.existing_value})"
            return _Words(f"ADD COLUMN {name} {change.type_name}{rows}", f"{column} added")
        case ColumnAction.DROP:
            return _Words(f"DROP COLUMN {name}", f"{column} dropped")
        case ColumnAction.RENAME:
            return _Words(f"RENAME COLUMN {name} TO {change.new_name}", f"{column} renamed to {change.new_name}")
        case ColumnAction.RETYPE:
            return _Words(f"ALTER COLUMN {name} TYPE {change.type_name}", f"{column} is {change.type_name} now")
        case ColumnAction.DROP_NOT_NULL:
            return _Words(f"ALTER COLUMN {name} DROP NOT NULL", f"{column} may be NULL now")


def _label(change: LabelChange) -> _Words:
    name, new = change.type_name, change.new_type_name
    if change.action is LabelAction.RENAME_TYPE:
        return _Words(f"RENAME TYPE {name} TO {new}", f"type {name} renamed to {new}")
    return _Words(f"ADD VALUE {change.label} TO TYPE {name}", f"value {change.label} added to type {name}")


def _partition(change: PartitionChange) -> _Words:
    to = "" if change.new_name is None else f" TO {change.new_name}"
    done = {
        PartitionAction.CREATE: "added",
        PartitionAction.RENAME: f"renamed to {change.new_name}",
        PartitionAction.REMOVE: "removed",
        PartitionAction.EMPTY: "emptied",
    }[change.action]
    return _Words(f"{change.action.upper()} PARTITION {change.table}{to}", f"partition {change.table} {done}")
