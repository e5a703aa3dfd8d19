"""Messages of the Publisher's log about published tables, in terms of no database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, Flag, auto

from tranrepl.model.names import TableName
from tranrepl.model.partition_rows import TableDivision
from tranrepl.model.position import Position
from tranrepl.model.table_definition import TableDefinition


class Subject(Enum):
    """The kind of object that a command altered."""

    TABLE = auto()
    INDEX = auto()
    TYPE = auto()
    DOMAIN = auto()
    SCHEMA = auto()
    OTHER = auto()

    @property
    def is_type(self) -> bool:
        return self in (Subject.TYPE, Subject.DOMAIN)


class Rewrite(Flag):
    """Why a command wrote every row of a table again, where the log does not have the new rows."""

    NONE = 0
    PERSISTENCE = 1
    DEFAULT = 2
    """A column was added, whose value is computed for each row."""
    TYPE = 4
    ACCESS_METHOD = 8


@dataclass(frozen=True, slots=True)
class SeenTransactions:
    """The transactions whose work a transaction sees: of those before `limit`, all that were not in progress."""

    limit: int
    in_progress: frozenset[int]

    def has(self, transaction: int) -> bool:
        return transaction < self.limit and transaction not in self.in_progress


@dataclass(frozen=True, slots=True)
class AlteredTable:
    """A published table as a command left it."""

    object_id: int
    tag: str
    """The command's tag, as `ALTER TABLE`, for people."""
    definition: TableDefinition
    subject: Subject = Subject.TABLE
    ends_command: bool = True
    """False where the command's last message is still to come."""
    is_locked: bool = True
    """The command's transaction locks the table: no other transaction alters it meanwhile. Without a lock, no default
    of a column is known."""
    rewrite: Rewrite = Rewrite.NONE
    existing_values: Mapping[int, str] = field(default_factory=dict)
    """By ordinal: the values of rows that were there before their column was added, in the text form."""
    unread_values: frozenset[int] = frozenset()
    """Ordinals of columns that have such a value, in a form that is not read."""
    collations: Mapping[int, str] = field(default_factory=dict)
    """Names in the Publisher's SQL of the collations in the definition, by their numbers."""
    seen: SeenTransactions | None = None
    """The transactions, beside its own, that the catalogue had which the table was read from. None: not known."""
    altered: frozenset[int] | None = None
    """Ordinals of the columns that its transaction has added or altered; those of a transaction without a message are
    not among them. None: not known."""
    transaction: int | None = None
    """The Publisher's number of the transaction of the message. None: not known."""

    def is_outdated(self, before: TableDefinition) -> bool:
        """Return whether its transaction altered the table and does not see the table's last change: at REPEATABLE READ
        or SERIALIZABLE it sees the catalogue of its first query."""
        last = before.altered_by
        if not self.is_locked or self.seen is None or last is None or last == self.definition.altered_by:
            return False
        # Partitions are merged with those that it does not see.
        merged = ("holds_from", "altered_by", "division")
        now: dict[str, object] = {name: getattr(self.definition, name) for name in merged}
        only_partitions = self.definition.division is not None and before.model_copy(update=now) == self.definition
        return not only_partitions and not self.seen.has(last)


@dataclass(frozen=True, slots=True)
class AlteredPartitions:
    """The partitions of a published table of which nothing else was changed: they were made, dropped or altered."""

    object_id: int
    tag: str
    division: TableDivision
    """Without the key that the table itself is divided by."""
    holds_from: Position
    """The position of its transaction's commit."""
    seen: SeenTransactions
    transaction: int

    def of(self, table: TableDefinition) -> AlteredTable:
        """Return the message of the whole table, which is as before in all other respects. Where it is not known how
        that was divided, nothing is changed."""
        changed = {
            "holds_from": self.holds_from,
            "altered_by": self.transaction,
            "division": None if table.division is None else self.division,
        }
        definition = table.model_copy(update=changed)
        return AlteredTable(self.object_id, self.tag, definition, seen=self.seen, transaction=self.transaction)


@dataclass(frozen=True, slots=True)
class UnpublishedTable:
    """A table that was dropped, or taken out of the publication."""

    tag: str
    name: TableName
    object_id: int | None


@dataclass(frozen=True, slots=True)
class UnknownAlteration:
    """A command that altered something, where the Publisher failed to write what."""

    tag: str
    code: str
    message: str


Altered = AlteredTable | AlteredPartitions
SchemaMessage = Altered | UnpublishedTable | UnknownAlteration
