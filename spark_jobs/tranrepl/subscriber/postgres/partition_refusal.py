"""Partitions that a PostgreSQL Subscriber does not make: why, and what lets it."""

from __future__ import annotations

import psycopg
from psycopg import sql

from tranrepl.errors import ConfigurationError
from tranrepl.model.names import TableName
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.composed_sql import bound_sql
from tranrepl.postgres.session import Session
from tranrepl.subscriber.postgres.partition_setup import MissingPartition

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
