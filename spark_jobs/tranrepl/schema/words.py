"""A schema change in words: what browsing, notices, alerts and the monitor say of it."""

from __future__ import annotations

from collections.abc import Iterator

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


def parts_in_words(change: SchemaChange) -> Iterator[str]:
    """Yield what is done to the Subscribers' table, as SQL would say it, a part each."""
    yield from map(column_in_words, change.columns)
    yield from map(_label_in_words, change.labels)
    yield from map(_partition_in_words, change.partitions)
    if change.new_article_id is None:
        yield "the article ends"
    if change.rows_unknown is not None:
        yield f"its rows are not known: {change.rows_unknown}"


def effects_in_words(change: SchemaChange) -> Iterator[str]:
    """Yield what a schema change did, a part each, for a reader who does not want the statements."""
    yield from map(_column_effect, change.columns)
    yield from map(_label_effect, change.labels)
    yield from (_partition_effect(it) for it in change.partitions)
    yield from change.notes


def _column_effect(change: ColumnChange) -> str:
    match change.action:
        case ColumnAction.ADD:
            return f"column {change.column} added"
        case ColumnAction.DROP:
            return f"column {change.column} dropped"
        case ColumnAction.RENAME:
            return f"column {change.column} renamed to {change.new_name}"
        case ColumnAction.RETYPE:
            return f"column {change.column} is {change.type_name} now"
        case ColumnAction.DROP_NOT_NULL:
            return f"column {change.column} may be NULL now"


def _label_effect(change: LabelChange) -> str:
    if change.action is LabelAction.RENAME_TYPE:
        return f"type {change.type_name} renamed to {change.new_type_name}"
    return f"value {change.label} added to type {change.type_name}"


def _partition_effect(change: PartitionChange) -> str:
    match change.action:
        case PartitionAction.CREATE:
            return f"partition {change.table} added"
        case PartitionAction.RENAME:
            return f"partition {change.table} renamed to {change.new_name}"
        case PartitionAction.REMOVE:
            return f"partition {change.table} removed"
        case PartitionAction.EMPTY:
            return f"partition {change.table} emptied"


def change_in_words(change: SchemaChange, table: object | None = None) -> str:
    """Return a schema change on one line: `ALTER TABLE public.t: ADD COLUMN c integer, DROP COLUMN d`. `table`: what
    it is called, where that is not the article's source."""
    parts = [*parts_in_words(change), *(change.notes if change.tag == SETUP_TAG else ())]
    return f"{change.tag} {table or change.source}: {', '.join(parts) or 'nothing for the Subscribers'}"


def column_in_words(change: ColumnChange) -> str:
    """Return what is done to a column, as SQL would say it."""
    match change.action:
        case ColumnAction.ADD:
            rows = "" if change.existing_value is None else f" (rows: {change.existing_value})"
            return f"ADD COLUMN {change.column} {change.type_name}{rows}"
        case ColumnAction.DROP:
            return f"DROP COLUMN {change.column}"
        case ColumnAction.RENAME:
            return f"RENAME COLUMN {change.column} TO {change.new_name}"
        case ColumnAction.RETYPE:
            return f"ALTER COLUMN {change.column} TYPE {change.type_name}"
        case ColumnAction.DROP_NOT_NULL:
            return f"ALTER COLUMN {change.column} DROP NOT NULL"


def _label_in_words(change: LabelChange) -> str:
    if change.action is LabelAction.RENAME_TYPE:
        return f"RENAME TYPE {change.type_name} TO {change.new_type_name}"
    return f"ADD VALUE {change.label} TO TYPE {change.type_name}"


def _partition_in_words(change: PartitionChange) -> str:
    to = "" if change.new_name is None else f" TO {change.new_name}"
    return f"{change.action.upper()} PARTITION {change.table}{to}"
