"""Destination tables of a PostgreSQL Subscriber, as its catalogue has them or setup would create them, with their
unique keys and foreign keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import LiteralString

from psycopg import sql

from tranrepl.errors import InternalError
from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import TableDescription
from tranrepl.model.names import TableName
from tranrepl.postgres.catalogue import describe_table, describe_tables, qualified
from tranrepl.postgres.composed_sql import type_sql
from tranrepl.postgres.session import Session, translated_errors
from tranrepl.subscriber.constraints import ArticleTable, Constraints, constraints_among
from tranrepl.subscriber.missing_columns import ColumnTexts, lost_columns, no_table
from tranrepl.subscriber.postgres.procedures import Target


def constraints_of(session: Session, where: str, targets: Sequence[Target]) -> Constraints:
    """Return the unique keys and foreign keys of the articles' tables."""
    tables = [
        ArticleTable(it.article.article_id, it.table.object_id, tuple(column.name for column in it.columns))
        for it in targets
    ]
    numbers = [it.table for it in tables]
    with translated_errors(where):
        unique = session.execute(_UNIQUE_KEYS, [numbers]).fetchall()
        foreign = session.execute(_FOREIGN_KEYS, [numbers, numbers]).fetchall()
    return constraints_among(tables, unique, foreign)


_UNIQUE_KEYS = """
SELECT i.indrelid::bigint,
       ARRAY(SELECT CASE WHEN i.indpred IS NULL AND NOT i.indisexclusion THEN a.attname::text END
               FROM unnest((i.indkey::int2[])[0:i.indnkeyatts - 1]) WITH ORDINALITY k(attnum, place)
               LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum AND k.attnum > 0
              ORDER BY k.place)
  FROM pg_catalog.pg_index i WHERE i.indrelid = ANY (%s::oid[]) AND (i.indisunique OR i.indisexclusion)
 ORDER BY i.indexrelid
"""
_FOREIGN_KEYS = """
SELECT c.conrelid::bigint,
       ARRAY(SELECT a.attname::text FROM unnest(c.conkey) WITH ORDINALITY k(attnum, place)
               JOIN pg_catalog.pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.attnum ORDER BY k.place),
       c.confrelid::bigint,
       ARRAY(SELECT a.attname::text FROM unnest(c.confkey) WITH ORDINALITY k(attnum, place)
               JOIN pg_catalog.pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = k.attnum ORDER BY k.place)
  FROM pg_catalog.pg_constraint c
 WHERE c.contype = 'f' AND c.conrelid = ANY (%s::oid[]) AND c.confrelid = ANY (%s::oid[]) ORDER BY c.oid
"""


class Targets:
    def __init__(self, session: Session, where: str, articles: Mapping[int, RegisteredArticle]) -> None:
        self._session = session
        self._where = where
        self._articles = articles
        self._found: dict[int, Target] = {}

    def find(self, article_ids: Iterable[int]) -> None:
        """Read those that are not known yet, all at once.

        Raises ConfigurationError where a table or a column is missing.
        """
        unknown = sorted(set(article_ids).difference(self._found))
        if unregistered := [it for it in unknown if it not in self._articles]:
            raise InternalError(f"{self._where}: a stored command is of unknown article {unregistered[0]}")
        if unknown:
            targets = find_targets(self._session, self._where, [self._articles[it] for it in unknown])
            self._found |= dict(zip(unknown, targets, strict=True))

    def forget(self, table: TableName | None = None) -> None:
        """Forget what is known of a destination that a schema change has altered; of all, where none is given."""
        if table is None:
            self._found.clear()
        else:
            self._found = {number: it for number, it in self._found.items() if it.article.destination != table}

    def __getitem__(self, article_id: int) -> Target:
        self.find([article_id])
        return self._found[article_id]


def column_texts(table: TableName, types: Mapping[str, str]) -> ColumnTexts:
    """Return the statements that give a table a column; `types` of those that may be added."""

    def text(action: LiteralString, *parts: sql.Composable) -> str:
        altered = sql.SQL("ALTER TABLE {} ").format(qualified(table))
        return (altered + sql.SQL(action).format(*parts)).as_string(None) + ";"

    return ColumnTexts(
        {name: text("ADD COLUMN {} {}", sql.Identifier(name), type_sql(it)) for name, it in types.items()},
        lambda before, now: text("RENAME COLUMN {} TO {}", sql.Identifier(before), sql.Identifier(now)),
    )


def find_destination(session: Session, where: str, table: TableName) -> TableDescription | None:
    """Describe a table; None where there is none."""
    with translated_errors(where):
        return describe_table(session, table)


def has_destination(session: Session, where: str, table: TableName) -> bool:
    """Return whether there is a table, or another relation, of that name."""
    with translated_errors(where):
        found = session.execute(
            "SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n "
            "ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s)",
            [table.schema, table.table],
        ).fetchone()
    return found == (True,)


def find_targets(session: Session, where: str, articles: Sequence[RegisteredArticle]) -> list[Target]:
    """Return the articles at this Subscriber. Raises ConfigurationError where a table or a column is missing."""
    with translated_errors(where):
        tables = describe_tables(session, [it.destination for it in articles])
    return [_target(where, article, tables.get(article.destination)) for article in articles]


def _target(where: str, article: RegisteredArticle, table: TableDescription | None) -> Target:
    if table is None:
        raise no_table(where, article)
    columns = [table.column(column.name) for column in article.columns]
    missing = [column for column, found in zip(article.columns, columns, strict=True) if found is None]
    if missing:
        published = {it.name for it in article.columns}
        others = [it.name for it in table.columns if it.name not in published]
        texts = column_texts(article.destination, {it.name: it.type_name for it in missing})
        raise lost_columns(where, article, [it.name for it in missing], others, texts, comparison=True)
    return Target(article, table, tuple(column for column in columns if column is not None))


def intended_target(session: Session, where: str, article: RegisteredArticle, source: TableDescription) -> Target:
    """Return the article as `find_targets` does; where the table or a column does not exist yet, as setup or a schema
    change would create it, with the Publisher's types."""
    table = find_destination(session, where, article.destination) or source
    columns = [table.column(column.name) or source.column(column.name) for column in article.columns]
    return Target(article, table, tuple(column for column in columns if column is not None))
