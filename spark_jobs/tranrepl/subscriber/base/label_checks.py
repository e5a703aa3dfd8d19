"""Checks of the tables that setup makes: a column takes the labels of the Publisher's, and the empty text, which a
server that is not strict stores in place of any other text."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import sqlalchemy as sa
from sqlalchemy.sql import quoted_name

from tranrepl.model.table_definition import TableDefinition, labels_follow
from tranrepl.subscriber.base.column_steps import CheckedColumn

_MOST_LETTERS = 60


def checked_columns(definition: TableDefinition | None, table: str) -> dict[str, CheckedColumn]:
    """Return the checks of a destination with this name, by column."""
    columns = () if definition is None else definition.columns
    return {it.name: _checked(table, it.name, it.labels, is_new=True) for it in columns if it.labels is not None}


def changed_check(table: str, column: str, before: TableDefinition, now: TableDefinition) -> CheckedColumn | None:
    """Return what becomes of the check of a column that gets another type: labels are added to it, and it goes with any
    other change, as rows may have the labels of before. None where it had no labels, and has none."""
    old, new = (next((it.labels for it in of.columns if it.name == column), None) for of in (before, now))
    if old == new:
        return None
    return _checked(table, column, new if old is not None and new is not None and labels_follow(old, new) else None)


def dropped_check(table: str, column: str, before: TableDefinition) -> CheckedColumn | None:
    """Return that a column which is dropped loses its check, of which some databases let no column go."""
    return _checked(table, column, None) if any(it.name == column and it.labels for it in before.columns) else None


def check_constraint(check: CheckedColumn) -> sa.CheckConstraint:
    column = sa.column(quoted_name(check.name, quote=True), sa.Unicode())
    return sa.CheckConstraint(column.in_(check.texts or ()), name=quoted_name(check.constraint, quote=True))


def check_text(check: CheckedColumn, quoted: Callable[[str], str]) -> str:
    """Return the constraint as CREATE TABLE has it. No label has a backslash."""
    texts = ", ".join("'" + it.replace("'", "''") + "'" for it in check.texts or ())
    return f"CONSTRAINT {quoted(check.constraint)} CHECK ({quoted(check.name)} IN ({texts}))"


def _checked(table: str, column: str, labels: Sequence[str] | None, *, is_new: bool = False) -> CheckedColumn:
    name = f"{table}_{column}_labels"
    if len(name.encode()) > _MOST_LETTERS:
        name = f"tranrepl_{zlib.crc32(name.encode()):08x}_labels"
    texts = None if labels is None else tuple(dict.fromkeys((*labels, "")))
    return CheckedColumn(column, name, texts, is_new)
