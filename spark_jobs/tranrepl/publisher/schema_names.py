"""What only a Publisher's database knows of the names in a table's definition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tranrepl.model.article import RegisteredArticle
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

    def filter_with_labels(self, article: RegisteredArticle, names: Mapping[int, Mapping[str, str]]) -> str | None:
        """Return the article's row filter with the new names of labels by those before, by the numbers of their types;
        None where nothing tells which of its texts are labels."""
        ...
