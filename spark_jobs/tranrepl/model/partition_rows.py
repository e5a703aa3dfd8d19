"""Which rows a partition has, by its limits and those of what it is a partition of."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict

from tranrepl.model.names import Table


class Edge(BaseModel):
    """One end of a range: values of the first columns of the key."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    values: tuple[str, ...]
    """In the Publisher's text form."""
    included: bool
    """Rows with these very values are in the range."""


class PartitionLimits(BaseModel):
    """The values of a partition: a range, a list, or whatever no other partition of the same table takes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lower: Edge | None = None
    """None: the range has no lower end."""
    upper: Edge | None = None
    listed: tuple[str, ...] | None = None
    """In the Publisher's text form; None where it is a range."""
    is_default: bool = False


class PartitionLevel(BaseModel):
    """A partition's limits on columns of the table that it is a partition of."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    columns: tuple[str, ...]
    limits: PartitionLimits
    others: tuple[PartitionLimits, ...] = ()
    """The limits of a default partition's siblings, which take the rows that it does not have."""


class PartitionRows(BaseModel):
    """The rows of a partition: those within the limits of all levels, from the table at the top down to it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    levels: tuple[PartitionLevel, ...]

    def limits(self) -> Iterator[tuple[tuple[str, ...], PartitionLimits]]:
        """Yield all limits that say which rows they are, with the columns that they are of."""
        for level in self.levels:
            for limits in level.others if level.limits.is_default else (level.limits,):
                yield level.columns, limits


class PartitionPlace(BaseModel):
    """A partition's place among those of one table, in the Publisher's SQL."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    """What the table is divided by."""
    bound: str


class DefinedPartition(BaseModel):
    """A partition of a table, or of one of its partitions, as the Publisher's log or catalogue defines it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    object_id: int
    table: Table
    parent: int
    """Object id of the table that it is a partition of."""
    attached: str
    """Which attachment to that it is: another one where it was detached and attached again."""
    bound: str | None
    """Its limits in the Publisher's SQL; None where they are not known."""
    limits: PartitionLimits | None
    """The same; None where no comparison of values says them."""
    holds_rows: bool
    """It has no partitions itself."""
    key: str | None
    """What it is divided by itself, in the Publisher's SQL; None where it is not, or it is not known."""
    key_columns: tuple[str, ...] | None
    """The columns of that; None also where they are compared otherwise than their types are."""
    empty: bool = False
    """It had no row when it was defined so."""
    attached_by: int | None = None
    """The Publisher's number of the transaction that attached it; None where that was before the log was read."""
    named_by: int | None = None
    """The number of the one that gave it its name; None where that was before, too."""


class GonePartition(BaseModel):
    """A partition that was detached or dropped."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    object_id: int
    attached: str
    gone_by: int
    """The Publisher's number of the transaction that did it."""


class TableDivision(BaseModel):
    """How a table is divided into partitions, on all levels."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str | None
    """What it is divided by, in the Publisher's SQL; None where it is not known."""
    key_columns: tuple[str, ...] | None
    """As a partition's."""
    partitions: tuple[DefinedPartition, ...]
    gone: tuple[GonePartition, ...] = ()
    """The latest ones that are none any more, in order."""
