"""What a Publisher's log announces of a published table that was defined anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Flag

from tranrepl.model.names import TableName
from tranrepl.model.partition_rows import TableDivision
from tranrepl.model.position import Position
from tranrepl.model.table_definition import TableDefinition


class Rewrite(Flag):
    """Why a command wrote every row of a table again, without the log telling the new rows."""

    NONE = 0
    PERSISTENCE = 1
    DEFAULT = 2
    """A column was added, whose value is computed for each row."""
    TYPE = 4
    ACCESS_METHOD = 8


@dataclass(frozen=True, slots=True)
class SeenTransactions:
    """Which transactions' work a transaction sees: of those before `xmax`, what is not in progress."""

    xmax: int
    in_progress: frozenset[int]

    def has(self, transaction: int) -> bool:
        return transaction < self.xmax and transaction not in self.in_progress


@dataclass(frozen=True, slots=True)
class OwnChanges:
    """What a transaction has changed of a table so far, by itself."""

    table: bool
    """Its name, schema, replica identity or persistence, among others."""
    columns: frozenset[int]
    """Ordinals of columns that it has added, altered or dropped."""
    unique: frozenset[str]
    """Names of unique indexes that it has made or altered."""


@dataclass(frozen=True, slots=True)
class TableAnnouncement:
    """A published table as a command left it."""

    object_id: int
    tag: str
    """The command's tag, as `ALTER TABLE`."""
    definition: TableDefinition
    ends_command: bool = True
    """False where the command's last announcement is still to come."""
    defaults_told: bool = True
    """Without it, no default of a column is known."""
    rewrite: Rewrite = Rewrite.NONE
    existing_values: Mapping[int, str] = field(default_factory=dict)
    """By ordinal: the values that rows have which were there before their column was added, in the text form."""
    untold_values: frozenset[int] = frozenset()
    """Ordinals of columns that have such a value, in a form that nobody reads."""
    seen: SeenTransactions | None = None
    """Whose work was in the catalogue that the table was read from, beside its own transaction's. None: not told."""
    own: OwnChanges | None = None
    """None: not told."""
    altered: frozenset[int] | None = None
    """Ordinals of the columns that its transaction has added or altered; those of a transaction that announced nothing
    are not among them. None: not told."""
    transaction: int | None = None
    """The Publisher's number of the transaction that announces it. None: not told."""


@dataclass(frozen=True, slots=True)
class PartitionsAnnouncement:
    """The partitions of a published table of which nothing else was changed: they were made, dropped or altered."""

    object_id: int
    tag: str
    division: TableDivision
    """Without the key that the table itself is divided by."""
    holds_from: Position
    """Where its transaction commits."""
    seen: SeenTransactions
    transaction: int

    def of(self, table: TableDefinition) -> TableAnnouncement:
        """Return the announcement of the whole table, which else is as it was before. Where nobody knows how that was
        divided, it is as it was altogether."""
        told = {
            "holds_from": self.holds_from,
            "altered_by": self.transaction,
            "division": None if table.division is None else self.division,
        }
        definition = table.model_copy(update=told)
        return TableAnnouncement(self.object_id, self.tag, definition, seen=self.seen, transaction=self.transaction)


@dataclass(frozen=True, slots=True)
class UnpublishedTable:
    """A table that was dropped, or taken out of the publication."""

    tag: str
    name: TableName
    object_id: int | None


@dataclass(frozen=True, slots=True)
class FailedAnnouncement:
    """A command that defined something anew, without it being known what."""

    tag: str
    code: str
    message: str


DefinedAnew = TableAnnouncement | PartitionsAnnouncement
Announcement = DefinedAnew | UnpublishedTable | FailedAnnouncement
