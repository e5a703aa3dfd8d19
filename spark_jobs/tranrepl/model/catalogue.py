"""Tables as a database's catalogue describes them, in terms that any database has."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tranrepl.model.names import TableName
from tranrepl.model.sequences import SequenceDefinition
from tranrepl.model.table_definition import Generation, TableDefinition
from tranrepl.model.table_file import TableFile


class Identity(StrEnum):
    NONE = "none"
    BY_DEFAULT = "by default"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class ColumnDescription:
    """`type_name` is the type in SQL. `base_type_name` is the type under a domain, without modifiers: what a parameter
    is declared as, because it takes any value (NULL too) and leaves the checking to the table."""

    name: str
    ordinal: int
    """Which of the table's columns it is: a number that renaming keeps and that no later column gets."""
    type_oid: int
    type_modifier: int
    type_name: str
    base_type_name: str
    not_null: bool
    generation: Generation
    identity: Identity
    generation_expression: str | None
    generated_from: tuple[str, ...]
    key_ordinal: int | None
    unique: bool
    """A column of a unique constraint or unique index (also of an expression or a condition of one)."""
    toastable: bool
    """The log may leave its value out where it did not change."""
    equality: str = "="
    """The operator that compares keys of its type, as statements name it: `=`, or with the schema of an extension."""
    ignores_case: bool = False
    """Texts that differ in case, or in accents, are equal."""


@dataclass(frozen=True, slots=True)
class ForeignKeyDescription:
    name: str
    columns: tuple[str, ...]
    referenced: TableName
    referenced_columns: tuple[str, ...]
    """In the order of `columns`."""
    holds: bool
    """Whether the key holds for every row, and compares by equality."""


@dataclass(frozen=True, slots=True)
class OldRowSetting:
    """Which old values of a row a Publisher's log carries: a setting of its table, as its catalogue writes it."""

    kind: str
    """The setting as the catalogue writes it: d, f, i or n."""
    index: str | None = None
    """Name of the index, where `kind` is i."""

    @property
    def is_full(self) -> bool:
        return self.kind == "f"


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition, as the statement that makes it has it, in the Publisher's SQL."""

    table: TableName
    parent: TableName
    bound: str
    key: str | None
    """What it is divided by itself; None where it has rows."""


@dataclass(frozen=True, slots=True)
class Partitioning:
    """How a table is divided into partitions, in the Publisher's SQL."""

    key: str
    partitions: tuple[PartitionDescription, ...]
    """Each after the one that it is a partition of."""


@dataclass(frozen=True, slots=True)
class TableDescription:
    name: TableName
    object_id: int
    """A number that renaming keeps and that no other table gets."""
    kind: str
    """What sort of relation it is, in words: `table`, `view`, `partitioned table` …"""
    persistence: str
    replica_identity: str
    columns: tuple[ColumnDescription, ...]
    deferrable: bool
    """A unique constraint is DEFERRABLE."""
    foreign_keys: tuple[ForeignKeyDescription, ...] = ()
    file: TableFile | None = None
    """None where it was not queried."""
    sequences: Mapping[str, SequenceDefinition] = field(default_factory=dict)
    """By column, those that belong to it: of identity and serial columns. Empty where they were not queried."""
    partitioning: Partitioning | None = None
    """None where it is not partitioned, or it was not queried."""
    type_statements: Mapping[int, str] = field(default_factory=dict)
    """By its number, what creates a domain or a composite type of a column, in the Publisher's SQL: for a person to
    read and run. Empty where it was not queried."""
    definition: TableDefinition | None = None
    """What a schema change is found by; None where it was not queried."""

    @property
    def key(self) -> tuple[ColumnDescription, ...]:
        """The columns by which its rows are told apart, in key order: the primary key's, or those of a unique index in
        its place. Empty where there is neither."""
        keyed = [(column.key_ordinal, column) for column in self.columns if column.key_ordinal is not None]
        return tuple(column for _, column in sorted(keyed, key=lambda pair: pair[0]))

    def with_definition(self, definition: TableDefinition | None) -> TableDescription:
        """Return the table with its definition, which has a key also where there is no primary key."""
        if definition is None or self.key or not definition.key:
            return replace(self, definition=definition)
        places = {ordinal: place for place, ordinal in enumerate(definition.key, 1)}
        columns = tuple(replace(it, key_ordinal=places.get(it.ordinal)) for it in self.columns)
        return replace(self, definition=definition, columns=columns)

    def column(self, name: str) -> ColumnDescription | None:
        return next((column for column in self.columns if column.name == name), None)

    def without_sequences(self) -> TableDescription:
        """Return the table as one whose columns are all filled by statements."""
        return replace(self, sequences={})

    def publishable(self) -> tuple[ColumnDescription, ...]:
        """Return the columns that can travel as values. A generated column is computed at the Subscriber."""
        return tuple(column for column in self.columns if column.generation is Generation.NONE)

    def published(self, names: Collection[str] | None) -> tuple[ColumnDescription, ...]:
        """Return the publishable columns among `names`, in table order; all of them for None."""
        return tuple(column for column in self.publishable() if names is None or column.name in names)
