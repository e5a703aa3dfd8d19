"""The file of a published table: whether its rows still hold the values that the log has had."""

from __future__ import annotations

from collections.abc import Collection
from typing import Self

from pydantic import BaseModel, ConfigDict

from tranrepl.model.names import Table
from tranrepl.model.position import Position, StoredPosition


class ColumnVersion(BaseModel):
    """Which version of a column's definition is in force."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: str
    """The version of the catalogue's row."""
    missing: bool
    """Rows from before the column was added have its value in the catalogue."""
    default: int | None
    """The default's own number: a statement that changes how values are stored gives it another."""


class RowsFile(BaseModel):
    """A file that rows are in, and what shows why it is another one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    columns: dict[int, ColumnVersion]
    """The columns' versions, by the table's ordinals."""

    def of(self, ordinals: Collection[int]) -> Self:
        """Return the file with these columns alone."""
        return self.model_copy(update={"columns": {it: self.columns[it] for it in ordinals if it in self.columns}})

    def holds_values_of(self, before: RowsFile) -> bool:
        """Return whether the columns' values are those that the earlier file had, as far as no change in the log says
        otherwise.

        A statement that stores other values redefines the column, in whatever type. What copies rows as they are
        (VACUUM FULL, CLUSTER, TRUNCATE, another tablespace) defines none.
        """
        if self.number == before.number:
            return True
        return all(_same_column(before.columns[it], self.columns.get(it)) for it in before.columns)


class PartitionFile(RowsFile):
    """A partition that has rows of its own: of a partitioned table's partitions, one without partitions."""

    table: Table
    """The name that it has, or had when it was last seen."""
    attachment: str
    """Which attachment to its table it is: another one where it was detached and attached again."""
    made_empty: bool
    """It had no row of its own when it became a partition."""
    gone: bool = False
    """It is no partition of the table any more. The log may still hold changes of its rows."""
    gone_by: StoredPosition | None = None
    """Position of the log after which there is none of them; None: not known yet."""


class TableFile(RowsFile):
    """The file that a table's rows are in; those of a partitioned table are in its partitions' files."""

    partitions: dict[int, PartitionFile] | None = None
    """By object id; None where the table is not partitioned."""

    @property
    def attached(self) -> dict[int, PartitionFile]:
        """Return the partitions that are not gone."""
        return {number: it for number, it in (self.partitions or {}).items() if not it.gone}

    def of(self, ordinals: Collection[int]) -> Self:
        """Return the file with these columns alone, also in its partitions."""
        of_columns = super().of(ordinals)
        if self.partitions is None:
            return of_columns
        return of_columns.model_copy(
            update={"partitions": {number: it.of(ordinals) for number, it in self.partitions.items()}}
        )

    def with_partitions_of(self, known: TableFile | None) -> TableFile:
        """Return the file with the partitions as they were known before: what became of their rows is the log reader's
        to judge, after it has read the log of them."""
        if self.partitions is None or known is None or known.partitions is None:
            return self
        return self.model_copy(update={"partitions": known.partitions})

    def with_gone(self, before: TableFile | None) -> TableFile:
        """Return the file with the partitions that are gone since, and those that were before: whose rows the log may
        still hold."""
        if self.partitions is None or before is None:
            return self
        gone = {
            number: it.model_copy(update={"gone": True})
            for number, it in (before.partitions or {}).items()
            if number not in self.partitions
        }
        return self.model_copy(update={"partitions": {**self.partitions, **gone}})

    def without_read(self, read_to: Position, end_of_log: Position) -> TableFile:
        """Return the file without the partitions that are gone and that the log does not hold any more, where it is
        read up to `read_to`; what went since the last look went before `end_of_log`."""
        if self.partitions is None:
            return self
        dated = {
            number: it.model_copy(update={"gone_by": end_of_log}) if it.gone and it.gone_by is None else it
            for number, it in self.partitions.items()
        }
        kept = {number: it for number, it in dated.items() if it.gone_by is None or it.gone_by > read_to}
        return self.model_copy(update={"partitions": kept})

    def holds_partitions_of(self, before: TableFile) -> bool:
        """Return whether no rows came or went with a whole partition since then, of which the log says nothing."""
        if self.partitions is None or before.partitions is None:
            return self.partitions is None and before.partitions is None
        now = self.attached
        stayed = all(
            number in now and now[number].attachment == it.attachment for number, it in before.attached.items()
        )
        return stayed and all(it.made_empty for number, it in now.items() if number not in before.attached)

    def holds_values_of(self, before: RowsFile) -> bool:
        if isinstance(before, TableFile) and before.partitions is not None:
            now = self.attached
            return all(now[number].holds_values_of(it) for number, it in before.attached.items() if number in now)
        return super().holds_values_of(before)


def _same_column(before: ColumnVersion, now: ColumnVersion | None) -> bool:
    if now is None or now.version == before.version:
        # A column that is gone stops the log reader by itself.
        return True
    # With the rows, values that were in the catalogue are rewritten: that touches its row, and not the default.
    written = before.missing and not now.missing
    return written and before.default is not None and before.default == now.default
