"""Unique keys and foreign keys of a PostgreSQL Subscriber's tables, as the division among streams needs them."""

from __future__ import annotations

from collections.abc import Sequence

from tranrepl.postgres.session import Session, translated_errors
from tranrepl.subscriber.constraints import ArticleTable, Constraints, constraints_among
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
