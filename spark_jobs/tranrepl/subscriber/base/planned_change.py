"""The statements that a schema change runs at a Subscriber whose tables setup made, without a look at it."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa

from tranrepl.model.article import PublishedColumn, RegisteredArticle
from tranrepl.model.schema_change import SchemaChange
from tranrepl.printable import one_line
from tranrepl.subscriber.base.column_changes import column_plan, reload_reason
from tranrepl.subscriber.base.column_steps import MadeColumn, TableColumn
from tranrepl.subscriber.base.database import SqlDatabase
from tranrepl.subscriber.base.destination import column_type_of, made_target
from tranrepl.subscriber.base.partition_rows import delete_rows, why_rows_unknown
from tranrepl.subscriber.base.recorded_statements import StatementRecorder
from tranrepl.subscriber.base.row_updates import update_statement
from tranrepl.subscriber.key_change import changed_key


def planned_statements(
    database: SqlDatabase, change: SchemaChange, old: RegisteredArticle, new: RegisteredArticle
) -> list[str]:
    """Return the statements in order; what is done by hand, and that rows are copied anew, are comments."""
    spelling: Callable[..., sa.Dialect] = type(database.dialect())
    dialect = spelling(paramstyle="named")
    recorder = StatementRecorder(dialect)
    made = [_made(database, dialect, old, it) for it in old.columns]
    before = [TableColumn(it.name, it.spelling, it.nullable) for it in made]
    plan = column_plan(database, dialect, change, old, new, before, "Subscriber")
    columns = database.planned_columns(recorder, database.place(new.destination), made)
    if columns is None:
        by_hand = [f"-- by hand: {one_line(it.in_words())}" for it in plan.steps]
    else:
        by_hand = []
        columns.execute(plan.steps)
        columns.complete(plan.steps)
    key = changed_key(change, old, new)
    if key is not None:
        table = database.qualified(new.destination)
        names = ", ".join(map(database.identifiers.quoted, key.now))
        dropped = "" if key.lost else "DROP PRIMARY KEY, "
        recorder.write(f"ALTER TABLE {table} {dropped}ADD PRIMARY KEY ({names})")
    target = made_target(database, new, dialect)
    unknown = change.rows_unknown or reload_reason(change, old) or why_rows_unknown(change, old)
    for update in plan.updates:
        statement = update_statement(target, update)
        if statement is not None:
            recorder.execute(statement)
    for it in change.partitions if unknown is None else ():
        if it.removes_rows and it.rows is not None:
            recorder.execute(delete_rows(database, target, it.rows))
    anew = [] if unknown is None else [f"-- rows are copied anew: {one_line(unknown)}"]
    return [*recorder.statements, *by_hand, *(f"-- {one_line(it)}" for it in plan.notes), *anew]


def _made(
    database: SqlDatabase, dialect: sa.Dialect, article: RegisteredArticle, column: PublishedColumn
) -> MadeColumn:
    made = column_type_of(database, column.type_name, indexed=column.key_ordinal is not None or column.unique)
    known = None if article.definition is None else article.definition.by_ordinal.get(column.ordinal)
    not_null = column.key_ordinal is not None or (known is not None and known.not_null)
    spelling = database.described_type(made, dialect).spelling
    return MadeColumn(column.name, made, spelling, not not_null, column.key_ordinal is not None)
