"""What a Publisher's log announces of a published table that was defined anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Flag

from tranrepl.model.names import TableName
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


Announcement = TableAnnouncement | UnpublishedTable | FailedAnnouncement
