"""Partitions of published tables, as the catalogue has them: the tables that hold a partitioned table's rows, and the
statements that would make them.

The publication names the partitioned table, and the log each partition: `publish_via_partition_root = false` gives old
rows as they are, and a TRUNCATE of one partition. So the log's object ids are mapped to the article's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from psycopg import sql

from tranrepl.model.article import RegisteredArticle
from tranrepl.model.catalogue import PartitionDescription, Partitioning
from tranrepl.model.names import TableName
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.session import Session

TREE = """
tree(root, oid, attachment, made_empty, attached_by) AS (
    SELECT c.oid, c.oid, '', true, NULL::xid FROM pg_catalog.pg_class c
     WHERE c.oid = ANY (%(roots)s::oid[]) AND c.relkind = 'p'
     UNION ALL
    SELECT t.root, i.inhrelid, t.attachment || '/' || i.xmin::text,
           t.made_empty AND EXISTS (
               SELECT FROM pg_catalog.pg_attribute s JOIN pg_catalog.pg_attribute a ON a.attrelid = s.attrelid
                WHERE s.attrelid = i.inhrelid AND s.attnum = -1 AND a.attnum > 0
                  AND s.xmin = i.xmin AND a.xmin = s.xmin AND a.cmin = s.cmin),
           CASE WHEN t.attached_by IS NULL OR age(i.xmin) < age(t.attached_by) THEN i.xmin ELSE t.attached_by END
      FROM tree t JOIN pg_catalog.pg_inherits i ON i.inhparent = t.oid AND NOT i.inhdetachpending)
"""
"""A WITH RECURSIVE query's tables: partitioned tables and all below them, as the query's snapshot shows them.

CREATE TABLE … PARTITION OF writes the rows of `pg_attribute` once, and ATTACH PARTITION changes those of all columns:
where one is as the creation wrote it, the partition had no row before it was one. `attached_by` is the latest
transaction that attached the partition, or one above it.
"""

_LEAVES = f"""
WITH RECURSIVE {TREE}
SELECT t.root::bigint, t.oid::bigint, n.nspname, c.relname,
       c.relkind::text, c.relpersistence::text, c.relreplident::text,
       EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND i.indisvalid),
       t.attachment, t.made_empty, t.attached_by::text
  FROM tree t JOIN pg_catalog.pg_class c ON c.oid = t.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind <> 'p'
 ORDER BY n.nspname, c.relname
"""  # noqa: S608 — TREE is a constant


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition that holds rows."""

    root: int
    """The partitioned table at the top."""
    object_id: int
    table: TableName
    kind: str
    persistence: str
    replica_identity: str
    """All three as the catalogue writes them."""
    has_key: bool
    attachment: str
    made_empty: bool
    attached_by: str

    def had_rows(self, session: Session) -> bool:
        """Return whether rows are in it that may have been there before it was a partition; or our role may not
        look."""
        if self.made_empty:
            return False
        allowed = session.execute("SELECT pg_catalog.has_table_privilege(%s::oid, 'SELECT')", [self.object_id])
        if allowed.fetchone() == (False,):
            return True
        query = sql.SQL("SELECT EXISTS (SELECT FROM ONLY {} WHERE age(xmin) >= age({}::text::xid))")
        found = session.execute(query.format(qualified(self.table), sql.Literal(self.attached_by))).fetchone()
        return found != (False,)


def partitions(session: Session, roots: Collection[int]) -> list[Partition]:
    """Return the partitions with rows of those tables that are partitioned, by name."""
    if not roots:
        return []
    rows = session.execute(_LEAVES, {"roots": list(roots)}).fetchall()
    return [Partition(root, object_id, TableName(schema, name), *rest) for root, object_id, schema, name, *rest in rows]


def partitioned(articles: Iterable[RegisteredArticle]) -> list[RegisteredArticle]:
    """Return the articles whose tables are partitioned."""
    return [it for it in articles if it.source_file is not None and it.source_file.partitions is not None]


def articles_by_table(
    articles: Iterable[RegisteredArticle], found: Iterable[Partition]
) -> Mapping[int, RegisteredArticle]:
    """Return the article of each table that the log may name, by oid: of partitions, those that are registered, and
    those that were found since."""
    by_root = {it.source_object_id: it for it in articles}
    by_table = {
        number: article
        for article in by_root.values()
        for number in [article.source_object_id, *(article.source_file.partitions or {} if article.source_file else {})]
    }
    return by_table | {it.object_id: by_root[it.root] for it in found}


def tables_with_rows(session: Session, article: RegisteredArticle) -> list[TableName]:
    """Return the tables that the article's rows are in: the partitions of a partitioned table, as the session's
    snapshot shows them."""
    if not partitioned([article]):
        return [article.source]
    return [it.table for it in partitions(session, [article.source_object_id])]


def whole_table(article: RegisteredArticle) -> tuple[sql.Composed, sql.Composable | None]:
    """Return what a query of all of the article's rows reads from, and the condition that it needs: a partition that
    was attached after the snapshot would be read too."""
    if not partitioned([article]):
        return sql.SQL("ONLY {}").format(qualified(article.source)), None
    below = sql.SQL(
        "tableoid = ANY (ARRAY(WITH RECURSIVE below(oid) AS (SELECT {}::oid UNION ALL SELECT i.inhrelid "
        "FROM pg_catalog.pg_inherits i JOIN below ON i.inhparent = below.oid AND NOT i.inhdetachpending) "
        "SELECT oid FROM below))"
    )
    return sql.SQL("{}").format(qualified(article.source)), below.format(sql.Literal(article.source_object_id))


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
