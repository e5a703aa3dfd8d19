"""The statements that a schema change runs at a PostgreSQL Subscriber whose tables setup made, without a look at it."""

from __future__ import annotations

from collections.abc import Iterator

from psycopg import sql

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.model.schema_change import LabelAction, LabelChange, PartitionAction, PartitionChange, SchemaChange
from tranrepl.postgres.catalogue import qualified
from tranrepl.printable import one_line
from tranrepl.subscriber.key_change import changed_key
from tranrepl.subscriber.postgres.alter_statements import actions
from tranrepl.subscriber.postgres.enum_labels import added_label, renamed_type, type_name_of
from tranrepl.subscriber.postgres.key_change import replaced_key
from tranrepl.subscriber.postgres.partition_rows import delete_rows, why_rows_unknown
from tranrepl.subscriber.postgres.partition_setup import create_partition, partition_destination


def planned_statements(change: SchemaChange, old: RegisteredArticle, new: RegisteredArticle) -> list[str]:
    """Return the statements in order; that rows are copied anew is a comment."""
    labels = [statement for it in change.labels for statement in _label_statements(it)]
    statements = [*labels, *_column_statements(change, old)]
    for it in change.partitions:
        statements += _partition_statements(change, it, new)
    key = changed_key(change, old, new)
    if key is not None:
        constraint = None if key.lost else f"{new.destination.table}_pkey"
        statements.append(replaced_key(qualified(new.destination), constraint, key.now))
    unknown = change.rows_unknown or why_rows_unknown(change, old)
    anew = [] if unknown is None else [f"-- rows are copied anew: {one_line(unknown)}"]
    return [*(it.as_string(None) for it in statements), *anew]


def _label_statements(change: LabelChange) -> Iterator[sql.Composed]:
    match change.action:
        case LabelAction.ADD:
            yield added_label(change, type_name_of(change), known=True)
        case LabelAction.RENAME_TYPE:
            yield from renamed_type(change)


def _column_statements(change: SchemaChange, old: RegisteredArticle) -> Iterator[sql.Composed]:
    table = qualified(old.destination)
    for it in change.columns:
        for action in actions(it, keeps_rows=change.rows_unknown is None):
            yield sql.SQL("ALTER TABLE {} {}").format(table, action)


def _partition_statements(
    change: SchemaChange, part: PartitionChange, article: RegisteredArticle
) -> Iterator[sql.Composed]:
    divided = article.file_names is not None and article.file_names.divided
    if not divided:
        if part.removes_rows and part.rows is not None and why_rows_unknown(change, article) is None:
            yield delete_rows(qualified(article.destination), part.rows, article)
        return
    table, parent = _destination(article, part.table), _parent(article, part)
    match part.action:
        case PartitionAction.CREATE if part.path:
            yield create_partition(table, parent, part.path[-1].bound, part.key)
        case PartitionAction.RENAME:
            yield from _renamed(table, _destination(article, part.new_name or part.table))
        case PartitionAction.EMPTY:
            yield sql.SQL("DELETE FROM {}").format(qualified(table))
        case PartitionAction.REMOVE:
            yield sql.SQL("ALTER TABLE {} DETACH PARTITION {}").format(qualified(parent), qualified(table))
            yield sql.SQL("DROP TABLE {}").format(qualified(table))


def _renamed(table: TableName, wanted: TableName) -> Iterator[sql.Composed]:
    if table.schema != wanted.schema:
        yield sql.SQL("ALTER TABLE {} SET SCHEMA {}").format(qualified(table), sql.Identifier(wanted.schema))
    if table.table != wanted.table:
        moved = qualified(TableName(wanted.schema, table.table))
        yield sql.SQL("ALTER TABLE {} RENAME TO {}").format(moved, sql.Identifier(wanted.table))


def _destination(article: RegisteredArticle, table: TableName) -> TableName:
    source = article.definition.name if article.definition is not None else article.source
    return partition_destination(source, article.destination, table)


def _parent(article: RegisteredArticle, part: PartitionChange) -> TableName:
    """Return the table that the partition is one of, by the bounds above it."""
    division = None if article.definition is None else article.definition.division
    above = part.path[:-1]
    if division is None or not above:
        return article.destination
    found = [it.table for it in division.partitions if it.bound == above[-1].bound and it.key == part.path[-1].key]
    return _destination(article, found[0]) if found else article.destination
