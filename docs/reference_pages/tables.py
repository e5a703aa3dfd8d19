"""The tables that `setup` makes, from their definitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import sqlalchemy as sa

from reference_pages.column_words import COLUMNS, TABLES
from reference_pages.markdown import paragraph, table
from tranrepl.distributor.tables import metadata
from tranrepl.subscriber.replication_tables import ARTICLES, OBJECTS, SNAPSHOTS, WATERMARKS


def distribution_tables() -> str:
    """Return a section for each table of the distribution database."""
    return "\n\n".join(_sections(metadata.tables.values()))


def subscriber_tables() -> str:
    """Return a section for each table that a Subscriber has."""
    return "\n\n".join(_sections((WATERMARKS, SNAPSHOTS, ARTICLES, OBJECTS)))


def _sections(tables: Iterable[sa.Table]) -> Iterator[str]:
    for it in tables:
        yield f"### {it.name}"
        yield paragraph(TABLES[it.name])
        yield table(["column", "type", "what it holds"], [_column(it, column) for column in it.columns])


def _column(of: sa.Table, column: sa.Column[object]) -> list[str]:
    words = COLUMNS.get(f"{of.name}.{column.name}") or column.comment or COLUMNS[column.name]
    key = " (primary key)" if column.primary_key and len(of.primary_key.columns) == 1 else ""
    return [f"`{column.name}`", _type(column), words + key]


def _type(column: sa.Column[object]) -> str:
    if isinstance(column.type, sa.DateTime):
        return "timestamp"
    if isinstance(column.type, sa.LargeBinary):
        return "binary"
    return str(column.type).split("(")[0].lower()
