"""The file of a published table: whether its rows still hold the values that the log has had."""

from __future__ import annotations

from collections.abc import Collection

from pydantic import BaseModel, ConfigDict


class ColumnVersion(BaseModel):
    """Which version of a column's definition is in force."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: str
    """The version of the catalogue's row."""
    missing: bool
    """Rows from before the column was added have its value in the catalogue."""
    default: int | None
    """The default's own number: a statement that changes how values are stored gives it another."""


class TableFile(BaseModel):
    """The file that a table's rows are in, and what shows why it is another one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    columns: dict[int, ColumnVersion]
    """The columns' versions, by ordinal."""

    def of(self, ordinals: Collection[int]) -> TableFile:
        """Return the file with these columns alone."""
        return TableFile(number=self.number, columns={it: self.columns[it] for it in ordinals if it in self.columns})

    def holds_values_of(self, before: TableFile) -> bool:
        """Return whether the columns' values are those that the earlier file had, as far as no change in the log says
        otherwise.

        A statement that stores other values redefines the column, in whatever type. What copies rows as they are
        (VACUUM FULL, CLUSTER, TRUNCATE, another tablespace) defines none.
        """
        if self.number == before.number:
            return True
        return all(_same_column(before.columns[it], self.columns.get(it)) for it in before.columns)


def _same_column(before: ColumnVersion, now: ColumnVersion | None) -> bool:
    if now is None or now.version == before.version:
        # A column that is gone stops the log reader by itself.
        return True
    # With the rows, values that were in the catalogue are rewritten: that touches its row, and not the default.
    written = before.missing and not now.missing
    return written and before.default is not None and before.default == now.default
