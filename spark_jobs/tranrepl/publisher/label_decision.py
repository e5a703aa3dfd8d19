"""Labels of enumerated types that were added or renamed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.schema_change import LabelAction, LabelChange
from tranrepl.model.table_definition import TableDefinition
from tranrepl.publisher.schema_stop import schema_stop


def label_changes(
    article: RegisteredArticle, before: TableDefinition, now: TableDefinition, tag: str
) -> Iterator[LabelChange]:
    """Yield what was done to the labels of the types of published columns, each type's once. Raises SchemaStop where
    the one does not follow from the other."""
    seen: set[str] = set()
    for column in article.columns:
        known, found = before.by_ordinal.get(column.ordinal), now.by_ordinal.get(column.ordinal)
        if known is None or found is None or known.type_oid != found.type_oid or found.type_name in seen:
            continue
        if known.labels is not None and found.labels is not None and known.labels != found.labels:
            seen.add(found.type_name)
            changes = list(_changes(found.type_name, known.labels, found.labels))
            if not changes:
                raise schema_stop(
                    article,
                    tag,
                    f"the labels of {found.type_name} are others, in a way that does not follow from those before",
                    "alter the type at the Subscribers too",
                )
            yield from changes


def _changes(type_name: str, before: Sequence[str], now: Sequence[str]) -> Iterator[LabelChange]:
    if len(before) == len(now):
        for old, new in zip(before, now, strict=True):
            if old != new:
                yield LabelChange(action=LabelAction.RENAME, type_name=type_name, label=old, new_label=new)
        return
    if [it for it in now if it in set(before)] != list(before):
        return
    known = set(before)
    # From the last one on: the label that follows is there by then.
    for at in reversed(range(len(now))):
        if now[at] not in known:
            following = now[at + 1] if at + 1 < len(now) else None
            yield LabelChange(action=LabelAction.ADD, type_name=type_name, label=now[at], before=following)
