"""Names in a definition, as a PostgreSQL Publisher knows them: collations, and the columns of row filters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sqlglot
from psycopg import sql
from sqlglot import exp

from tranrepl.connections import Connection
from tranrepl.model.names import TableName
from tranrepl.postgres.session import connect
from tranrepl.publisher.postgres.row_filter_check import STRINGS
from tranrepl.publisher.postgres.row_filters import filter_columns, folded_name
from tranrepl.publisher.postgres.schema_messages import read_collation

_COMPOSED = ("{", "(", "[")
"""What a value of several begins with: an array, a row, a range."""


@dataclass(frozen=True, slots=True)
class PostgresSchemaNames:
    """The `SchemaNames` of a PostgreSQL Publisher, which is connected to where it must be asked."""

    connection: Connection

    def collation(self, oid: int) -> str | None:
        with connect(self.connection, "tranrepl log reader", autocommit=True) as session:
            return read_collation(session, oid)

    def filter_columns(self, text: str, table: str) -> tuple[str, ...]:
        return filter_columns(text, table)

    def renamed_filter(self, text: str, table: TableName, now: TableName, columns: Mapping[str, str]) -> str:
        return renamed_filter(text, table, now, columns)

    def names_label(self, text: str, label: str) -> bool:
        return names_label(text, label)


def names_label(text: str, label: str) -> bool:
    """Return whether an expression has a literal that may be this label, or a value with the label in it."""
    literals = [it.text for it in sqlglot.tokenize(text, read="postgres") if it.token_type in STRINGS]
    # What an escape sequence says is not looked at.
    return any(it == label or "\\" in it or (it[:1] in _COMPOSED and label in it) for it in literals)


def renamed_filter(text: str, table: TableName, now: TableName, columns: Mapping[str, str]) -> str:
    """Return the filter with other names in their places, and everything else as it was written."""
    places: list[tuple[int, int, str]] = []
    for column in sqlglot.parse_one(text, dialect="postgres").find_all(exp.Column):
        name, qualifier = folded_name(column.this), column.args.get("table")
        if name in columns:
            places.append((*_place(column.this), columns[name]))
        if qualifier is not None and table.table != now.table:
            places.append((*_place(qualifier), now.table))
    for start, end, name in sorted(places, reverse=True):
        text = text[:start] + sql.Identifier(name).as_string(None) + text[end:]
    return text


def _place(identifier: exp.Identifier) -> tuple[int, int]:
    """Return where it stands in the text: its first character, and the one after its last."""
    return identifier.meta["start"], identifier.meta["end"] + 1
