"""What validation asks of a Publisher: its end of a comparison, in a snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.comparison import Checksum, ColumnForm, ComparedEnd
from tranrepl.model.names import TableName


class PublisherComparison(Protocol):
    """Until it is closed, nobody empties or rewrites the articles' tables."""

    def describe(self, articles: Sequence[RegisteredArticle]) -> Mapping[TableName, TableDescription]:
        """Return the articles' tables that exist."""
        ...

    def native_hashes(self) -> tuple[object, ...]:
        """Return what the server's hash functions make of sample values."""
        ...

    def table_bytes(self, articles: Sequence[RegisteredArticle]) -> int:
        """Return the size of all these articles' tables, in bytes."""
        ...

    def end(
        self, article: RegisteredArticle, forms: Sequence[ColumnForm], checksum_by: Checksum, part_bytes: int
    ) -> ComparedEnd:
        """Return the article's end, its columns in these forms, read in parts of about that many bytes."""
        ...
