"""What a registered article has that a test of something else does not ask for."""

from __future__ import annotations

from typing import Any

from tranrepl.model.article import ArticleNames
from tranrepl.model.names import TableName
from tranrepl.model.table_definition import TableDefinition


def empty_definition(table: TableName) -> TableDefinition:
    """Return the definition of a table whose columns do not matter."""
    return TableDefinition(name=table, replica_identity="full", persistence="permanent", columns=())


def unused_fields(table: TableName) -> dict[str, Any]:
    """Return the fields of a registered article that say how the table and the file were."""
    names = ArticleNames(source=table, columns=None, filter=None, lob_columns=())
    return {"source_definition": empty_definition(table), "file_names": names}
