"""Tables that are defined otherwise by now than the log that was read has told: then more of it tells how."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.names import TableName
from tranrepl.model.table_definition import TableDefinition
from tranrepl.postgres.session import Session
from tranrepl.publisher.postgres.partitions import partitions

_COLUMNS = """
SELECT c.oid::bigint, n.nspname, c.relname, a.attnum, a.attname, a.atttypid::bigint, a.atttypmod
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
 WHERE c.oid = ANY (%s::oid[])
"""
# Of what the log shows after the slot's position, the slot keeps the catalogue's rows: whoever committed after it has a
# number from there on.
_LATELY_ALTERED = """
SELECT c.oid::bigint
  FROM pg_catalog.pg_class c, pg_catalog.pg_replication_slots s
 WHERE c.oid = ANY (%s::oid[]) AND s.slot_name = %s AND s.database = pg_catalog.current_database()
   AND pg_catalog.age(s.catalog_xmin) >= (
     SELECT min(pg_catalog.age(x.by))
       FROM (SELECT c.xmin UNION ALL
             SELECT a.xmin FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0) x (by))
"""
_NAMES = """
SELECT c.oid::bigint, n.nspname, c.relname
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = ANY (%s::oid[])
"""
_Columns = set[tuple[object, ...]]


def any_redefined(session: Session, articles: Sequence[RegisteredArticle]) -> bool:
    """Return whether a table has another name, other columns or other partitions than its article's definition, or is
    gone. What else a definition has is not looked at."""
    known = {it.source_object_id: it.definition for it in articles if it.definition is not None}
    columns: dict[int, _Columns] = defaultdict(set)
    for object_id, *column in session.execute(_COLUMNS, [list(known)]):
        columns[object_id].add(tuple(column))
    divided = [number for number, it in known.items() if it.division is not None]
    leaves: dict[int, set[int]] = defaultdict(set)
    for found in partitions(session, divided):
        leaves[found.root].add(found.object_id)
    return any(columns[number] != _columns(it) or leaves[number] != _leaves(it) for number, it in known.items())


def table_names(session: Session, object_ids: Collection[int]) -> dict[int, TableName]:
    """Return the names of now of those tables that exist."""
    return {number: TableName(*name) for number, *name in session.execute(_NAMES, [list(object_ids)])}


def lately_altered(session: Session, slot: str, object_ids: Collection[int]) -> frozenset[int]:
    """Return which of the tables have a row in the catalogue that a transaction wrote which the slot may not have shown
    yet."""
    return frozenset(number for (number,) in session.execute(_LATELY_ALTERED, [list(object_ids), slot]))


def _columns(table: TableDefinition) -> _Columns:
    name = (table.name.schema, table.name.table)
    return {(*name, it.ordinal, it.name, it.type_oid, it.type_modifier) for it in table.columns}


def _leaves(table: TableDefinition) -> set[int]:
    return set() if table.division is None else {it.object_id for it in table.division.partitions if it.holds_rows}
