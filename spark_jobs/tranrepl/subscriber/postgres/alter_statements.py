"""What a schema change does to one column of a PostgreSQL table, as actions of ALTER TABLE."""

from __future__ import annotations

from collections.abc import Iterator

from psycopg import sql

from tranrepl.model.schema_change import ColumnAction, ColumnChange
from tranrepl.postgres.composed_sql import expression_sql, name_sql, type_sql
from tranrepl.subscriber.base.column_changes import has_constant_default


def actions(change: ColumnChange, *, keeps_rows: bool) -> Iterator[sql.Composable]:
    """Yield the actions, each of a statement of its own. Where the table does not keep its rows (not `keeps_rows`), a
    value becomes one of a new type by a cast."""
    column = sql.Identifier(change.column)
    match change.action:
        case ColumnAction.ADD:
            yield from _added(change)
        case ColumnAction.DROP:
            yield sql.SQL("DROP COLUMN IF EXISTS {}").format(column)
        case ColumnAction.RENAME:
            yield sql.SQL("RENAME COLUMN {} TO {}").format(column, sql.Identifier(change.new_name or change.column))
        case ColumnAction.RETYPE:
            retyped = retype(change)
            cast = sql.SQL(" USING {}::{}").format(column, type_sql(change.type_name or ""))
            yield retyped if keeps_rows else retyped + cast
        case ColumnAction.DROP_NOT_NULL:
            yield sql.SQL("ALTER COLUMN {} DROP NOT NULL").format(column)


def _added(change: ColumnChange) -> Iterator[sql.Composable]:
    """Yield what adds a column; rows that are there get the Publisher's value, which PostgreSQL keeps once for all of
    them. It stays the default where the Publisher's is a constant."""
    column = sql.Identifier(change.column)
    added = sql.SQL("ADD COLUMN {} {}").format(column, _type(change))
    if change.generation_expression is not None:
        yield added + sql.SQL(" GENERATED ALWAYS AS ({}) STORED").format(expression_sql(change.generation_expression))
    elif change.existing_value is None:
        yield added
    else:
        kept = has_constant_default(change)
        not_null = sql.SQL(" NOT NULL" if kept and change.not_null else "")
        yield added + not_null + sql.SQL(" DEFAULT {}").format(sql.Literal(change.existing_value))
        if not kept:
            yield sql.SQL("ALTER COLUMN {} DROP DEFAULT").format(column)


def retype(change: ColumnChange) -> sql.Composed:
    """Return what gives a column its new type."""
    return sql.SQL("ALTER COLUMN {} TYPE {}").format(sql.Identifier(change.column), _type(change))


def _type(change: ColumnChange) -> sql.Composable:
    made = type_sql(change.type_name or "")
    return made + sql.SQL(" COLLATE {}").format(name_sql(change.collation)) if change.collation else made
