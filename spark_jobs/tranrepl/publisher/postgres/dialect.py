"""PostgreSQL's row filters and types, as differences between definitions depend on them."""

from __future__ import annotations

from collections.abc import Mapping

import sqlglot
from psycopg import sql
from sqlglot import exp

from tranrepl.model.names import TableName
from tranrepl.model.table_definition import DefinedColumn
from tranrepl.publisher.postgres.row_filters import filter_columns, folded_name
from tranrepl.publisher.postgres.user_types import FIRST_OWN_TYPE

_NUMBERS = frozenset({20, 21, 23, 700, 701, 1700})
"""PostgreSQL's own types of numbers: bigint, smallint, integer, real, double precision, numeric."""
_LIKE_OID = frozenset({24, 26, 2202, 2203, 2204, 2205, 2206, 3734, 3769, 4089, 4096, 4191})
"""oid, and what is stored as one: regproc to regcollation. An integer may become one as it is."""


class PostgresDialect:
    """The `PublisherDialect` of PostgreSQL."""

    def filter_columns(self, text: str, table: str) -> tuple[str, ...]:
        return filter_columns(text, table)

    def renamed_filter(self, text: str, table: TableName, now: TableName, columns: Mapping[str, str]) -> str:
        return renamed_filter(text, table, now, columns)

    def rewrites_values(self, before: DefinedColumn, now: DefinedColumn) -> bool:
        types = {before.type_oid, now.type_oid}
        return len(types) > 1 and bool(types & _NUMBERS) and not types & _LIKE_OID and max(types) < FIRST_OWN_TYPE


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
