"""What only a Publisher's database knows of the names in a table's definition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tranrepl.model.names import TableName


class CollationNames(Protocol):
    """Names of collations, in the Publisher's SQL."""

    def collation(self, oid: int) -> str | None:
        """Return a collation's name in SQL; None where it is gone."""
        ...


class SchemaNames(CollationNames, Protocol):
    """Names in a definition, in the Publisher's SQL."""

    def filter_columns(self, text: str, table: str) -> tuple[str, ...]:
        """Return the columns that a row filter reads."""
        ...

    def renamed_filter(self, text: str, table: TableName, now: TableName, columns: Mapping[str, str]) -> str:
        """Return a row filter with the table's new name, and the new names of columns by those before."""
        ...

    def names_label(self, text: str, label: str) -> bool:
        """Return whether an expression has a literal that may be this label, or a value with the label in it."""
        ...
