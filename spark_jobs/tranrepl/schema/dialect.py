"""The part of a Publisher database that differences between definitions depend on: its SQL, and how it keeps values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tranrepl.model.names import TableName
from tranrepl.model.table_definition import DefinedColumn


class PublisherDialect(Protocol):
    """Reads and writes a Publisher's SQL, and asks no server."""

    def filter_columns(self, text: str, table: str) -> tuple[str, ...]:
        """Return the columns that a row filter reads."""
        ...

    def renamed_filter(self, text: str, table: TableName, now: TableName, columns: Mapping[str, str]) -> str:
        """Return a row filter with the table's new name, and the new names of columns by those before."""
        ...

    def rewrites_values(self, before: DefinedColumn, now: DefinedColumn) -> bool:
        """Return whether values of the one type are always stored otherwise than those of the other."""
        ...
