"""A table after a command, where other transactions are open beside the command's own.

A table is told as the command's transaction sees it. What another one has changed and not committed yet is not in it,
though that may be committed first and so come before it in the log. Where the command's transaction holds a lock of the
table, no other one can have altered it meanwhile; where it holds none, only what the command itself can have changed is
news. At REPEATABLE READ a transaction also does not see what another one changed and committed after its first query.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tranrepl.model.names import TableName
from tranrepl.model.table_definition import DefinedColumn, DefinedType, TableDefinition, labels_follow
from tranrepl.publisher.announcements import Rewrite, TableAnnouncement

TYPE_TAGS = frozenset({"ALTER TYPE", "ALTER DOMAIN"})
_SCHEMA_TAG = "ALTER SCHEMA"


def definition_after(before: TableDefinition, announced: TableAnnouncement) -> TableDefinition:
    """Return the table as it is where the command is committed."""
    now, unseen = announced.definition, _renamed_unseen(before, announced)
    if announced.defaults_told:
        columns = [_with_known_labels(before.by_ordinal.get(it.ordinal), it, unseen) for it in now.columns]
        return _with(now, columns=tuple(columns), altered_by=now.altered_by or before.altered_by)
    known = now.by_ordinal
    columns = [_with_altered_type(it, known.get(it.ordinal), unseen) for it in before.columns]
    base = before if announced.tag in TYPE_TAGS or announced.tag == _SCHEMA_TAG else now
    name = TableName(now.name.schema, before.name.table) if announced.tag == _SCHEMA_TAG else before.name
    altered_by = before.altered_by if name == before.name else now.altered_by or before.altered_by
    return _with(base, name=name, columns=tuple(columns), holds_from=now.holds_from, altered_by=altered_by)


def labels_alone(
    before: TableDefinition, announced: TableAnnouncement
) -> tuple[TableDefinition, TableAnnouncement] | None:
    """Return what is news of a table that setup has looked at since, the labels of its types, and the table before it.
    None where nothing is.

    A label changes at the Subscribers with the commands, and so setup leaves it to the log. Where labels are others in
    a way that is not followed, which stopped the reading once, whoever then ran setup has altered the Subscribers'.
    """
    unread, committed = before.unread_labels, announced.definition.holds_from
    if unread is None or committed < unread.labels_hold_from or announced.tag not in TYPE_TAGS:
        return None
    unseen, known = _renamed_unseen(before, announced), before.enumerated
    found = announced.definition.enumerated
    types = {number: _newer(known.get(number), it, unseen=number in unseen) for number, it in found.items()}
    unread = unread.model_copy(update={"labels_hold_from": committed})
    adopted = {
        number: it
        for number, it in types.items()
        if number in known and not labels_follow(known[number].labels or (), it.labels or ())
    }
    definition = before.with_labels_of(types, unread_labels=unread)
    told = replace(announced, definition=definition, defaults_told=True, rewrite=Rewrite.NONE, seen=None, own=None)
    return before.with_labels_of(adopted), told


def _with(table: TableDefinition, **changed: object) -> TableDefinition:
    # Not a copy: it would keep what was derived from other columns.
    fields = {name: getattr(table, name) for name in type(table).model_fields}
    return TableDefinition.model_validate(fields | changed)


def _renamed_unseen(before: TableDefinition, announced: TableAnnouncement) -> frozenset[int]:
    """Return the types of which a transaction renamed a label that the announcing one did not see."""
    seen, own = announced.seen, announced.transaction
    if seen is None:
        return frozenset()
    by = {it.type_oid: it.renamed_by for it in before.renamed_labels if it.renamed_by not in (None, own)}
    return frozenset(number for number, it in by.items() if it is not None and not seen.has(it))


def _with_altered_type(before: DefinedColumn, now: DefinedColumn | None, unseen: Collection[int]) -> DefinedColumn:
    """Return a column of a table that nobody has altered, but perhaps its type."""
    if now is None or (now.type_oid, now.type_modifier) != (before.type_oid, before.type_modifier):
        return before
    told = before.model_copy(update={"type_name": now.type_name, "types": now.types})
    return _with_known_labels(before, told, unseen)


def _with_known_labels(before: DefinedColumn | None, now: DefinedColumn, unseen: Collection[int]) -> DefinedColumn:
    """Return the column with the labels that its types had before, where fewer are told, or not the last names: none
    is ever dropped, and who alters a type waits for whoever has altered it."""
    if before is None or before.types is None or now.types is None:
        return now
    known = {it.oid: it for it in before.types}
    types = tuple(_newer(known.get(it.oid), it, unseen=it.oid in unseen) for it in now.types)
    return now if types == now.types else now.model_copy(update={"types": types})


def _newer(before: DefinedType | None, now: DefinedType, *, unseen: bool) -> DefinedType:
    if before is None or before.labels is None or now.labels is None:
        return now
    return before if unseen or len(now.labels) < len(before.labels) else now
