"""Replica identities of tables, which setup changes to FULL: what they are, and the statement that puts one back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from psycopg import sql

from tranrepl.model.catalogue import OldRowSetting
from tranrepl.model.names import TableName
from tranrepl.postgres.catalogue import qualified
from tranrepl.postgres.session import Session

_WORDS = {"d": sql.SQL("DEFAULT"), "n": sql.SQL("NOTHING"), "f": sql.SQL("FULL")}
_QUERY = """
SELECT c.oid::bigint, n.nspname, c.relname, c.relreplident::text,
       (SELECT x.relname FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
         WHERE i.indrelid = c.oid AND i.indisreplident),
       pg_catalog.pg_has_role(c.relowner, 'USAGE'),
       (SELECT min(p.pubname) FROM pg_catalog.pg_publication p JOIN pg_catalog.pg_publication_rel r
            ON r.prpubid = p.oid
         WHERE (r.prrelid = c.oid OR r.prrelid IN (SELECT pg_catalog.pg_partition_ancestors(c.oid)))
           AND p.pubname LIKE 'tranrepl\\_%%' AND p.pubname <> %s),
       ARRAY(SELECT x.relname::text FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
              WHERE i.indrelid = c.oid),
       EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisprimary),
       o.pubname
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN (SELECT t.schemaname, t.tablename, min(t.pubname)
               FROM pg_catalog.pg_publication_tables t JOIN pg_catalog.pg_publication p ON p.pubname = t.pubname
              WHERE (p.pubupdate OR p.pubdelete) AND p.pubname <> %s GROUP BY 1, 2) o (schema, name, pubname)
    ON o.schema = n.nspname AND o.name = c.relname
 WHERE c.oid = ANY (%s::oid[]) ORDER BY n.nspname, c.relname
"""


@dataclass(frozen=True, slots=True)
class IdentifiedTable:
    """A table that exists, under the name that it has now."""

    table: TableName
    identity: OldRowSetting
    owned: bool
    """Whether our role may alter the table."""
    other_publication: str | None
    """Another publication of tranrepl's that has the table, or one that it is a partition of."""
    indexes: tuple[str, ...]
    has_primary_key: bool
    published_by: str | None
    """Another publication, of anybody's, that has its UPDATEs or DELETEs."""

    def fails_with(self, identity: OldRowSetting) -> bool:
        """Return whether PostgreSQL would refuse the Publisher's own UPDATEs or DELETEs then."""
        lacks_key = identity.kind == "n" or (identity.kind == "d" and not self.has_primary_key)
        return self.published_by is not None and lacks_key

    def set_to(self, identity: OldRowSetting) -> sql.Composed:
        """Return the statement that changes it."""
        return sql.SQL("ALTER TABLE ONLY {} REPLICA IDENTITY {}").format(qualified(self.table), clause(identity))


def clause(identity: OldRowSetting) -> sql.Composable:
    """Return what follows REPLICA IDENTITY."""
    if identity.index is not None:
        return sql.SQL("USING INDEX {}").format(sql.Identifier(identity.index))
    return _WORDS.get(identity.kind, _WORDS["d"])


def identified_tables(session: Session, publication: str, object_ids: Collection[int]) -> Mapping[int, IdentifiedTable]:
    """Return the tables that exist, by oid. `publication`: the PostgreSQL publication that is ours."""
    rows = session.execute(_QUERY, [publication, publication, list(object_ids)]).fetchall()
    return {
        oid: IdentifiedTable(TableName(schema, name), OldRowSetting(kind, index), owned, other, tuple(indexes), *rest)
        for oid, schema, name, kind, index, owned, other, indexes, *rest in rows
    }
