"""Partitions of a table, as a transaction tells them that does not see what others do to them meanwhile.

No lock of the table itself is needed to change partitions below one of its partitions, or to rename one. So two
transactions do so at once, and each tells all partitions as it sees them: where one is missing, or there, or called so
in the message that comes last in the log, that may be as it was before the other transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tranrepl.model.partition_rows import DefinedPartition, GonePartition, TableDivision
from tranrepl.model.table_definition import TableDefinition
from tranrepl.publisher.announcements import SeenTransactions, TableAnnouncement

_REMEMBERED = 100
"""How many partitions that are gone are known: where one more is told of again, the table begins anew."""
_Attachment = tuple[int, str]


def with_unseen_partitions(before: TableDefinition, announced: TableAnnouncement) -> TableAnnouncement:
    """Return the announcement with what its transaction did not see of partitions: what came, what went, new names."""
    known, told = before.division, announced.definition.division
    if known is None or told is None or announced.seen is None or announced.transaction is None:
        return announced
    view = _View(announced.seen, announced.transaction)
    definition = announced.definition.model_copy(update={"division": view.merged(known, told)})
    return replace(announced, definition=definition)


@dataclass(frozen=True, slots=True)
class _View:
    """What one transaction sees of the others."""

    seen: SeenTransactions
    transaction: int

    def merged(self, known: TableDivision, told: TableDivision) -> TableDivision:
        before, now = _by_attachment(known), _by_attachment(told)
        unseen_gone = {(it.object_id, it.attached) for it in known.gone if not self._sees(it.gone_by)}
        came = {at: it for at, it in before.items() if at not in now and not self._sees(self._attached_by(it))}
        went = [it for at, it in before.items() if at not in now and at not in came]
        partitions = [self._partition(it, before.get(at)) for at, it in now.items() if at not in unseen_gone]
        gone = [GonePartition(object_id=it.object_id, attached=it.attached, gone_by=self.transaction) for it in went]
        return told.model_copy(
            update={
                "partitions": tuple(sorted([*partitions, *came.values()], key=lambda it: it.object_id)),
                "gone": (*known.gone, *gone)[-_REMEMBERED:],
            }
        )

    def _partition(self, told: DefinedPartition, known: DefinedPartition | None) -> DefinedPartition:
        if known is None:
            return told.model_copy(update={"attached_by": self.transaction, "named_by": self.transaction})
        unseen = known.named_by is not None and not self._sees(known.named_by)
        named_as_known = unseen or told.table == known.table
        return told.model_copy(
            update={
                "attached_by": known.attached_by,
                "table": known.table if named_as_known else told.table,
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
