"""Unique keys and foreign keys of a PostgreSQL Subscriber's tables, as the division among streams needs them."""

from __future__ import annotations

from collections.abc import Sequence

from tranrepl.postgres.session import Session, translated_errors
from tranrepl.subscriber.constraints import Constraints, Reference, UniqueKey
from tranrepl.subscriber.postgres.procedures import Target


def constraints_of(session: Session, where: str, targets: Sequence[Target]) -> Constraints:
    """Return the unique keys and foreign keys of the articles' tables."""
    by_table = {target.table.object_id: target for target in targets}
    with translated_errors(where):
        unique = session.execute(_UNIQUE_KEYS, [list(by_table)]).fetchall()
        foreign = session.execute(_FOREIGN_KEYS, [list(by_table), list(by_table)]).fetchall()
    return Constraints(
        unique_keys=tuple(_unique_key(by_table[table], columns) for table, columns in unique),
        references=tuple(
            it
            for table, columns, parent, parent_columns in foreign
            if (it := _reference(by_table[table], columns, by_table[parent], parent_columns)) is not None
        ),
    )


def _unique_key(target: Target, columns: Sequence[str | None]) -> UniqueKey:
    """Return a unique key; a column's name is None where the index is over an expression."""
    positions = [target.position(name) for name in columns]
    known = tuple(at for at in positions if at is not None)
    return UniqueKey(
        article_id=target.article.article_id, positions=known, values_known=len(known) == len(columns) and bool(known)
    )


def _reference(
    child: Target, columns: Sequence[str], parent: Target, parent_columns: Sequence[str]
) -> Reference | None:
    """Return a foreign key; None where it is over columns that are not published: what is not sent does not change."""
    positions = [child.position(name) for name in columns]
    parent_positions = [parent.position(name) for name in parent_columns]
    if None in positions or None in parent_positions:
        return None
    return Reference(
        article_id=child.article.article_id,
        positions=tuple(at for at in positions if at is not None),
        parent_id=parent.article.article_id,
        parent_positions=tuple(at for at in parent_positions if at is not None),
    )


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
