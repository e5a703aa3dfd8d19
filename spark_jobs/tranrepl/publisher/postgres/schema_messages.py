"""Messages of the event triggers that setup makes: a published table as a command left it, as JSON in the log.

Setup itself describes tables in the same form, so that the two can be compared.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import itemgetter
from string import Template
from typing import Any

from tranrepl.model.names import TableName
from tranrepl.model.partition_rows import DefinedPartition, TableDivision
from tranrepl.model.position import FIRST_POSITION, Position
from tranrepl.model.table_definition import (
    DefinedColumn,
    DefinedType,
    Generation,
    TableDefinition,
    UniqueConstraint,
)
from tranrepl.postgres.session import Session
from tranrepl.publisher.postgres.partition_bounds import read_key_columns, read_limits
from tranrepl.publisher.postgres.told_types import ToldTypes, read_types
from tranrepl.publisher.postgres.user_types import TYPES_OF_COLUMN
from tranrepl.publisher.postgres.written_values import only_element, unquoted
from tranrepl.schema.messages import (
    AlteredPartitions,
    AlteredTable,
    Rewrite,
    SchemaMessage,
    SeenTransactions,
    Subject,
    UnknownAlteration,
    UnpublishedTable,
)

_VERSION = 1
_SUBJECTS = {
    "ALTER TABLE": Subject.TABLE,
    "CREATE INDEX": Subject.INDEX,
    "DROP INDEX": Subject.INDEX,
    "ALTER TYPE": Subject.TYPE,
    "ALTER DOMAIN": Subject.DOMAIN,
    "ALTER SCHEMA": Subject.SCHEMA,
}
_SEQUENCE = "nextval("
_EVENTS_BEFORE_THE_END = ("sql_drop", "table_rewrite")
_GENERATIONS = {"": Generation.NONE, "s": Generation.STORED, "v": Generation.VIRTUAL}
_IDENTITIES = {"d": "default", "f": "full", "i": "index", "n": "nothing"}
_DEFAULT_COLLATION = 100
_COLLATIONS = {19: 950, 1003: 950}
"""The collations of PostgreSQL's own types that have another one: `name`, and lists of it."""
_PERSISTENCE = {"p": "permanent", "u": "unlogged", "t": "temporary"}

# Rows of the catalogue have the lower half of a transaction's number: the newest one that is not after now.
_ALTERED_BY = """(
    SELECT max(CASE WHEN y.number > s.now THEN y.number - (1::bigint << 32) ELSE y.number END)
      FROM (SELECT pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::bigint) s (now), LATERAL (
        SELECT c.xmin UNION ALL SELECT a.xmin FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
        UNION ALL SELECT h.xmin FROM pg_catalog.pg_inherits h WHERE h.inhparent = c.oid) x (xmin), LATERAL (
        SELECT (s.now >> 32 << 32) + x.xmin::text::bigint) y (number))"""
_DEFINITIONS = Template("""
SELECT c.oid::bigint, jsonb_build_object(
    'schema', n.nspname, 'name', c.relname, 'identity', c.relreplident, 'persistence', c.relpersistence,
    'kind', c.relkind, 'xact', $altered_by, 'key', pg_catalog.pg_get_partkeydef(c.oid),
    'partitions', (WITH RECURSIVE below(oid, parent, attached) AS (
        SELECT i.inhrelid, i.inhparent, i.xmin::text FROM pg_catalog.pg_inherits i
         WHERE i.inhparent = c.oid AND c.relkind = 'p' AND NOT i.inhdetachpending
         UNION ALL SELECT i.inhrelid, i.inhparent, i.xmin::text FROM below b
          JOIN pg_catalog.pg_inherits i ON i.inhparent = b.oid AND NOT i.inhdetachpending)
      SELECT jsonb_agg(jsonb_build_object('oid', f.oid::bigint, 'schema', s.nspname, 'name', f.relname,
        'kind', f.relkind, 'parent', b.parent::bigint, 'attached', b.attached,
        'key', pg_catalog.pg_get_partkeydef(f.oid),
        'bound', pg_catalog.pg_get_expr(f.relpartbound, f.oid)) ORDER BY f.oid)
       FROM below b JOIN pg_catalog.pg_class f ON f.oid = b.oid
       JOIN pg_catalog.pg_namespace s ON s.oid = f.relnamespace),
    'columns', (SELECT jsonb_agg(jsonb_build_object('num', a.attnum, 'name', a.attname,
        'type', pg_catalog.format_type(a.atttypid, a.atttypmod), 'oid', a.atttypid::bigint, 'mod', a.atttypmod,
        'collation', nullif(a.attcollation, t.typcollation)::bigint, 'notnull', a.attnotnull,
        'generated', a.attgenerated, 'ident', a.attidentity,
        'types', $types,
        'default', pg_catalog.pg_get_expr(d.adbin, d.adrelid)) ORDER BY a.attnum)
       FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
       LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
      WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
    'unique', (SELECT jsonb_agg(jsonb_build_object('name', x.relname, 'primary', i.indisprimary,
        'identity', i.indisreplident, 'immediate', i.indimmediate, 'partial', i.indpred IS NOT NULL,
        'columns', i.indkey::int2[]) ORDER BY x.oid)
       FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
      WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid))
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE c.oid = ANY (%s::oid[])
""").substitute(types=TYPES_OF_COLUMN, altered_by=_ALTERED_BY)
_COLLATION = """
SELECT pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.collname)
  FROM pg_catalog.pg_collation c JOIN pg_catalog.pg_namespace n ON n.oid = c.collnamespace WHERE c.oid = %s
"""


def read_definitions(
    session: Session, object_ids: Collection[int], holds_from: Position
) -> Mapping[int, TableDefinition]:
    """Return the tables that exist as the catalogue defines them, by oid. `holds_from`: a position in the log before
    now. The session's search path must name no schema but pg_catalog."""
    rows = session.execute(_DEFINITIONS, [list(object_ids)]).fetchall()
    return {object_id: _definition(told, holds_from) for object_id, told in rows}


def read_collation(session: Session, oid: int) -> str | None:
    """Return the collation's name in SQL; None where there is none any more."""
    row = session.execute(_COLLATION, [oid]).fetchone()
    return None if row is None else str(row[0])


def read_schema_message(content: bytes, publication: str, committed: Position) -> Iterator[SchemaMessage]:
    """Yield what one message says. `committed`: where its transaction commits. Raises ValueError where the message
    is none of those that this version's triggers write."""
    told = read_content(content)
    if told["v"] != _VERSION:
        raise ValueError(f"version {told['v']}")
    tag = told["tag"]
    if "failed" in told:
        if publication in told["publications"]:
            yield UnknownAlteration(tag, told["failed"], told["message"])
        return
    if "unpublished" in told:
        for it in told["unpublished"]:
            if it["publication"] == publication:
                yield UnpublishedTable(tag, TableName(it["schema"], it["name"]), it["oid"])
        return
    seen = _seen(told["snapshot"]) if "snapshot" in told else None
    if "columns" not in told and seen is not None:
        division = TableDivision(key=None, key_columns=None, partitions=tuple(map(_partition, told["partitions"])))
        yield AlteredPartitions(told["oid"], tag, division, committed, seen, int(told["xact"]))
        return
    if told["schema"] is None:
        raise ValueError(f"table {told['name']} without a schema")
    columns = told["columns"] or []
    rewrite = told.get("rewrite")
    yield AlteredTable(
        told["oid"],
        tag,
        _definition(told, committed),
        _SUBJECTS.get(tag, Subject.OTHER),
        ends_command=told["event"] not in _EVENTS_BEFORE_THE_END,
        is_locked=told["defaults_told"],
        rewrite=Rewrite(rewrite["reason"]) if rewrite else Rewrite.NONE,
        existing_values={it["num"]: it["missing"] for it in columns if it.get("missing") is not None},
        unread_values=frozenset(it["num"] for it in columns if it.get("has_missing") and it.get("missing") is None),
        seen=seen,
        altered=frozenset(told["altered"] or ()) if "altered" in told else None,
        transaction=int(told["xact"]) if told.get("xact") else None,
    )


def read_content(content: bytes) -> dict[str, Any]:
    """Return what a message says: each partition by itself, and values read from texts."""
    told: dict[str, Any] = json.loads(content)
    told |= told.pop("read_before", {})
    if "definitions" not in told:
        return told
    definitions = {int(it["oid"]): it for it in told.pop("definitions") or ()}
    told |= {"oid": int(told["oid"]), "partitions": _with_definitions(_by_arrays(told), definitions)}
    return told | _read_values(told) if "columns" in told else told


def _read_values(told: dict[str, Any]) -> dict[str, Any]:
    kept: Mapping[str, str] = told.pop("kept_values") or {}
    types = read_types(told)
    own = [it["num"] for it in told["columns"] or () if it.get("age", 1) < 1]
    columns = [_told_column(it, kept, types) for it in _youngest(told["columns"] or ())]
    unique = [it | {"oid": int(it["oid"])} for it in told["unique"] or () if it["name"] is not None]
    return {
        "altered": own if "xmin" in told else told.get("altered"),
        "columns": sorted(columns, key=itemgetter("num")),
        "unique": sorted(unique, key=itemgetter("oid")),
    }


def _youngest(columns: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield each column once, of which a transaction at REPEATABLE READ may see more rows of the catalogue."""
    of_rows = ("dropped", "xmin", "age", "default_age")
    by_age = sorted(columns, key=lambda it: (it.get("age", 0), it.get("default_age") or 0), reverse=True)
    for it in {column["num"]: column for column in by_age}.values():
        if not it.get("dropped"):
            yield {key: value for key, value in it.items() if key not in of_rows}


def _by_arrays(told: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    attachments = (told[it] or () for it in ("children", "parents", "attached"))
    attached = {child: (parent, xid) for child, parent, xid in zip(*attachments, strict=True)}
    tables = (told[it] or () for it in ("oids", "kinds", "schemas", "names"))
    for oid, kind, schema, name in zip(*tables, strict=True):
        parent, xid = attached[oid]
        yield {
            "oid": int(oid),
            "parent": int(parent),
            "attached": xid,
            "kind": kind,
            "schema": unquoted(schema),
            "name": name,
            "key": None,
            "empty": None,
            "bound": None,
        }


def _with_definitions(
    partitions: Iterable[dict[str, Any]], definitions: Mapping[int, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the partitions by their oids, each once: at REPEATABLE READ one may be seen twice."""
    defined = {it["oid"]: {**it, **definitions.get(it["oid"], {}), "oid": it["oid"]} for it in partitions}
    return sorted(defined.values(), key=itemgetter("oid"))


def _told_column(told: Mapping[str, Any], kept: Mapping[str, str], types: ToldTypes) -> dict[str, Any]:
    """Return a column with its values read. `kept`: the values that partitions keep of a column that was added."""
    value = told["missing"] or kept.get(told["name"])
    column = dict(told, oid=int(told["oid"]), missing=only_element(value), has_missing=value is not None)
    number, collation = column["oid"], int(column.pop("attcollation"))
    usual = types.collation_of(number, _COLLATIONS.get(number, _DEFAULT_COLLATION))
    column["collation"] = collation if collation not in (0, usual) else None
    column["types"] = types.of_column(number, told["type"])
    return column


def _seen(snapshot: str) -> SeenTransactions:
    """Read a snapshot as PostgreSQL writes it: xmin:xmax:those in progress."""
    _, xmax, in_progress = snapshot.split(":")
    return SeenTransactions(int(xmax), frozenset(map(int, filter(None, in_progress.split(",")))))


def _definition(told: Mapping[str, Any], holds_from: Position = FIRST_POSITION) -> TableDefinition:
    return TableDefinition(
        name=TableName(told["schema"], told["name"]),
        replica_identity=_IDENTITIES[told["identity"]],
        persistence=_PERSISTENCE[told["persistence"]],
        columns=tuple(_column(it) for it in told["columns"] or ()),
        unique=tuple(_unique(it) for it in told["unique"] or ()),
        holds_from=holds_from,
        division=_division(told),
        altered_by=int(told["xact"]) if told.get("xact") else None,
    )


def _division(told: Mapping[str, Any]) -> TableDivision | None:
    """Return how a table is divided; None where it is not."""
    if told["kind"] != "p":
        return None
    return TableDivision(
        key=told["key"],
        key_columns=read_key_columns(told["key"]),
        partitions=tuple(_partition(it) for it in told["partitions"] or ()),
    )


def _partition(told: Mapping[str, Any]) -> DefinedPartition:
    bound = told["bound"]
    return DefinedPartition(
        object_id=told["oid"],
        table=TableName(told["schema"], told["name"]),
        parent=told["parent"],
        attached=told["attached"],
        bound=bound,
        limits=None if bound is None else read_limits(bound),
        holds_rows=told["kind"] != "p",
        key=told["key"],
        key_columns=read_key_columns(told["key"]),
        empty=told.get("empty") is True,
    )


def _column(told: Mapping[str, Any]) -> DefinedColumn:
    return DefinedColumn(
        ordinal=told["num"],
        name=told["name"],
        type_oid=told["oid"],
        type_modifier=told["mod"],
        type_name=told["type"],
        collation_oid=told["collation"],
        not_null=told["notnull"],
        generation=_GENERATIONS[told["generated"]],
        is_identity=told["ident"] != "",
        default=told["default"],
        counts=_SEQUENCE in (told["default"] or ""),
        types=None if told["types"] is None else tuple(_type(it) for it in told["types"]),
    )


def _type(told: Mapping[str, Any]) -> DefinedType:
    labels = None if told["labels"] is None else tuple(told["labels"])
    return DefinedType(oid=told["oid"], name=told["name"], labels=labels, form=told["form"])


def _unique(told: Mapping[str, Any]) -> UniqueConstraint:
    return UniqueConstraint(
        name=told["name"],
        primary=told["primary"],
        immediate=told["immediate"],
        partial=told["partial"],
        identity=told["identity"],
        columns=tuple(told["columns"]),
    )
