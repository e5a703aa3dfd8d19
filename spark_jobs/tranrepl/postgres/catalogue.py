"""Tables as PostgreSQL's catalogue describes them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any

from psycopg import sql

from tranrepl.model.catalogue import ColumnDescription, ForeignKeyDescription, Identity, TableDescription
from tranrepl.model.names import TableName
from tranrepl.model.table_definition import Generation
from tranrepl.postgres.session import Session


def qualified(table: TableName) -> sql.Identifier:
    return sql.Identifier(table.schema, table.table)


_RELATION_KINDS = {
    "r": "table",
    "p": "partitioned table",
    "v": "view",
    "m": "materialized view",
    "f": "foreign table",
    "S": "sequence",
    "i": "index",
    "I": "index",
    "c": "composite type",
    "t": "TOAST table",
}


_REPLICA_IDENTITIES = {"d": "default", "f": "full", "i": "index", "n": "nothing"}


_PERSISTENCE = {"p": "permanent", "u": "unlogged", "t": "temporary"}


_GENERATIONS = {"": Generation.NONE, "s": Generation.STORED, "v": Generation.VIRTUAL}


_IDENTITIES = {"": Identity.NONE, "d": Identity.BY_DEFAULT, "a": Identity.ALWAYS}


_TABLES_QUERY = """
SELECT n.nspname, c.relname, c.oid::bigint, c.relkind::text, c.relreplident::text, c.relpersistence::text,
       EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisunique AND NOT i.indimmediate)
  FROM unnest(%s::text[], %s::text[]) AS asked(schema, name)
  JOIN pg_catalog.pg_namespace n ON n.nspname = asked.schema
  JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = asked.name
"""


# A key has its type's default operator class, and types of extensions have one of their own.
_EQUALITY = """
       CASE WHEN b.typnamespace <> 'pg_catalog'::regnamespace AND b.typtype = 'b' THEN (
            SELECT pg_catalog.format('OPERATOR(%%I.%%s)', n.nspname, o.oprname)
              FROM pg_catalog.pg_opclass k
              JOIN pg_catalog.pg_am m ON m.oid = k.opcmethod AND m.amname = 'btree'
              JOIN pg_catalog.pg_amop s ON s.amopfamily = k.opcfamily AND s.amopstrategy = 3
                                       AND s.amoplefttype = k.opcintype AND s.amoprighttype = k.opcintype
              JOIN pg_catalog.pg_operator o ON o.oid = s.amopopr
              JOIN pg_catalog.pg_namespace n ON n.oid = o.oprnamespace
             WHERE k.opcintype = b.oid AND k.opcdefault AND n.nspname <> 'pg_catalog') END
"""


_COLUMNS_QUERY = f"""
SELECT a.attrelid::bigint, a.attname, a.attnum, a.atttypid::bigint, a.atttypmod,
       pg_catalog.format_type(a.atttypid, a.atttypmod),
       pg_catalog.format_type(b.oid, -1),
       a.attnotnull, a.attgenerated::text, a.attidentity::text,
       pg_catalog.pg_get_expr(d.adbin, d.adrelid),
       ARRAY(SELECT s.attname::text FROM pg_catalog.pg_depend p
              JOIN pg_catalog.pg_attribute s ON s.attrelid = a.attrelid AND s.attnum = p.refobjsubid
             WHERE a.attgenerated <> '' AND p.classid = 'pg_catalog.pg_attrdef'::regclass AND p.objid = d.oid
               AND p.refclassid = 'pg_catalog.pg_class'::regclass AND p.refobjid = a.attrelid
               AND p.refobjsubid NOT IN (0, a.attnum)),
       (SELECT k.ordinality FROM pg_catalog.pg_index i, unnest(i.indkey::int2[]) WITH ORDINALITY k(attnum, ordinality)
         WHERE i.indrelid = a.attrelid AND i.indisprimary AND k.attnum = a.attnum AND k.ordinality <= i.indnkeyatts),
       EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = a.attrelid AND i.indisunique
                AND (a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
                  OR EXISTS (SELECT FROM pg_catalog.pg_depend p
                      WHERE p.classid = 'pg_catalog.pg_class'::regclass AND p.objid = i.indexrelid
                        AND p.refclassid = 'pg_catalog.pg_class'::regclass AND p.refobjid = a.attrelid
                        AND p.refobjsubid = a.attnum
                        AND NOT (a.attnum = ANY ((i.indkey::int2[])[i.indnkeyatts:]))))),
       a.attstorage <> 'p', {_EQUALITY}
  FROM pg_catalog.pg_attribute a
  JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
  JOIN pg_catalog.pg_type b ON b.oid = CASE WHEN t.typbasetype = 0 THEN t.oid ELSE (
       WITH RECURSIVE under(oid, typbasetype) AS (
            SELECT t.oid, t.typbasetype
            UNION ALL
            SELECT d.oid, d.typbasetype FROM under u JOIN pg_catalog.pg_type d ON d.oid = u.typbasetype)
       SELECT oid FROM under WHERE typbasetype = 0) END
  LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
 WHERE a.attrelid = ANY (%s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
 ORDER BY a.attrelid, a.attnum
"""  # noqa: S608 — _EQUALITY is a constant


# A partition's own, and those it has of its table; not those that stand for one to a partitioned table.
_FOREIGN_KEYS_QUERY = """
SELECT c.conrelid::bigint, c.conname,
       ARRAY(SELECT a.attname::text FROM unnest(c.conkey) WITH ORDINALITY k(attnum, ordinality)
              JOIN pg_catalog.pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.attnum ORDER BY k.ordinality),
       n.nspname, r.relname,
       ARRAY(SELECT a.attname::text FROM unnest(c.confkey) WITH ORDINALITY k(attnum, ordinality)
              JOIN pg_catalog.pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = k.attnum ORDER BY k.ordinality),
       c.convalidated AND NOT coalesce((to_jsonb(c) ->> 'conperiod')::boolean, false)
  FROM pg_catalog.pg_constraint c JOIN pg_catalog.pg_class r ON r.oid = c.confrelid
  JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace
 WHERE c.conrelid = ANY (%s::oid[]) AND c.contype = 'f'
   AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint p WHERE p.oid = c.conparentid AND p.conrelid = c.conrelid)
 ORDER BY c.conrelid, c.conname
"""


def describe_table(session: Session, table: TableName) -> TableDescription | None:
    """Describe one table as `describe_tables` does; return None where there is no relation of that name."""
    return describe_tables(session, [table]).get(table)


def describe_tables(session: Session, tables: Collection[TableName]) -> dict[TableName, TableDescription]:
    """Read tables from the catalogue, without those that do not exist, and without their foreign keys.

    User-defined types and functions come qualified with their schema.
    """
    names = [[it.schema for it in tables], [it.table for it in tables]]
    with session.transaction():
        relations = session.execute(_TABLES_QUERY, names).fetchall()
        if not relations:
            return {}
        object_ids = [object_id for _, _, object_id, *_ in relations]
        columns = _by_table(session.execute(_COLUMNS_QUERY, [object_ids]).fetchall())
    described = [
        TableDescription(
            TableName(schema, name),
            object_id,
            _RELATION_KINDS[kind],
            _PERSISTENCE[persistence],
            _REPLICA_IDENTITIES[identity],
            tuple(_column(*column) for column in columns[object_id]),
            deferrable,
        )
        for schema, name, object_id, kind, identity, persistence, deferrable in relations
    ]
    return {it.name: it for it in described}


def read_foreign_keys(session: Session, object_ids: Collection[int]) -> dict[int, tuple[ForeignKeyDescription, ...]]:
    """Return the foreign keys of tables, by oid."""
    rows = session.execute(_FOREIGN_KEYS_QUERY, [list(object_ids)]).fetchall()
    return {number: tuple(_foreign_key(*key) for key in keys) for number, keys in _by_table(rows).items()}


def _by_table(rows: Iterable[tuple[Any, ...]]) -> defaultdict[int, list[tuple[Any, ...]]]:
    """Group rows by their first column."""
    grouped: defaultdict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for object_id, *row in rows:
        grouped[object_id].append(tuple(row))
    return grouped


def _foreign_key(
    name: str, columns: list[str], schema: str, referenced: str, others: list[str], holds: bool
) -> ForeignKeyDescription:
    return ForeignKeyDescription(name, tuple(columns), TableName(schema, referenced), tuple(others), holds)


def _column(
    name: str,
    ordinal: int,
    type_oid: int,
    type_modifier: int,
    type_name: str,
    base_type_name: str,
    not_null: bool,
    generated: str,
    identity: str,
    expression: str | None,
    generated_from: list[str],
    key_ordinal: int | None,
    unique: bool,
    toastable: bool,
    equality: str | None,
) -> ColumnDescription:
    generation = _GENERATIONS[generated]
    return ColumnDescription(
        name=name,
        ordinal=ordinal,
        type_oid=type_oid,
        type_modifier=type_modifier,
        type_name=type_name,
        base_type_name=base_type_name,
        not_null=not_null,
        generation=generation,
        identity=_IDENTITIES[identity],
        generation_expression=expression if generation is not Generation.NONE else None,
        generated_from=tuple(generated_from),
        key_ordinal=key_ordinal,
        unique=unique,
        toastable=toastable,
        equality=equality or "=",
        ignores_case=base_type_name.rpartition(".")[2] == "citext",
    )
