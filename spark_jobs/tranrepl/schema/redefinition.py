"""The difference between an article's definition and the one that setup wants from a message in the log on.

Alterations of the table that the log brought are in the definition before. Those that nobody captured are found here,
late: rows of the time between may be missing in the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.schema_change import SETUP_TAG, ColumnAction, ColumnChange, SchemaChange
from tranrepl.model.table_definition import TableDefinition
from tranrepl.schema.columns import ColumnDifference
from tranrepl.schema.difference import NEW_KEY
from tranrepl.schema.labels import LabelDifference
from tranrepl.schema.messages import AlteredTable, Subject

_REWRITTEN = "its table was rewritten, and the log does not say what its rows are now"
_PARTITIONS_CHANGED = (
    "a partition with rows of its own was attached, detached or dropped, and the log does not say which rows those are"
)
DESTINATION_CHANGED = "its destination was changed to another table"
"""Nothing else was: a subscription keeps its rows whose own table stays."""


def redefined(before: RegisteredArticle, wanted: RegisteredArticle) -> RegisteredArticle | None:
    """Return the article as it is defined from setup's message on, `article_id` as before; None where its table was
    altered or renamed after setup had looked at it: then it stays as it is."""
    known, now = before.source_definition, wanted.source_definition
    new = wanted.succeeding(before).model_copy(update={"article_id": before.article_id})
    if known.holds_from <= now.holds_from:
        return new
    # Setup itself may have made the replica identity full meanwhile.
    unlike = {name: getattr(known, name) for name in ("holds_from", "altered_by", "replica_identity")}
    is_same = now.model_copy(update=unlike) == known
    return new.model_copy(update={"source_definition": known, "source_file": before.source_file}) if is_same else None


def is_altered(known: TableDefinition, now: TableDefinition) -> bool:
    """Return whether columns of a table were added, dropped, renamed or retyped, or take NULL now."""
    return _columns(known) != _columns(now)


def _columns(table: TableDefinition) -> set[tuple[int, str, int, int, bool]]:
    return {(it.ordinal, it.name, it.type_oid, it.type_modifier, it.not_null) for it in table.columns}


def why_unknown(before: RegisteredArticle, new: RegisteredArticle, *, follows: bool) -> str | None:
    """Return why a new definition leaves open which rows a Subscriber has that followed the one before; None where it
    does not. `follows`: schema changes are replicated."""
    earlier = {column.ordinal for column in before.columns}
    gained = [column.name for column in new.columns if column.ordinal not in earlier]
    if new.source_object_id != before.source_object_id:
        return "its source table was replaced by another one"
    if gained:
        return f"column {', '.join(gained)} was added to it"
    if new.filter != before.filter:
        return "its row filter changed"
    labels = LabelDifference(before, before.source_definition, new.source_definition).why_unknown()
    reason = unseen_change(new, before) or labels or (NEW_KEY if follows and has_new_key(before, new) else None)
    return reason or (DESTINATION_CHANGED if new.destination != before.destination else None)


def unseen_change(article: RegisteredArticle, known: RegisteredArticle) -> str | None:
    """Return what became of the rows of the article's table that the log does not show; None where nothing did."""
    if article.source_file is None or known.source_file is None:
        return None
    if not article.source_file.holds_partitions_of(known.source_file):
        return _PARTITIONS_CHANGED
    return None if article.source_file.holds_values_of(known.source_file) else _REWRITTEN


def late_columns(
    before: RegisteredArticle, new: RegisteredArticle, collations: Mapping[int, str]
) -> tuple[ColumnChange, ...]:
    """Return what is done to the Subscribers' columns where the table has another key or type, which nobody captured.
    `collations`: names by the catalogue's numbers."""
    old, now = before.source_definition, new.source_definition
    if before.destination != new.destination:
        return ()
    found = AlteredTable(new.source_object_id, SETUP_TAG, now, Subject.OTHER, collations=collations)
    columns = ColumnDifference(before, old, now, found).changes()
    retyped = any(part.action is ColumnAction.RETYPE for part in columns)
    return columns if retyped or has_new_key(before, new) else ()


def steps(
    before: RegisteredArticle,
    new: RegisteredArticle,
    columns: tuple[ColumnChange, ...],
    rows_unknown: str | None,
    numbers: Iterator[int],
) -> list[tuple[RegisteredArticle, SchemaChange, RegisteredArticle]]:
    """Return the steps to the new definition: before, change and after. Columns of the old key that are gone are
    dropped by a step of their own, behind the one that replaces the key: no database drops a column of a key, or each
    leaves another key."""
    key = {before.columns[at].name for at in before.key_positions}
    dropped = tuple(it for it in columns if it.action is ColumnAction.DROP and it.column in key)
    first = new.model_copy(update={"article_id": next(numbers)})
    change = SchemaChange(
        source=before.source,
        article_id=before.article_id,
        new_article_id=first.article_id,
        tag=SETUP_TAG,
        columns=tuple(it for it in columns if it not in dropped),
        rows_unknown=rows_unknown,
        notes=(f"setup changed its definition ({_changed_settings(before, new)}), which holds from here on",),
    )
    found = [(before, change, first)]
    if dropped:
        last = new.model_copy(update={"article_id": next(numbers)})
        drop = SchemaChange(
            source=last.source,
            article_id=first.article_id,
            new_article_id=last.article_id,
            tag=SETUP_TAG,
            columns=dropped,
        )
        found.append((first, drop, last))
    return found


def has_new_key(before: RegisteredArticle, new: RegisteredArticle) -> bool:
    """Return whether the same table has another primary key."""
    return new.source_object_id == before.source_object_id and _key(new) != _key(before)


def _key(article: RegisteredArticle) -> list[int]:
    return [article.columns[at].ordinal for at in article.key_positions]


def _changed_settings(before: RegisteredArticle, new: RegisteredArticle) -> str:
    """Return what changes, by the names that the file has for it."""
    names = ("destination", "destinations", "filter", "ins_cmd", "upd_cmd", "del_cmd", "update_policy", "truncate")
    changed = [name for name in names if getattr(before, name) != getattr(new, name)]
    if [it.name for it in before.columns] != [it.name for it in new.columns]:
        changed.append("columns")
    return ", ".join(changed) or "its columns' properties"
