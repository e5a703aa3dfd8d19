"""A table that is told without what others have changed of it since: what its transaction has changed by itself is put
on top of that.

At REPEATABLE READ a transaction sees the catalogue as it was at its first query, but it alters the table as it is now.
So what it has not changed is as it was before in the log, whatever it tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.table_definition import DefinedColumn, TableDefinition, UniqueConstraint
from tranrepl.publisher.announcements import OwnChanges, TableAnnouncement
from tranrepl.publisher.definition_after import TYPE_TAGS
from tranrepl.publisher.schema_stop import SchemaStop, schema_stop


def with_unseen_changes(
    article: RegisteredArticle, before: TableDefinition, announced: TableAnnouncement
) -> TableAnnouncement:
    """Return the announcement with what its transaction did not see. Raises SchemaStop where that is not to be told
    from what it has changed."""
    if not announced.defaults_told:
        # Nothing but what the command itself can have changed is news.
        return announced
    told, own = announced.definition, announced.own
    if _is_alike(before, told):
        return announced
    if own is None:
        if _is_unseen(before, announced):
            raise _stop(article, announced)
        return announced
    columns, unique = tuple(_columns(before, announced, own)), _unique(before, told, own)
    if unique is None or before.division is not None or told.division is not None:
        if _is_unseen(before, announced) or _named(columns) != _named(told.columns):
            raise _stop(article, announced)
        return announced
    of_table = told if own.table else before
    fields = {name: getattr(of_table, name) for name in type(before).model_fields}
    changed = {"columns": columns, "unique": unique, "holds_from": told.holds_from, "altered_by": told.altered_by}
    return replace(announced, definition=TableDefinition.model_validate(fields | changed))


def _is_unseen(before: TableDefinition, announced: TableAnnouncement) -> bool:
    """Return whether the table's last change was committed by another transaction, which this one does not see."""
    if before.altered_by in (None, announced.definition.altered_by) or announced.seen is None:
        return False
    return not announced.seen.has(before.altered_by)


def _is_alike(before: TableDefinition, told: TableDefinition) -> bool:
    """Return whether nothing is news but partitions, which are told with those that the transaction did not see."""
    unlike = ("holds_from", "altered_by", "division")
    now: dict[str, object] = {name: getattr(told, name) for name in unlike}
    return told.division is not None and before.model_copy(update=now) == told


def _stop(article: RegisteredArticle, announced: TableAnnouncement) -> SchemaStop:
    return schema_stop(
        article,
        announced.tag,
        "the transaction, at REPEATABLE READ or SERIALIZABLE, began before the table's last change was committed, "
        "and so could not tell how the table is now",
        "give the Subscribers' tables the columns that the table has now, by their names of now",
    )


def _columns(before: TableDefinition, announced: TableAnnouncement, own: OwnChanges) -> Iterator[DefinedColumn]:
    told = announced.definition
    for ordinal in sorted(before.by_ordinal.keys() | told.by_ordinal.keys()):
        known, now = before.by_ordinal.get(ordinal), told.by_ordinal.get(ordinal)
        column = now if ordinal in own.columns else known
        if column is None:
            continue
        if now is not None and announced.tag in TYPE_TAGS:
            column = column.model_copy(update={"types": now.types})
        elif known is not None and known.type_oid == column.type_oid:
            # Labels that others have added or renamed are not seen either.
            column = column.model_copy(update={"types": known.types})
        yield column


def _named(columns: tuple[DefinedColumn, ...]) -> list[tuple[int, str, int, int]]:
    return [(it.ordinal, it.name, it.type_oid, it.type_modifier) for it in columns]


def _unique(before: TableDefinition, told: TableDefinition, own: OwnChanges) -> tuple[UniqueConstraint, ...] | None:
    """Return the unique indexes, one too many where the transaction has dropped one: then updates are divided that need
    not be. None where it is not known what the primary key is."""
    made = [it for it in told.unique if it.name in own.unique]
    new_key = any(it.primary for it in made)
    if not new_key and _primary(told) != _primary(before):
        return None
    kept = [it for it in before.unique if it.name not in own.unique and not (it.primary and new_key)]
    return (*kept, *made)


def _primary(table: TableDefinition) -> UniqueConstraint | None:
    return next((it for it in table.unique if it.primary), None)
