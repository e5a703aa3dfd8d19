"""A table as its Publisher's log or catalogue defines it: what a schema change is found by.

It says more than an article: columns that are not published, constraints, and labels of enumerated types are in it too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import cached_property

from pydantic import BaseModel, ConfigDict

from tranrepl.model.names import Table
from tranrepl.model.partition_rows import TableDivision
from tranrepl.model.position import FIRST_POSITION, StoredPosition


class Generation(StrEnum):
    """Where a column's value comes from when a statement gives none."""

    NONE = "none"
    STORED = "stored"
    VIRTUAL = "virtual"


class DefinedType(BaseModel):
    """A type of a database's users: a column's own, or one that it is made of."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    oid: int
    name: str
    """In SQL, as the Publisher's catalogue formats it."""
    labels: tuple[str, ...] | None = None
    """The labels of an enumerated type, in their order; None for any other type."""
    form: str
    """Another one where values of the type may be written otherwise, or others be refused, than before. It says nothing
    of an enumerated type."""


class DefinedColumn(BaseModel):
    """A column of a table, published or not."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ordinal: int
    """Which of the table's columns it is: a number that renaming keeps and that no later column gets."""
    name: str
    type_oid: int
    type_modifier: int
    type_name: str
    """The type in SQL, as the Publisher's catalogue formats it."""
    collation_oid: int | None = None
    """The catalogue's number of the collation, where it is not the type's."""
    not_null: bool
    generation: Generation = Generation.NONE
    is_identity: bool = False
    default: str | None = None
    """In the Publisher's SQL; of a generated column, what it is generated from. It need not be known."""
    counts: bool = False
    """Its default is the next number of a sequence."""
    types: tuple[DefinedType, ...] | None = None
    """Its own, and those that it is made of, without those of the database itself. None where they are not known."""
    labels: tuple[str, ...] | None = None
    """The texts that it takes, in their order, where its type is a list of them and has no name."""

    @property
    def is_of_users_type(self) -> bool:
        """Return whether its type is none of the database itself, or not known."""
        return self.types is None or len(self.types) > 0


class UniqueConstraint(BaseModel):
    """A unique index of a table, whatever it was made by."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    primary: bool
    immediate: bool
    """False where it is DEFERRABLE."""
    partial: bool
    identity: bool
    """It is the table's replica identity."""
    columns: tuple[int, ...]
    """Ordinals; 0 stands for an expression."""


class TableDefinition(BaseModel):
    """A table as it was defined at one position of the log."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Table
    replica_identity: str
    """As a table's description spells it: default, full, index or nothing."""
    persistence: str
    """Likewise: permanent, unlogged or temporary."""
    columns: tuple[DefinedColumn, ...]
    unique: tuple[UniqueConstraint, ...] = ()
    holds_from: StoredPosition = FIRST_POSITION
    """Schema changes that were committed before this position are in it."""
    division: TableDivision | None = None
    """None where the table is not partitioned, or it is not known how."""
    altered_by: int | None = None
    """The Publisher's number of the transaction that altered the table last. None: not known."""

    @cached_property
    def by_ordinal(self) -> dict[int, DefinedColumn]:
        return {column.ordinal: column for column in self.columns}

    @property
    def enumerated(self) -> dict[int, DefinedType]:
        """The enumerated types that its columns are made of, by their numbers."""
        types = (it for column in self.columns for it in column.types or () if it.labels is not None)
        return {it.oid: it for it in sorted(types, key=lambda it: it.oid)}

    @property
    def has_labels(self) -> bool:
        return bool(self.enumerated) or any(it.labels is not None for it in self.columns)

    @property
    def key(self) -> tuple[int, ...]:
        """Ordinals of the primary key's columns, in key order; without one, those of a unique index that has every row
        and no NULL: the one with the fewest. Empty where there is neither. Source: PostgreSQL's rules for REPLICA
        IDENTITY USING INDEX; whether an index is one does not count, as setup changes that."""
        keys = [it for it in self.unique if it.primary or self._has_every_row(it)]
        chosen = min(keys, key=lambda it: (not it.primary, len(it.columns), it.columns), default=None)
        return () if chosen is None else chosen.columns

    def _has_every_row(self, index: UniqueConstraint) -> bool:
        columns = [self.by_ordinal.get(it) for it in index.columns]
        whole = all(it is not None and it.not_null for it in columns)
        return whole and index.immediate and not index.partial and self.division is None

    @property
    def deferrable(self) -> bool:
        return any(not it.immediate for it in self.unique)


def labels_follow(before: Sequence[str], now: Sequence[str]) -> bool:
    """Return whether labels were added at most; else some were renamed."""
    known = set(before)
    return [it for it in now if it in known] == list(before)


def added_labels(before: Sequence[str], now: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield the labels of now that there were not before, each with the one that follows it; from the last one on, so
    that that one is there by then."""
    for label, following in zip(reversed(now), (None, *reversed(now)), strict=False):
        if label not in before:
            yield label, following
