"""Schema changes made by hand, as a log reader would leave them."""

from __future__ import annotations

from collections.abc import Sequence

from support.command_history import Column
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.schema_change import ColumnAction, ColumnChange, LabelChange, SchemaChange


def change(
    old: RegisteredArticle, new: RegisteredArticle | None, *columns: ColumnChange, labels: Sequence[LabelChange] = ()
) -> SchemaChange:
    return SchemaChange(
        source=old.source,
        article_id=old.article_id,
        new_article_id=None if new is None else new.article_id,
        tag="ALTER TABLE",
        columns=columns,
        labels=tuple(labels),
    )


def added(column: Column, value: str | None = None, default: str | None = None) -> ColumnChange:
    return ColumnChange(
        action=ColumnAction.ADD,
        column=column.name,
        type_name=column.type_name,
        existing_value=value,
        default=default,
        not_null=column.not_null,
    )


def dropped(name: str) -> ColumnChange:
    return ColumnChange(action=ColumnAction.DROP, column=name)


def renamed(name: str, new_name: str) -> ColumnChange:
    return ColumnChange(action=ColumnAction.RENAME, column=name, new_name=new_name)


def retyped(column: Column) -> ColumnChange:
    """Return the change of type that leads to this column."""
    return ColumnChange(action=ColumnAction.RETYPE, column=column.name, type_name=column.type_name)


def nullable(name: str) -> ColumnChange:
    return ColumnChange(action=ColumnAction.DROP_NOT_NULL, column=name)
