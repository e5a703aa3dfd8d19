"""Rows that went with a partition at the Publisher: those of a PostgreSQL Subscriber's table within its limits."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.partition_rows import Edge, PartitionLevel, PartitionLimits, PartitionRows
from tranrepl.model.schema_change import SchemaChange
from tranrepl.model.source_types import Family, source_type
from tranrepl.postgres.composed_sql import condition_sql, type_sql
from tranrepl.subscriber.base import partition_rows as base

_TEXTS = (Family.TEXT, Family.CHARACTER)
_ORDERED = (
    Family.SMALLINT,
    Family.INTEGER,
    Family.BIGINT,
    Family.NUMERIC,
    Family.DATE,
    Family.TIMESTAMP,
    Family.TIMESTAMP_WITH_ZONE,
    Family.UUID,
)
"""Types whose values are in one order at any server."""
_EQUAL = (*_ORDERED, *_TEXTS, Family.BOOLEAN)


def why_rows_unknown(change: SchemaChange, article: RegisteredArticle) -> str | None:
    """Return why it is not known which rows went with a partition; None where they are those within its limits."""
    return base.why_rows_unknown(change, article, _why_incomparable)


def _why_incomparable(family: Family | None, limits: PartitionLimits, values: Sequence[str]) -> str | None:
    del values
    comparable = _ORDERED if limits.listed is None else _EQUAL
    return None if family in comparable else "may be compared otherwise at another server"


def delete_rows(table: sql.Composable, rows: PartitionRows, article: RegisteredArticle) -> sql.Composed:
    """Return what deletes these rows of the article. Values are compared as the Publisher's, whatever types the
    destination has."""
    types = {it.name: it.type_name for it in article.columns}
    own = [sql.SQL("({})").format(condition_sql(article.filter))] if article.filter is not None else []
    conditions = sql.SQL(" AND ").join([*(_of_level(it, types) for it in rows.levels), *own])
    # A filter may name its columns by the published table.
    name = sql.Identifier(article.source.table)
    return sql.SQL("DELETE FROM {} AS {} WHERE {}").format(table, name, conditions)


def _of_level(level: PartitionLevel, types: dict[str, str]) -> sql.Composed:
    if not level.limits.is_default:
        return _within(level.columns, level.limits, types)
    others = sql.SQL(" OR ").join([sql.SQL("false"), *(_within(level.columns, it, types) for it in level.others)])
    return sql.SQL("NOT ({})").format(others)


def _within(columns: Sequence[str], limits: PartitionLimits, types: dict[str, str]) -> sql.Composed:
    if limits.listed is not None:
        (column,) = columns
        values = sql.SQL(", ").join(_value(it, types[column]) for it in limits.listed)
        return sql.SQL("{} = ANY (ARRAY[{}]::{}[])").format(
            _column(column, types[column]), values, type_sql(types[column])
        )
    ends: list[sql.Composable] = [sql.SQL("true")]
    if limits.lower is not None:
        ends.append(_compared(columns, limits.lower, ">", types))
    if limits.upper is not None:
        ends.append(_compared(columns, limits.upper, "<", types))
    return sql.SQL("({})").format(sql.SQL(" AND ").join(ends))


def _compared(columns: Sequence[str], edge: Edge, operator: str, types: dict[str, str]) -> sql.Composed:
    """Compare rows of values: the first column that differs says which comes first."""
    compared = columns[: len(edge.values)]
    return sql.SQL("({}) {} ({})").format(
        sql.SQL(", ").join(_column(it, types[it]) for it in compared),
        sql.SQL(f"{operator}=" if edge.included else operator),
        sql.SQL(", ").join(_value(value, types[it]) for it, value in zip(compared, edge.values, strict=True)),
    )


def _column(name: str, type_name: str) -> sql.Composed:
    # Letters that some collation takes for equal are different ones.
    collation = sql.SQL(' COLLATE "C"' if source_type(type_name).family in _TEXTS else "")
    return sql.SQL("{}::{}{}").format(sql.Identifier(name), type_sql(type_name), collation)


def _value(value: str, type_name: str) -> sql.Composed:
    return sql.SQL("{}::{}").format(sql.Literal(value), type_sql(type_name))
