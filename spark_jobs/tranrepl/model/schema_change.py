"""Schema changes: what became of an article's table, as the command that brings it to the Subscribers says it.

A schema change is a stored command of `Operation.SCHEMA` with its own (`xact_seqno`, `command_id`). Commands before it
are of the article's definition `article_id`, commands after it of `new_article_id`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from tranrepl.model.names import Table
from tranrepl.model.partition_rows import PartitionPlace, PartitionRows

SETUP_TAG = "tranrepl setup"
"""The tag of a change that setup made, not the Publisher: of the article's definition, as its file says it now."""


class ColumnAction(StrEnum):
    """What is done to one column of the destination."""

    ADD = "add"
    DROP = "drop"
    RENAME = "rename"
    RETYPE = "retype"
    DROP_NOT_NULL = "drop not null"


class LabelAction(StrEnum):
    """What is done to an enumerated type."""

    ADD = "add"
    RENAME_TYPE = "rename type"
    """The type itself gets another name, or another schema."""


class PartitionAction(StrEnum):
    """What is done to one partition of the destination, and to its rows."""

    CREATE = "create"
    """It is made, without rows."""
    RENAME = "rename"
    REMOVE = "remove"
    """It goes, and its rows with it."""
    EMPTY = "empty"
    """Its rows go."""


class ColumnChange(BaseModel):
    """One thing that is done to one column; those of a change are done in their order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    action: ColumnAction
    column: str
    """Its name before; of a column that is added, the name that it gets."""
    new_name: str | None = None
    """The new name of a column that is renamed."""
    type_name: str | None = None
    """The type of a column that is added or retyped, in SQL as the Publisher's catalogue formats it."""
    collation: str | None = None
    """The collation of a column that is added or retyped, in SQL, where it is not the type's."""
    existing_value: str | None = None
    """What rows that were there before have in a column that is added, in the Publisher's text form."""
    default: str | None = None
    """The default of a column that is added, in the Publisher's SQL."""
    not_null: bool = False
    """A column that is added is NOT NULL."""
    generation_expression: str | None = None
    """What a generated column that is added or renamed is generated from, in the Publisher's SQL. It does not travel,
    and a Subscriber may do without it."""


class LabelChange(BaseModel):
    """One thing that is done to one label of an enumerated type, or to the type; those of a change are done in their
    order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    action: LabelAction
    type_name: str
    """The type in SQL, as the Publisher's catalogue formats it; of one that is renamed, as before."""
    label: str = ""
    """The label that is added. Empty where the type is renamed."""
    before: str | None = None
    """The label that follows one that is added; None where it is the last."""
    new_type_name: str | None = None
    """The new name of a type that is renamed, likewise in SQL."""


class PartitionChange(BaseModel):
    """One thing that is done to one partition; those of a change are done in their order, after its columns'."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    action: PartitionAction
    table: Table
    """Its name at the Publisher, before."""
    path: tuple[PartitionPlace, ...] = ()
    """Places of the partitions from the top down to it: a Subscriber's partition is known by them. Empty where they are
    not known."""
    new_name: Table | None = None
    """The new name of a partition that is renamed."""
    key: str | None = None
    """What a partition that is made is divided by itself, in the Publisher's SQL."""
    rows: PartitionRows | None = None
    """Those that go; None where no comparison of values says which they are."""

    @property
    def removes_rows(self) -> bool:
        return self.action in (PartitionAction.REMOVE, PartitionAction.EMPTY)


class SchemaChange(BaseModel):
    """One schema change of one article. It is stored as JSON, as the `after` image of its command."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: Table
    """The article, as it is named in the publication."""
    article_id: Annotated[int, Field(ge=1)]
    """The definition of the commands before."""
    new_article_id: Annotated[int, Field(ge=1)] | None
    """The definition of the commands after; None where the article ends here, and its destination stays as it is."""
    tag: str
    """The Publisher's command tag, as `ALTER TABLE`; `SETUP_TAG` where setup changed the definition."""
    columns: tuple[ColumnChange, ...] = ()
    labels: tuple[LabelChange, ...] = ()
    partitions: tuple[PartitionChange, ...] = ()
    rows_unknown: str | None = None
    """Why the log does not say which rows the table has now: the article is reinitialized. None where it does."""
    notes: tuple[str, ...] = ()
    """What was changed at the Publisher and is left alone at the Subscribers, in words."""

    @property
    def changes_destination(self) -> bool:
        """Say whether there is anything to do at a Subscriber's table or its types."""
        return bool(self.columns or self.labels or self.partitions)


def chain_of_changes(changes: Sequence[SchemaChange], recorded: int, wanted: int) -> list[SchemaChange] | None:
    """Return the changes, of all in order, that lead from one definition of an article to another; None where they do
    not lead there."""
    chain, at = [], recorded
    for change in changes:
        if at == wanted:
            break
        if change.article_id == at and change.new_article_id is not None:
            chain.append(change)
            at = change.new_article_id
    return chain if at == wanted else None
