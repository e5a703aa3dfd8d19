"""Messages of the event triggers that setup makes: a published table as a command left it, as JSON in the log.

Setup itself describes tables in the same form, so that the two can be compared.
"""

from __future__ import annotations

import json
import re
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
from tranrepl.publisher.postgres.captured_types import CapturedTypes, read_types
from tranrepl.publisher.postgres.partition_bounds import read_key_columns, read_limits, unquoted
from tranrepl.publisher.postgres.user_types import TYPES_OF_COLUMN
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
        'columns', (i.indkey::int2[])[0:i.indnkeyatts - 1]) ORDER BY x.oid)
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
    return {object_id: _definition(captured, holds_from) for object_id, captured in rows}


def read_collation(session: Session, oid: int) -> str | None:
    """Return the collation's name in SQL; None where there is none any more."""
    row = session.execute(_COLLATION, [oid]).fetchone()
    return None if row is None else str(row[0])


def read_schema_message(content: bytes, publication: str, committed: Position) -> Iterator[SchemaMessage]:
    """Yield what one message says. `committed`: where its transaction commits. Raises ValueError where the message
    is none of those that this version's triggers write."""
    captured = read_content(content)
    if captured["v"] != _VERSION:
        raise ValueError(f"version {captured['v']}")
    tag = captured["tag"]
    if "failed" in captured:
        if publication in captured["publications"]:
            yield UnknownAlteration(tag, captured["failed"], captured["message"])
        return
    if "unpublished" in captured:
        for it in captured["unpublished"]:
            if it["publication"] == publication:
                yield UnpublishedTable(tag, TableName(it["schema"], it["name"]), it["oid"])
        return
    seen = _seen(captured["snapshot"]) if "snapshot" in captured else None
    if "columns" not in captured and seen is not None:
        division = TableDivision(key=None, key_columns=None, partitions=tuple(map(_partition, captured["partitions"])))
        yield AlteredPartitions(captured["oid"], tag, division, committed, seen, int(captured["xact"]))
        return
    if captured["schema"] is None:
        raise ValueError(f"table {captured['name']} without a schema")
    columns = captured["columns"] or []
    rewrite = captured.get("rewrite")
    yield AlteredTable(
        captured["oid"],
        tag,
        _definition(captured, committed),
        _SUBJECTS.get(tag, Subject.OTHER),
        ends_command=captured["event"] not in _EVENTS_BEFORE_THE_END,
        is_locked=captured["defaults_told"],
        rewrite=Rewrite(rewrite["reason"]) if rewrite else Rewrite.NONE,
        existing_values={it["num"]: it["missing"] for it in columns if it.get("missing") is not None},
        unread_values=frozenset(it["num"] for it in columns if it.get("has_missing") and it.get("missing") is None),
        seen=seen,
        altered=frozenset(captured["altered"] or ()) if "altered" in captured else None,
        transaction=int(captured["xact"]) if captured.get("xact") else None,
    )


def read_content(content: bytes) -> dict[str, Any]:
    """Return what a message says: each partition by itself, and values read from texts."""
    captured: dict[str, Any] = json.loads(content)
    captured |= captured.pop("read_before", {})
    if "definitions" not in captured:
        return captured
    definitions = {int(it["oid"]): it for it in captured.pop("definitions") or ()}
    captured |= {"oid": int(captured["oid"]), "partitions": _with_definitions(_by_arrays(captured), definitions)}
    return captured | _read_values(captured) if "columns" in captured else captured


def _read_values(captured: dict[str, Any]) -> dict[str, Any]:
    kept: Mapping[str, str] = captured.pop("kept_values") or {}
    types = read_types(captured)
    own = [it["num"] for it in captured["columns"] or () if it.get("age", 1) < 1]
    columns = [_captured_column(it, kept, types) for it in _youngest(captured["columns"] or ())]
    unique = [it | {"oid": int(it["oid"])} for it in captured["unique"] or () if it["name"] is not None]
    return {
        "altered": own if "xmin" in captured else captured.get("altered"),
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


def _by_arrays(captured: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    attachments = (captured[it] or () for it in ("children", "parents", "attached"))
    attached = {child: (parent, xid) for child, parent, xid in zip(*attachments, strict=True)}
    tables = (captured[it] or () for it in ("oids", "kinds", "schemas", "names"))
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


def _captured_column(captured: Mapping[str, Any], kept: Mapping[str, str], types: CapturedTypes) -> dict[str, Any]:
    """Return a column with its values read. `kept`: the values that partitions keep of a column that was added."""
    value = captured["missing"] or kept.get(captured["name"])
    column = dict(captured, oid=int(captured["oid"]), missing=_only_element(value), has_missing=value is not None)
    number, collation = column["oid"], int(column.pop("attcollation"))
    usual = types.collation_of(number, _COLLATIONS.get(number, _DEFAULT_COLLATION))
    column["collation"] = collation if collation not in (0, usual) else None
    column["types"] = types.of_column(number, captured["type"])
    return column


def _seen(snapshot: str) -> SeenTransactions:
    """Read a snapshot as PostgreSQL writes it: xmin:xmax:those in progress."""
    _, xmax, in_progress = snapshot.split(":")
    return SeenTransactions(int(xmax), frozenset(map(int, filter(None, in_progress.split(",")))))


def _definition(captured: Mapping[str, Any], holds_from: Position = FIRST_POSITION) -> TableDefinition:
    return TableDefinition(
        name=TableName(captured["schema"], captured["name"]),
        replica_identity=_IDENTITIES[captured["identity"]],
        persistence=_PERSISTENCE[captured["persistence"]],
        columns=tuple(_column(it) for it in captured["columns"] or ()),
        unique=tuple(_unique(it) for it in captured["unique"] or ()),
        holds_from=holds_from,
        division=_division(captured),
        altered_by=int(captured["xact"]) if captured.get("xact") else None,
    )


def _division(captured: Mapping[str, Any]) -> TableDivision | None:
    """Return how a table is divided; None where it is not."""
    if captured["kind"] != "p":
        return None
    return TableDivision(
        key=captured["key"],
        key_columns=read_key_columns(captured["key"]),
        partitions=tuple(_partition(it) for it in captured["partitions"] or ()),
    )


def _partition(captured: Mapping[str, Any]) -> DefinedPartition:
    bound = captured["bound"]
    return DefinedPartition(
        object_id=captured["oid"],
        table=TableName(captured["schema"], captured["name"]),
        parent=captured["parent"],
        attached=captured["attached"],
        bound=bound,
        limits=None if bound is None else read_limits(bound),
        holds_rows=captured["kind"] != "p",
        key=captured["key"],
        key_columns=read_key_columns(captured["key"]),
        empty=captured.get("empty") is True,
    )


def _column(captured: Mapping[str, Any]) -> DefinedColumn:
    return DefinedColumn(
        ordinal=captured["num"],
        name=captured["name"],
        type_oid=captured["oid"],
        type_modifier=captured["mod"],
        type_name=captured["type"],
        collation_oid=captured["collation"],
        not_null=captured["notnull"],
        generation=_GENERATIONS[captured["generated"]],
        is_identity=captured["ident"] != "",
        default=captured["default"],
        counts=_SEQUENCE in (captured["default"] or ""),
        types=None if captured["types"] is None else tuple(_type(it) for it in captured["types"]),
    )


def _type(captured: Mapping[str, Any]) -> DefinedType:
    labels = None if captured["labels"] is None else tuple(captured["labels"])
    return DefinedType(oid=captured["oid"], name=captured["name"], labels=labels, form=captured["form"])


def _unique(captured: Mapping[str, Any]) -> UniqueConstraint:
    return UniqueConstraint(
        name=captured["name"],
        primary=captured["primary"],
        immediate=captured["immediate"],
        partial=captured["partial"],
        identity=captured["identity"],
        columns=tuple(captured["columns"]),
    )


def _only_element(array: str | None) -> str | None:
    """Return the text of the only element of an array, which is not NULL; None of no array."""
    if array is None:
        return None
    element = array[1:-1]
    return re.sub(r"\\(.)", r"\1", element[1:-1], flags=re.DOTALL) if element.startswith('"') else element
