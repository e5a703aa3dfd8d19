"""What is done to the columns of a table, one after another, and then to its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sqlalchemy import ColumnElement
from sqlalchemy.types import TypeEngine


@dataclass(frozen=True, slots=True)
class AddedColumn:
    """Rows that are there get `value`, which is bound as `bind`; None is NULL."""

    name: str
    type: TypeEngine[Any]
    spelling: str
    """The type as messages name it."""
    bind: TypeEngine[Any]
    value: Any = None
    default: ColumnElement[Any] | None = field(default=None, compare=False)
    """`value` as a constant of DDL, where rows to come without a value get it too; else they get NULL."""
    not_null: bool = False
    """It takes no NULL: then it has a default."""

    def in_words(self) -> str:
        declared = f"{self.spelling}{' NOT NULL' if self.not_null else ''}"
        return f"ADD COLUMN {self.name} {declared}{'' if self.default is None else ' DEFAULT'}"


@dataclass(frozen=True, slots=True)
class GeneratedColumn:
    """A column that is generated from others."""

    name: str
    type: TypeEngine[Any]
    spelling: str
    expression: str
    """In the Publisher's SQL."""

    def in_words(self) -> str:
        return f"ADD COLUMN {self.name} {self.spelling} GENERATED"


@dataclass(frozen=True, slots=True)
class DroppedColumn:
    name: str

    def in_words(self) -> str:
        return f"DROP COLUMN {self.name}"


@dataclass(frozen=True, slots=True)
class RenamedColumn:
    name: str
    new_name: str

    def in_words(self) -> str:
        return f"RENAME COLUMN {self.name} TO {self.new_name}"


@dataclass(frozen=True, slots=True)
class NullableColumn:
    """It takes NULL from now on."""

    name: str

    def in_words(self) -> str:
        return f"ALTER COLUMN {self.name} DROP NOT NULL"


@dataclass(frozen=True, slots=True)
class RetypedColumn:
    """It gets another type, in which every value is written as before."""

    name: str
    type: TypeEngine[Any]
    spelling: str

    def in_words(self) -> str:
        return f"ALTER COLUMN {self.name} TYPE {self.spelling}"


@dataclass(frozen=True, slots=True)
class CheckedColumn:
    """It takes these texts and no others; any, for None. One that is not new and has no such check is left alone."""

    name: str
    constraint: str
    """The name of the check that says so."""
    texts: tuple[str, ...] | None
    is_new: bool = False

    def in_words(self) -> str:
        return f"{'DROP' if self.texts is None else 'ADD'} CONSTRAINT {self.constraint}, the labels of {self.name}"


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column as it was before the change: what is left to do depends on no more than this."""

    name: str
    type_name: str
    nullable: bool


ColumnStep = (
    AddedColumn | GeneratedColumn | DroppedColumn | RenamedColumn | NullableColumn | RetypedColumn | CheckedColumn
)


class ColumnStatements(Protocol):
    """Changes the columns of one table."""

    def execute(self, steps: Sequence[ColumnStep]) -> None:
        """Do these steps, in order."""
        ...

    def complete(self, steps: Sequence[ColumnStep]) -> None:
        """Do what may be done again where nobody knows whether it was done, after `execute`."""
        ...

    def can_replace_key(self) -> bool:
        """Return whether `replace_key` can be done at this table."""
        ...

    def replace_key(self, columns: Sequence[str], retyped: Sequence[RetypedColumn]) -> None:
        """Give the table another primary key than it has, or one where it has lost its own, and columns of it another
        type; all or nothing."""
        ...
