"""Partitions that come and go at the Publisher, at a PostgreSQL Subscriber: its own partition of the same place where
the article's destination is divided as the table is, else the rows alone.

Source: PostgreSQL documentation, `ALTER TABLE`, `CREATE TABLE`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import psycopg
import sqlalchemy as sa
from psycopg import sql
from sqlalchemy.dialects.postgresql.base import PGDialect

from tranrepl.errors import ConfigurationError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.model.partition_rows import PartitionLimits, PartitionPlace, PartitionRows
from tranrepl.model.schema_change import PartitionAction, PartitionChange, SchemaChange
from tranrepl.model.source_types import Family, source_type
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.composed_sql import condition_sql, type_sql
from tranrepl.postgres.session import Session
from tranrepl.subscriber.base import partition_rows as base
from tranrepl.subscriber.batching.steps import SchemaStep
from tranrepl.subscriber.postgres.partition_setup import (
    MissingPartition,
    create_partition,
    make_partition,
    partition_destination,
)
from tranrepl.subscriber.postgres.procedures import trusted
from tranrepl.subscriber.postgres.rights import create_missing_schema
from tranrepl.subscriber.postgres.users_code import delete_on_own_path

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
    columns = _Columns({it.name: it.type_name for it in article.columns})
    levels = sa.and_(sa.true(), *map(columns.of_level, rows.levels)).compile(dialect=_DIALECT)
    own = sql.SQL(" AND ({})").format(condition_sql(article.filter)) if article.filter is not None else sql.SQL("")
    # A filter may name its columns by the published table.
    name = sql.Identifier(article.source.table)
    return sql.SQL("DELETE FROM {} AS {} WHERE ({}){}").format(table, name, trusted(str(levels)), own)


_DIALECT = PGDialect(paramstyle="named")  # type: ignore[no-untyped-call]
"""It writes percent signs of names and values as they are."""


@dataclass(frozen=True, slots=True)
class _Columns(base.RowConditions):
    """Each side of a comparison is composed, with its type."""

    types: Mapping[str, str]

    def compared(self, name: str, operator: str, value: str) -> base.Condition:
        cast = type_sql(self.types[name])
        # Letters that some collation takes for equal are different ones.
        by_letters = ' COLLATE "C"' if source_type(self.types[name]).family in _TEXTS else ""
        made = sql.SQL("{}::{}{} {} {}::{}").format(
            sql.Identifier(name), cast, trusted(by_letters), trusted(operator), sql.Literal(value), cast
        )
        return sa.literal_column(made.as_string(None), sa.Boolean())


_BELOW = """
SELECT n.nspname, c.relname
  FROM pg_catalog.pg_class p JOIN pg_catalog.pg_namespace pn ON pn.oid = p.relnamespace
  JOIN pg_catalog.pg_inherits i ON i.inhparent = p.oid
  JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE pn.nspname = %s AND p.relname = %s AND p.relkind = 'p' AND pg_catalog.pg_get_partkeydef(p.oid) = %s
   AND pg_catalog.pg_get_expr(c.relpartbound, c.oid) = %s
"""
_DIVIDED = """
SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                WHERE n.nspname = %s AND c.relname = %s AND pg_catalog.pg_get_partkeydef(c.oid) = %s)
"""


class PartitionsApply:
    """Applies changes of one article's partitions, inside the open transaction, after those of its columns."""

    def __init__(self, session: Session, where: str, article: RegisteredArticle) -> None:
        """`article` is the definition after the changes."""
        self._session = session
        self._where = where
        self._article = article
        self._divided = article.file_names.divided

    def apply(self, step: SchemaStep) -> Iterator[str]:
        """Do what is still to be done, and yield the statements that ran, or what was left alone instead."""
        rows_known = why_rows_unknown(step.change, self._article) is None
        for it in step.change.partitions:
            if it.removes_rows:
                yield from self._remove(it, rows_known=rows_known)
            elif self._divided and it.action is PartitionAction.CREATE:
                yield from self._create(it)
            elif self._divided:
                yield from self._rename(it)

    def _create(self, change: PartitionChange) -> Iterator[str]:
        *above, place = change.path or (None,)
        parent = self._find([it for it in above if it is not None])
        table = self._destination(change.table)
        if place is None or parent is None or not self._is_divided(parent, place):
            yield f"{self._where}: partition {table} was not created: the table is partitioned differently here"
        elif self._find(change.path) is None:
            try:
                made = create_partition(table, parent, place.bound, change.key)
            except ConfigurationError as error:
                yield f"{self._where}: partition {table} was not created: {error.message}"
                return
            yield from self._schema_for(table)
            wanted = MissingPartition(change.table, table, parent, place.bound, made)
            make_partition(self._session, self._where, wanted, "`tranrepl run FILE`")
            yield f"{self._where}: {made.as_string(None)}"

    def _rename(self, change: PartitionChange) -> Iterator[str]:
        found = self._find(change.path) if change.path else None
        wanted = self._destination(change.new_name or change.table)
        if found is None or found != self._destination(change.table):
            return
        if found.schema != wanted.schema:
            yield from self._schema_for(wanted)
            move = sql.SQL("ALTER TABLE {} SET SCHEMA {}").format(qualified(found), sql.Identifier(wanted.schema))
            yield self._execute(move)
        if found.table != wanted.table:
            moved = qualified(TableName(wanted.schema, found.table))
            yield self._execute(sql.SQL("ALTER TABLE {} RENAME TO {}").format(moved, sql.Identifier(wanted.table)))

    def _remove(self, change: PartitionChange, *, rows_known: bool) -> Iterator[str]:
        found = self._find(change.path) if self._divided and change.path else None
        if found is not None and change.action is PartitionAction.EMPTY:
            yield self._delete(sql.SQL("DELETE FROM {}").format(qualified(found)))
        elif found is not None:
            yield from self._drop(change, found)
        elif rows_known and change.rows is not None:
            table = qualified(self._article.destination)
            yield self._delete(delete_rows(table, change.rows, self._article))

    def _drop(self, change: PartitionChange, found: TableName) -> Iterator[str]:
        """Take a partition out of the table, and drop it where nothing depends on it."""
        parent = self._find(change.path[:-1]) or self._article.destination
        detach = sql.SQL("ALTER TABLE {} DETACH PARTITION {}").format(qualified(parent), qualified(found))
        yield self._execute(detach)
        try:
            with self._session.transaction():
                dropped = self._execute(sql.SQL("DROP TABLE {}").format(qualified(found)))
        except psycopg.errors.DependentObjectsStillExist as error:
            yield f"{self._where}: table {found} is detached, but was not dropped: {error.diag.message_primary}"
        else:
            yield dropped

    def _destination(self, table: TableName) -> TableName:
        return partition_destination(self._article.source_definition.name, self._article.destination, table)

    def _find(self, path: Sequence[PartitionPlace]) -> TableName | None:
        """Return the partition of that place; the destination itself, where the path is empty."""
        at = self._article.destination
        for it in path:
            row = self._session.execute(_BELOW, [at.schema, at.table, it.key, it.bound]).fetchone()
            if row is None:
                return None
            at = TableName(*row)
        return at

    def _schema_for(self, table: TableName) -> Iterator[str]:
        yield from (f"{self._where}: {it}" for it in create_missing_schema(self._session, self._where, table.schema))

    def _is_divided(self, table: TableName, place: PartitionPlace) -> bool:
        return self._session.execute(_DIVIDED, [table.schema, table.table, place.key]).fetchone() == (True,)

    def _delete(self, statement: sql.Composed) -> str:
        self._session.execute(delete_on_own_path([statement]))
        return f"{self._where}: {statement.as_string(None)}"

    def _execute(self, statement: sql.Composed) -> str:
        self._session.execute(statement)
        return f"{self._where}: {statement.as_string(None)}"
