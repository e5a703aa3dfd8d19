"""How published tables are divided into partitions, as statements that would make them have it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from tranrepl.model.catalogue import PartitionDescription, Partitioning
from tranrepl.model.names import TableName
from tranrepl.postgres.session import Session

_QUERY = """
WITH RECURSIVE tree(root, parent, oid, level) AS (
    SELECT c.oid, 0::oid, c.oid, 0 FROM pg_catalog.pg_class c WHERE c.oid = ANY (%s::oid[]) AND c.relkind = 'p'
     UNION ALL
    SELECT t.root, t.oid, i.inhrelid, t.level + 1
      FROM tree t JOIN pg_catalog.pg_inherits i ON i.inhparent = t.oid AND NOT i.inhdetachpending)
SELECT t.root::bigint, n.nspname, c.relname, pn.nspname, p.relname,
       pg_catalog.pg_get_expr(c.relpartbound, c.oid),
       CASE c.relkind WHEN 'p' THEN pg_catalog.pg_get_partkeydef(c.oid) END
  FROM tree t JOIN pg_catalog.pg_class c ON c.oid = t.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg_catalog.pg_class p ON p.oid = t.parent LEFT JOIN pg_catalog.pg_namespace pn ON pn.oid = p.relnamespace
 ORDER BY t.level, n.nspname, c.relname
"""


def partitionings(session: Session, roots: Collection[int]) -> dict[int, Partitioning]:
    """Return how those tables that are partitioned are divided, by oid."""
    if not roots:
        return {}
    with session.transaction():
        rows = session.execute(_QUERY, [list(roots)]).fetchall()
    keys: dict[int, str] = {}
    partitions: dict[int, list[PartitionDescription]] = defaultdict(list)
    for root, schema, name, parent_schema, parent, bound, key in rows:
        if parent is None:
            keys[root] = key
        else:
            partitions[root].append(
                PartitionDescription(TableName(schema, name), TableName(parent_schema, parent), bound, key)
            )
    return {root: Partitioning(key, tuple(partitions[root])) for root, key in keys.items()}
