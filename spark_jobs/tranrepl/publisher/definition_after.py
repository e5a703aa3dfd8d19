"""A table after a command, where other transactions are open beside the command's own.

A table is told as the command's transaction sees it. What another one has changed and not committed yet is not in it,
though that may be committed first and so come before it in the log. Where the command's transaction holds a lock of the
table, no other one can have altered it meanwhile; where it holds none, only what the command itself can have changed is
news. At REPEATABLE READ a transaction also does not see what another one changed and committed after its first query.
"""

from __future__ import annotations

from tranrepl.model.names import TableName
from tranrepl.model.table_definition import DefinedColumn, TableDefinition
from tranrepl.publisher.announcements import TableAnnouncement

TYPE_TAGS = frozenset({"ALTER TYPE", "ALTER DOMAIN"})
_SCHEMA_TAG = "ALTER SCHEMA"


def definition_after(before: TableDefinition, announced: TableAnnouncement) -> TableDefinition:
    """Return the table as it is where the command is committed."""
    now = announced.definition
    if announced.defaults_told:
        columns = [_with_known_labels(before.by_ordinal.get(it.ordinal), it, announced) for it in now.columns]
        return _with(now, columns=tuple(columns), altered_by=now.altered_by or before.altered_by)
    known = now.by_ordinal
    columns = [_with_altered_type(it, known.get(it.ordinal), announced) for it in before.columns]
    base = before if announced.tag in TYPE_TAGS or announced.tag == _SCHEMA_TAG else now
    name = TableName(now.name.schema, before.name.table) if announced.tag == _SCHEMA_TAG else before.name
    altered_by = before.altered_by if name == before.name else now.altered_by or before.altered_by
    return _with(base, name=name, columns=tuple(columns), holds_from=now.holds_from, altered_by=altered_by)


def _with(table: TableDefinition, **changed: object) -> TableDefinition:
    # Not a copy: it would keep what was derived from other columns.
    fields = {name: getattr(table, name) for name in type(table).model_fields}
    return TableDefinition.model_validate(fields | changed)


def _with_altered_type(before: DefinedColumn, now: DefinedColumn | None, announced: TableAnnouncement) -> DefinedColumn:
    """Return a column of a table that nobody has altered, but perhaps its type."""
    if now is None or (now.type_oid, now.type_modifier) != (before.type_oid, before.type_modifier):
        return before
    told = before.model_copy(update={"type_name": now.type_name, "types": now.types})
    return _with_known_labels(before, told, announced)


def _with_known_labels(before: DefinedColumn | None, now: DefinedColumn, announced: TableAnnouncement) -> DefinedColumn:
    """Return the column with the labels that its types had before, where the command was about no type: its transaction
    need not see what another one did to them."""
    if before is None or before.types is None or now.types is None or announced.tag in TYPE_TAGS:
        return now
    known = {it.oid: it.labels for it in before.types}
    types = tuple(it.model_copy(update={"labels": known.get(it.oid, it.labels)}) for it in now.types)
    return now.model_copy(update={"types": types})
