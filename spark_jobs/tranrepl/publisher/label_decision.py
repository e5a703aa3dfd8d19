"""Enumerated types that were renamed, and labels of theirs that were added or renamed.

Values travel as text. So a renamed label is a label more at a Subscriber, which keeps the old one for commands that
still have it; which rows have the new name the log does not say, and so their article is reinitialized or stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.schema_change import LabelAction, LabelChange
from tranrepl.model.table_definition import TableDefinition, added_labels, labels_follow
from tranrepl.publisher.schema_names import SchemaNames
from tranrepl.publisher.schema_stop import schema_stop

_RENAMING_TAGS = frozenset({"ALTER TYPE", "ALTER SCHEMA"})


def label_changes(
    article: RegisteredArticle, before: TableDefinition, now: TableDefinition, tag: str
) -> Iterator[LabelChange]:
    """Yield what is done to the enumerated types of published columns and to their labels, each type's once."""
    for number in _published_types(article, before, now):
        known, found = before.enumerated[number], now.enumerated[number]
        # A transaction that alters something else may not see yet what the type is called.
        if known.name != found.name and tag in _RENAMING_TAGS:
            yield LabelChange(action=LabelAction.RENAME_TYPE, type_name=known.name, new_type_name=found.name)
        for label, following in added_labels(known.labels or (), found.labels or ()):
            yield LabelChange(action=LabelAction.ADD, type_name=found.name, label=label, before=following)


def renamed_labels(article: RegisteredArticle, before: TableDefinition, now: TableDefinition) -> str | None:
    """Return which published types have labels that were renamed, in words; None where none has."""
    renamed = [before.enumerated[it].name for it in _renamed(article, before, now)]
    return f"a label of type {', '.join(renamed)} was renamed" if renamed else None


def refuse_named_labels(
    article: RegisteredArticle, before: TableDefinition, now: TableDefinition, tag: str, names: SchemaNames
) -> None:
    """Raise SchemaStop where the article's row filter names a label that was renamed, or a limit of the Subscribers'
    partitions does."""
    for number in _renamed(article, before, now):
        known, found = before.enumerated[number], now.enumerated[number]
        gone = [it for at, it in enumerate(known.labels or ()) if (found.labels or ())[at : at + 1] != (it,)]
        named = [it for it in gone if article.filter is not None and names.names_label(article.filter, it)]
        if named:
            raise schema_stop(
                article,
                tag,
                f"label {named[0]!r} of type {known.name} was renamed, which its row filter names: {article.filter}",
                "write the article's `filter` with the labels of now",
            )
        limits = [] if before.division is None else [it.bound or "" for it in before.division.partitions]
        divided = article.file_names is not None and article.file_names.divided
        limiting = [it for it in gone if divided and any(names.names_label(of, it) for of in limits)]
        if limiting:
            raise schema_stop(
                article,
                tag,
                f"label {limiting[0]!r} of type {known.name} was renamed, which limits of its partitions name",
                f"rename it at the Subscribers too (ALTER TYPE {known.name} RENAME VALUE ...)",
            )


def _renamed(article: RegisteredArticle, before: TableDefinition, now: TableDefinition) -> Iterator[int]:
    for number in _published_types(article, before, now):
        if not labels_follow(before.enumerated[number].labels or (), now.enumerated[number].labels or ()):
            yield number


def _published_types(article: RegisteredArticle, before: TableDefinition, now: TableDefinition) -> Sequence[int]:
    """Return the enumerated types that a published column was made of before and is made of now, by their numbers."""
    found: dict[int, None] = {}
    for it in article.columns:
        old, new = before.by_ordinal.get(it.ordinal), now.by_ordinal.get(it.ordinal)
        if old is not None and new is not None and old.type_oid == new.type_oid:
            known = {of.oid for of in old.types or () if of.labels is not None}
            found |= {of.oid: None for of in new.types or () if of.labels is not None and of.oid in known}
    return list(found)
