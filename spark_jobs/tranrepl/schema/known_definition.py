"""A table after a command, where other transactions are open beside the command's own.

A message describes a table as its transaction sees it. Changes of another transaction that is not committed yet are
not in it, though that may be committed first and so come before it in the log.
"""

from __future__ import annotations

from dataclasses import dataclass

from tranrepl.model.names import TableName
from tranrepl.model.partition_rows import DefinedPartition, GonePartition, TableDivision
from tranrepl.model.table_definition import DefinedColumn, TableDefinition
from tranrepl.schema.messages import AlteredTable, SeenTransactions, Subject

_REMEMBERED = 100
"""How many partitions that are gone are remembered."""
_Attachment = tuple[int, str]


def definition_after(before: TableDefinition, altered: AlteredTable) -> TableDefinition:
    """Return the table at the commit of the command.

    Where the transaction locks the table, all of the message holds, but for labels of types and for partitions. Where
    it does not, only what the command itself can have changed is news.
    """
    now = _with(altered.definition, division=_division_after(before, altered))
    if altered.is_locked:
        columns = [_with_known_labels(before.by_ordinal.get(it.ordinal), it, altered) for it in now.columns]
        return _with(now, columns=tuple(columns), altered_by=now.altered_by or before.altered_by)
    known = now.by_ordinal
    columns = [_with_altered_type(it, known.get(it.ordinal), altered) for it in before.columns]
    of_schema = altered.subject is Subject.SCHEMA
    base = before if altered.subject.is_type or of_schema else now
    name = TableName(now.name.schema, before.name.table) if of_schema else before.name
    altered_by = before.altered_by if name == before.name else now.altered_by or before.altered_by
    return _with(base, name=name, columns=tuple(columns), holds_from=now.holds_from, altered_by=altered_by)


def _with(table: TableDefinition, **changed: object) -> TableDefinition:
    # Not a copy: it would keep what was derived from other columns.
    fields = {name: getattr(table, name) for name in type(table).model_fields}
    return TableDefinition.model_validate(fields | changed)


def _with_altered_type(before: DefinedColumn, now: DefinedColumn | None, altered: AlteredTable) -> DefinedColumn:
    """Return a column of a table that is as before, but perhaps for its type."""
    if now is None or (now.type_oid, now.type_modifier) != (before.type_oid, before.type_modifier):
        return before
    retyped = before.model_copy(update={"type_name": now.type_name, "types": now.types})
    return _with_known_labels(before, retyped, altered)


def _with_known_labels(before: DefinedColumn | None, now: DefinedColumn, altered: AlteredTable) -> DefinedColumn:
    """Return the column with the labels that its types had before, where the command altered no type: its transaction
    may not see the labels that another one added."""
    if before is None or before.types is None or now.types is None or altered.subject.is_type:
        return now
    known = {it.oid: it.labels for it in before.types}
    types = tuple(it.model_copy(update={"labels": known.get(it.oid, it.labels)}) for it in now.types)
    return now.model_copy(update={"types": types})


def _division_after(before: TableDefinition, altered: AlteredTable) -> TableDivision | None:
    """Return the partitions with those that the transaction does not see.

    No lock of the table itself is needed to change partitions below one of its partitions, or to rename one. So two
    transactions do so at once, and each message has all partitions as its transaction sees them.
    """
    known, now = before.division, altered.definition.division
    if known is None or now is None or altered.seen is None or altered.transaction is None:
        return now
    return _View(altered.seen, altered.transaction).merged(known, now)


@dataclass(frozen=True, slots=True)
class _View:
    """What one transaction sees of the others."""

    seen: SeenTransactions
    transaction: int

    def merged(self, known: TableDivision, shown: TableDivision) -> TableDivision:
        before, now = _by_attachment(known), _by_attachment(shown)
        unseen_gone = {(it.object_id, it.attached) for it in known.gone if not self._sees(it.gone_by)}
        came = {at: it for at, it in before.items() if at not in now and not self._sees(self._attached_by(it))}
        went = [it for at, it in before.items() if at not in now and at not in came]
        partitions = [self._partition(it, before.get(at)) for at, it in now.items() if at not in unseen_gone]
        gone = [GonePartition(object_id=it.object_id, attached=it.attached, gone_by=self.transaction) for it in went]
        return shown.model_copy(
            update={
                "partitions": tuple(sorted([*partitions, *came.values()], key=lambda it: it.object_id)),
                "gone": (*known.gone, *gone)[-_REMEMBERED:],
            }
        )

    def _partition(self, shown: DefinedPartition, known: DefinedPartition | None) -> DefinedPartition:
        if known is None:
            return shown.model_copy(update={"attached_by": self.transaction, "named_by": self.transaction})
        unseen = known.named_by is not None and not self._sees(known.named_by)
        named_as_known = unseen or shown.table == known.table
        return shown.model_copy(
            update={
                "attached_by": known.attached_by,
                "table": known.table if named_as_known else shown.table,
                "named_by": known.named_by if named_as_known else self.transaction,
            }
        )

    def _sees(self, transaction: int) -> bool:
        return transaction == self.transaction or self.seen.has(transaction)

    def _attached_by(self, partition: DefinedPartition) -> int:
        """Return the transaction that attached a partition; where the catalogue alone says it, it may be one within
        another, and the catalogue has the lower half of its number."""
        if partition.attached_by is not None:
            return partition.attached_by
        apart = (int(partition.attached) - self.transaction) % (1 << 32)
        return self.transaction + (apart if apart < 1 << 31 else apart - (1 << 32))


def _by_attachment(division: TableDivision) -> dict[_Attachment, DefinedPartition]:
    return {(it.object_id, it.attached): it for it in division.partitions}
