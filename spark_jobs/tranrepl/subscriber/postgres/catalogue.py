"""PostgreSQL's catalogue of a Subscriber's tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from psycopg import sql
from sqlalchemy.engine.interfaces import ReflectedColumn

from tranrepl.model.catalogue import ColumnDescription, Identity, TableDescription
from tranrepl.model.names import TableName
from tranrepl.model.table_definition import Generation
from tranrepl.postgres.catalogue import describe_tables, qualified
from tranrepl.postgres.session import Session
from tranrepl.subscriber.base.catalogue import (
    Destination,
    Place,
    PrimaryKey,
    ReferringColumns,
    Refusal,
    UniqueColumns,
)
from tranrepl.subscriber.postgres.column_types import PublishersType
from tranrepl.subscriber.postgres.procedures import SCHEMA

_TABLES = ("table", "partitioned table")
_UNIQUE_KEYS = """
SELECT n.nspname::text, c.relname::text,
       ARRAY(SELECT CASE WHEN i.indpred IS NULL AND NOT i.indisexclusion THEN a.attname::text END
               FROM unnest((i.indkey::int2[])[0:i.indnkeyatts - 1]) WITH ORDINALITY k(attnum, place)
               LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum AND k.attnum > 0
              ORDER BY k.place)
  FROM unnest(%s::text[], %s::text[]) asked(schema, name)
  JOIN pg_catalog.pg_namespace n ON n.nspname = asked.schema
  JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = asked.name
  JOIN pg_catalog.pg_index i ON i.indrelid = c.oid AND (i.indisunique OR i.indisexclusion)
 ORDER BY i.indexrelid
"""
_FOREIGN_KEYS = """
SELECT n.nspname::text, t.relname::text,
       ARRAY(SELECT a.attname::text FROM unnest(c.conkey) WITH ORDINALITY k(attnum, place)
               JOIN pg_catalog.pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.attnum ORDER BY k.place),
       o.nspname::text, r.relname::text,
       ARRAY(SELECT a.attname::text FROM unnest(c.confkey) WITH ORDINALITY k(attnum, place)
               JOIN pg_catalog.pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = k.attnum ORDER BY k.place)
  FROM unnest(%s::text[], %s::text[]) asked(schema, name)
  JOIN pg_catalog.pg_namespace n ON n.nspname = asked.schema
  JOIN pg_catalog.pg_class t ON t.relnamespace = n.oid AND t.relname = asked.name
  JOIN pg_catalog.pg_constraint c ON c.conrelid = t.oid AND c.contype = 'f'
  JOIN pg_catalog.pg_class r ON r.oid = c.confrelid
  JOIN pg_catalog.pg_namespace o ON o.oid = r.relnamespace
 ORDER BY c.oid
"""
_PRIMARY_KEY = """
SELECT c.conname::text, ARRAY(SELECT a.attname::text FROM unnest(c.conkey) WITH ORDINALITY k(attnum, place)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.attnum ORDER BY k.place)
  FROM pg_catalog.pg_constraint c WHERE c.contype = 'p' AND c.conrelid = pg_catalog.to_regclass(%s)
"""


class PostgresCatalogue:
    def __init__(self, session: Session) -> None:
        self._session = session

    def destinations(self, places: Sequence[Place]) -> dict[Place, Destination]:
        asked = {TableName(schema or SCHEMA, name): (schema, name) for schema, name in places}
        return {asked[name]: _destination(it) for name, it in describe_tables(self._session, asked).items()}

    def unique_keys(self, places: Sequence[Place]) -> dict[Place, list[UniqueColumns]]:
        found: dict[Place, list[UniqueColumns]] = {}
        for schema, name, columns in self._session.execute(_UNIQUE_KEYS, _asked(places)):
            found.setdefault((schema, name), []).append(tuple(columns))
        return found

    def foreign_keys(self, places: Sequence[Place]) -> dict[Place, list[ReferringColumns]]:
        found: dict[Place, list[ReferringColumns]] = {}
        for schema, name, columns, *referenced, others in self._session.execute(_FOREIGN_KEYS, _asked(places)):
            key = ReferringColumns(tuple(columns), (referenced[0], referenced[1]), tuple(others))
            found.setdefault((schema, name), []).append(key)
        return found

    def primary_key(self, place: Place) -> PrimaryKey | None:
        table = qualified(TableName(place[0] or SCHEMA, place[1])).as_string(self._session)
        row = self._session.execute(_PRIMARY_KEY, [table]).fetchone()
        return None if row is None else PrimaryKey(row[0], tuple(row[1]))


def _asked(places: Sequence[Place]) -> list[list[str]]:
    return [[schema or SCHEMA for schema, _ in places], [name for _, name in places]]


def _destination(table: TableDescription) -> Destination:
    refusal = None
    if table.kind not in _TABLES:
        name = sql.Identifier(f"{table.name.table}_before").as_string(None)
        moved = f"ALTER TABLE {qualified(table.name).as_string(None)} RENAME TO {name}"
        refusal = Refusal(f"is a {table.kind}", f"{moved}; `tranrepl setup FILE` then creates the table")
    key = frozenset(it.name for it in table.key)
    return Destination({it.name: _column(it) for it in table.columns}, (key,) if key else (), refusal=refusal)


def _column(column: ColumnDescription) -> ReflectedColumn:
    found: dict[str, Any] = {
        "name": column.name,
        "type": PublishersType(column.type_name, base_name=column.base_type_name),
        "nullable": not column.not_null,
        "default": None,
    }
    if column.identity is Identity.ALWAYS:
        found["identity"] = {"always": True}
    if column.generation is not Generation.NONE:
        found["computed"] = {"sqltext": column.generation_expression or ""}
    return cast("ReflectedColumn", found)
