"""Enumerated types that were renamed, and labels of theirs that were added or renamed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.schema_change import LabelAction, LabelChange
from tranrepl.model.table_definition import DefinedColumn, DefinedType, RenamedLabel, TableDefinition, labels_follow
from tranrepl.publisher.schema_stop import schema_stop

_RENAMING_TAGS = frozenset({"ALTER TYPE", "ALTER SCHEMA"})


def label_changes(
    article: RegisteredArticle, before: TableDefinition, now: TableDefinition, tag: str
) -> Iterator[LabelChange]:
    """Yield what was done to the enumerated types of published columns and to their labels, each type's once. Raises
    SchemaStop where the one does not follow from the other."""
    known: dict[int, DefinedType] = {}
    found: dict[int, DefinedType] = {}
    for it in article.columns:
        old, new = before.by_ordinal.get(it.ordinal), now.by_ordinal.get(it.ordinal)
        if old is not None and new is not None and old.type_oid == new.type_oid:
            known |= _enumerated(old)
            found |= _enumerated(new)
    for number, type_ in found.items():
        if number not in known:
            continue
        before_it = known[number]
        # A transaction that alters something else may not see yet what the type is called.
        if before_it.name != type_.name and tag in _RENAMING_TAGS:
            yield LabelChange(action=LabelAction.RENAME_TYPE, type_name=before_it.name, new_type_name=type_.name)
        labels = type_.labels or ()
        if before_it.labels == labels:
            continue
        changes = list(_changes(type_.name, before_it.labels or (), labels))
        if not changes:
            raise schema_stop(
                article,
                tag,
                f"the labels of {type_.name} are others, in a way that does not follow from those before",
                "alter the type at the Subscribers too",
            )
        yield from changes


def renamed_labels(before: TableDefinition, now: TableDefinition, renamed_by: int | None) -> tuple[RenamedLabel, ...]:
    """Return the labels that were renamed before, and those that this transaction renames, in order."""
    known, found = before.enumerated, now.enumerated
    new = (
        RenamedLabel(type_oid=number, label=old, new_label=label, renamed_at=now.holds_from, renamed_by=renamed_by)
        for number in sorted(known.keys() & found.keys())
        for old, label in zip(known[number].labels or (), found[number].labels or (), strict=False)
        if old != label and len(known[number].labels or ()) == len(found[number].labels or ())
    )
    return (*before.renamed_labels, *new)


def _enumerated(column: DefinedColumn) -> dict[int, DefinedType]:
    """Return the enumerated types that a column's values are made of, by their numbers."""
    return {it.oid: it for it in column.types or () if it.labels is not None}


def _changes(type_name: str, before: Sequence[str], now: Sequence[str]) -> Iterator[LabelChange]:
    if len(before) == len(now):
        for old, new in zip(before, now, strict=True):
            if old != new:
                yield LabelChange(action=LabelAction.RENAME, type_name=type_name, label=old, new_label=new)
        return
    if not labels_follow(before, now):
        return
    known = set(before)
    # From the last one on: the label that follows is there by then.
    for at in reversed(range(len(now))):
        if now[at] not in known:
            following = now[at + 1] if at + 1 < len(now) else None
            yield LabelChange(action=LabelAction.ADD, type_name=type_name, label=now[at], before=following)
