"""Partitions of a destination table that setup makes as the Publisher's are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from psycopg import sql

from tranrepl.model.catalogue import TableDescription
from tranrepl.model.names import TableName
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.composed_sql import bound_sql, division_sql
from tranrepl.postgres.session import Session
from tranrepl.settings.publication import Article, Partitions

_DIVIDED = """
SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                WHERE n.nspname = %s AND c.relname = %s AND c.relkind = 'p')
"""
_BELOW = """
WITH RECURSIVE below(oid) AS (
    SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname = %s AND c.relname = %s
     UNION ALL SELECT i.inhrelid FROM below JOIN pg_catalog.pg_inherits i ON i.inhparent = below.oid)
SELECT n.nspname, c.relname FROM below JOIN pg_catalog.pg_class c ON c.oid = below.oid
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
"""


def divided_by(article: Article, source: TableDescription) -> sql.Composable:
    """Return what makes the destination a partitioned table, where it is to be one."""
    if article.partitions is Partitions.NONE or source.partitioning is None:
        return sql.SQL("")
    return _divided_by(source.partitioning.key)


@dataclass(frozen=True, slots=True)
class MissingPartition:
    """A partition that a destination lacks."""

    partition: TableName
    """At the Publisher."""
    there: TableName
    """What it is to be called at the Subscriber."""
    parent: TableName
    """What it is to be a partition of, at the Subscriber."""
    bound: str
    """Its limits in SQL."""
    statement: sql.Composed
    """What makes it."""


def missing_partitions(session: Session, article: Article, source: TableDescription) -> Iterator[MissingPartition]:
    """Yield partitions that a destination lacks which is to be divided as the Publisher's table is. There are none
    where it is no partitioned table."""
    root = article.destination_table
    name = [root.schema, root.table]
    if article.partitions is Partitions.NONE or source.partitioning is None:
        return
    if session.execute(_DIVIDED, name).fetchone() != (True,):
        return
    there = {TableName(*row) for row in session.execute(_BELOW, name)}
    for it in source.partitioning.partitions:
        wanted = partition_destination(article.source, article.destination_table, it.table)
        if wanted not in there:
            parent = partition_destination(article.source, root, it.parent)
            made = create_partition(wanted, parent, it.bound, it.key)
            yield MissingPartition(it.table, wanted, parent, it.bound, made)


def partition_destination(source: TableName, destination: TableName, table: TableName) -> TableName:
    """Return where a partition of an article's table, or that itself, is at the Subscriber: in the destination's
    schema, where it is in the schema of its table."""
    if table == source:
        return destination
    return TableName(destination.schema, table.table) if table.schema == source.schema else table


def create_partition(table: TableName, parent: TableName, bound: str, key: str | None) -> sql.Composed:
    """Return what makes a partition; `key` is what it is divided by itself."""
    return sql.SQL("CREATE TABLE {} PARTITION OF {} {}{}").format(
        qualified(table), qualified(parent), bound_sql(bound), sql.SQL("") if key is None else _divided_by(key)
    )


def _divided_by(key: str) -> sql.Composed:
    return sql.SQL(" PARTITION BY {}").format(division_sql(key))
