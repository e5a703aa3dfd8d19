"""Partitions of a destination table that setup makes as the Publisher's are; and what lets one be made to which
something is in the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
from psycopg import sql

from tranrepl.errors import ConfigurationError
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


_DEFAULT = """
SELECT n.nspname, c.relname,
       ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
              WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
              ORDER BY a.attnum)
  FROM pg_catalog.pg_partitioned_table p JOIN pg_catalog.pg_class c ON c.oid = p.partdefid
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE p.partrelid = pg_catalog.to_regclass(%s)
"""
_SAME_LIMITS = """
SELECT n.nspname, c.relname
  FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE i.inhparent = pg_catalog.to_regclass(%s) AND pg_catalog.pg_get_expr(c.relpartbound, c.oid) = %s
"""


def make_partition(session: Session, where: str, wanted: MissingPartition, go_on: str) -> None:
    """Make a partition in the open transaction. Raises ConfigurationError where rows, another table or another
    partition are in its way, with what lets it be made; `go_on` is the command to run then."""
    try:
        with session.transaction():
            session.execute(wanted.statement)
    except psycopg.errors.CheckViolation as error:
        remedy = _move_rows(session, wanted)
        raise _refusal(where, wanted, "rows of it are in the default partition", remedy, go_on) from error
    except psycopg.errors.DuplicateTable as error:
        remedy = _make_way(session, wanted)
        raise _refusal(where, wanted, "there is something else of that name", remedy, go_on) from error
    except psycopg.errors.InvalidObjectDefinition as error:
        remedy = _rename(session, wanted)
        raise _refusal(where, wanted, error.diag.message_primary or str(error), remedy, go_on) from error


def _refusal(where: str, wanted: MissingPartition, why: str, remedy: str, go_on: str) -> ConfigurationError:
    return ConfigurationError(
        f"{where}: partition {wanted.there} of table {wanted.parent} cannot be made: {why}",
        remedy=f"{remedy} then {go_on}",
    )


def _move_rows(session: Session, wanted: MissingPartition) -> str:
    """Return statements that make the partition while the default one is empty, and let each row find its own."""
    row = session.execute(_DEFAULT, [_text(session, wanted.parent)]).fetchone()
    if row is None:
        return "mend the rows there;"
    default, parent = qualified(TableName(row[0], row[1])), qualified(wanted.parent)
    columns = sql.SQL(", ").join(map(sql.Identifier, row[2]))
    return (
        sql.SQL(
            "BEGIN; CREATE TEMPORARY TABLE moved ON COMMIT DROP AS SELECT {} FROM {}; DELETE FROM {}; {}; "
            "INSERT INTO {} ({}) SELECT {} FROM moved; COMMIT;"
        )
        .format(columns, default, default, wanted.statement, parent, columns, columns)
        .as_string(session)
    )


def _make_way(session: Session, wanted: MissingPartition) -> str:
    table, parent = qualified(wanted.there), qualified(wanted.parent)
    renamed = sql.SQL("ALTER TABLE {} RENAME TO {};").format(table, sql.Identifier(f"{wanted.there.table}_before"))
    attached = sql.SQL("ALTER TABLE {} ATTACH PARTITION {} {};").format(parent, table, bound_sql(wanted.bound))
    return (
        f"give it another name: {renamed.as_string(session)} or, where it is this partition, detached: "
        f"{attached.as_string(session)}"
    )


def _rename(session: Session, wanted: MissingPartition) -> str:
    """Return what gives a partition of the same limits the name; words where there is none."""
    row = session.execute(_SAME_LIMITS, [_text(session, wanted.parent), wanted.bound]).fetchone()
    if row is None:
        return f"let table {wanted.parent} be divided there as it is at the Publisher;"
    found = TableName(*row)
    statement = sql.SQL("ALTER TABLE {} RENAME TO {};").format(qualified(found), sql.Identifier(wanted.there.table))
    if found.schema != wanted.there.schema:
        moved = TableName(found.schema, wanted.there.table)
        statement += sql.SQL(" ALTER TABLE {} SET SCHEMA {};").format(
            qualified(moved), sql.Identifier(wanted.there.schema)
        )
    return statement.as_string(session)


def _text(session: Session, table: TableName) -> str:
    return qualified(table).as_string(session)
