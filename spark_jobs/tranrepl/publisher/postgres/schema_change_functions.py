"""The functions at a PostgreSQL Publisher that announce schema changes: messages in its log.

One runs as event triggers, the other is called by whoever may not create event triggers. Neither calls a function of
ours, so that no right on our schema is needed where the event triggers fire, and neither takes a lock: expressions are
read of relations alone that their transaction has locked, since reading them locks.
"""

from __future__ import annotations

from string import Template

from tranrepl.publisher.postgres.user_types import ALTERED_TYPES, TYPES_OF_COLUMN

SCHEMA = "tranrepl"
ANNOUNCE_EVENT = "announce_schema_change"
ANNOUNCE_CALL = "announce"
IDENTIFY = "identify_partitions"

# The user's schemas shadow nothing. Planning costs more than the queries do.
_PLANNED_ONCE = """SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = 'force_generic_plan'
SET jit = 'off'"""
# Values are told as a session that reads the log shows them.
_VALUES_AS_IN_THE_LOG = f"""{_PLANNED_ONCE}
SET "DateStyle" = 'ISO, YMD'
SET "IntervalStyle" = 'postgres'
SET "TimeZone" = 'UTC'
SET extra_float_digits = '3'
SET bytea_output = 'hex'
SET lc_monetary = 'C'
SET array_nulls = 'on'
SET standard_conforming_strings = 'on'"""

_LOCKED = """
SELECT coalesce(array_agg(relation), '{}'),
       coalesce(array_agg(relation) FILTER (WHERE mode IN ('AccessExclusiveLock', 'ShareUpdateExclusiveLock')), '{}')
  INTO locked, altered
  FROM pg_locks
 WHERE pid = pg_backend_pid() AND locktype = 'relation' AND granted AND database <> 0;
"""


def _composed(text: str, **parts: str) -> str:
    return Template(text).substitute(parts)


_OURS = "starts_with(p.pubname::text, 'tranrepl_')"

# Whether a row of the catalogue is of its transaction's own making, where that sees no other's that began later: it has
# the lower half of the transaction's number.
_OWN = "(($row.xmin::text::bigint - s.began) & 4294967295) < 2147483648"


def _own(row: str) -> str:
    return Template(_OWN).substitute(row=row)


# Values of columns that were added are kept by the partitions, under their own numbers. Only a command that locks a
# partition may have added one there.
_MISSING = """
SELECT jsonb_object_agg(f.attname, f.attmissingval::text) INTO missing
  FROM pg_attribute f
 WHERE f.atthasmissing
   AND f.attrelid = ANY (published || ARRAY(SELECT unnest(leaves) INTERSECT SELECT unnest(altered)));
"""

# What bounds a partition, and whether it is empty, is news where it became one in this transaction. A partition of no
# size has no row; `xmin` tells one attachment from the next.
_PARTITIONS = """
WITH RECURSIVE below AS (
  SELECT inhrelid AS oid FROM pg_inherits WHERE inhparent = published AND NOT inhdetachpending
  UNION ALL SELECT i.inhrelid FROM below b JOIN pg_inherits i ON i.inhparent = b.oid AND NOT i.inhdetachpending)
SELECT coalesce(array_agg(oid), '{}') INTO leaves FROM below;
SELECT json_agg(json_build_object(
      'oid', f.oid::bigint, 'schema', s.nspname, 'name', f.relname, 'kind', f.relkind, 'identity', f.relreplident,
      'parent', h.inhparent::bigint, 'attached', h.xmin::text,
      'key', CASE WHEN f.relkind = 'p' AND f.oid = ANY (locked) THEN pg_get_partkeydef(f.oid) END,
      'empty', CASE WHEN n.is_new AND f.oid = ANY (locked) THEN pg_relation_size(f.oid) = 0 END,
      'bound', CASE WHEN n.is_new AND f.oid = ANY (locked) THEN pg_get_expr(f.relpartbound, f.oid) END) ORDER BY f.oid)
  INTO partitions
  FROM pg_inherits h JOIN pg_class f ON f.oid = h.inhrelid JOIN pg_namespace s ON s.oid = f.relnamespace,
       LATERAL (SELECT age(h.xmin) <= age(pg_current_xact_id()::xid)) n (is_new)
 WHERE h.inhrelid = ANY (leaves);
"""

# At REPEATABLE READ a row is seen twice that another transaction has altered meanwhile, and then this one: as it was,
# and as this transaction left it, which is the younger one.
_COLUMNS = """
SELECT json_agg(json_build_object(
      'num', a.attnum, 'name', a.attname, 'type', format_type(a.atttypid, a.atttypmod), 'oid', a.atttypid::bigint,
      'mod', a.atttypmod, 'collation', nullif(a.attcollation, t.typcollation)::bigint, 'notnull', a.attnotnull,
      'generated', a.attgenerated, 'ident', a.attidentity,
      'types', $types,
      'default', CASE WHEN published = ANY (locked) THEN pg_get_expr(d.adbin, d.adrelid) END,
      'has_missing', coalesce(missing ? a.attname::text, false),
      'missing', CASE t.typdelim WHEN ',' THEN ((missing ->> a.attname::text)::text[])[1] END)
    ORDER BY a.attnum, age(a.xmin) DESC)
  INTO columns
  FROM pg_attribute a
  JOIN pg_type t ON t.oid = a.atttypid
  LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
 WHERE a.attrelid = published AND a.attnum > 0 AND NOT a.attisdropped;
"""

# A table as it is now. A session plans each query when it first runs it, so what few tables need is in ones of its own.
# What is its transaction's own is told where that may not see what others have committed since it began; 0 stands for
# the table.
_DESCRIBE = _composed(
    """
leaves := '{}';
partitions := NULL;
IF is_partitioned THEN
  $partitions
END IF;
$missing
IF has_types THEN
  $columns_with_types
ELSE
  $columns
END IF;
SELECT json_build_object(
  'v', 1, 'event', source, 'tag', tag, 'xact', pg_current_xact_id()::text, 'snapshot', snapshot::text,
  'rewrite', rewrite, 'oid', c.oid::bigint, 'schema', n.nspname,
  'name', c.relname, 'kind', c.relkind, 'persistence', c.relpersistence, 'identity', c.relreplident,
  'rowsecurity', c.relrowsecurity, 'defaults_told', c.oid = ANY (locked),
  'key', CASE WHEN is_partitioned AND c.oid = ANY (locked) THEN pg_get_partkeydef(c.oid) END,
  'own', CASE WHEN s.began IS NOT NULL THEN to_json(ARRAY(
    SELECT o.attnum FROM pg_attribute o WHERE o.attrelid = c.oid AND o.attnum > 0 AND $own_column
    UNION ALL SELECT 0 WHERE $own_table)) END,
  'columns', columns,
  'unique', (
    SELECT json_agg(json_build_object(
      'name', x.relname, 'primary', i.indisprimary, 'identity', i.indisreplident, 'immediate', i.indimmediate,
      'partial', i.indpred IS NOT NULL, 'own', $own_index, 'columns', i.indkey::int2[]) ORDER BY x.oid)
      FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
     WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid),
  'partitions', partitions)::text
  INTO message
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, (
    SELECT CASE WHEN current_setting('transaction_isolation') IN ('repeatable read', 'serializable')
             AND pg_current_xact_id()::text::bigint >= x.xmax THEN x.xmax END
      FROM (SELECT pg_snapshot_xmax(snapshot)::text::bigint) x (xmax)) s (began)
 WHERE c.oid = published
 ORDER BY age(c.xmin) LIMIT 1;
PERFORM pg_logical_emit_message(true, 'tranrepl.schema', message);
told := told + 1;
""",
    own_column=_own("o"),
    own_table=_own("c"),
    own_index=_own("i"),
    columns=_composed(_COLUMNS, types="'[]'::json"),
    columns_with_types=_composed(_COLUMNS, types=TYPES_OF_COLUMN),
    missing=_MISSING,
    partitions=_PARTITIONS,
)

_PUBLISHED = _composed(
    """
SELECT c.oid, c.relkind = 'p', EXISTS (
         SELECT FROM pg_attribute a
          WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 16384)
  FROM pg_class c
 WHERE c.oid = ANY (touched || ARRAY(SELECT pg_partition_ancestors(it) FROM unnest(touched) it))
   AND EXISTS (
         SELECT FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
          WHERE r.prrelid = c.oid AND $ours)
""",
    ours=_OURS,
)

# Of a dropped partition or index no event names the table, but its transaction has locked it; unless the index was
# dropped concurrently: then it is told where it was the replica identity.
_DROPPED = _composed(
    """
SELECT jsonb_agg(jsonb_build_object(
         'publication', r.address_args[1], 'schema', r.address_names[1], 'name', r.address_names[2],
         'oid', t.objid::bigint))
  INTO unpublished
  FROM pg_event_trigger_dropped_objects() r
  LEFT JOIN pg_event_trigger_dropped_objects() t
    ON t.object_type = 'table' AND NOT t.is_temporary AND t.address_names = r.address_names
 WHERE r.object_type = 'publication relation' AND starts_with(r.address_args[1], 'tranrepl_');
SELECT array_agg(CASE d.object_type WHEN 'table column' THEN d.objid ELSE c.oid END),
       coalesce(bool_or(d.object_type = 'table'), false), coalesce(bool_or(d.object_type = 'index'), false)
  INTO touched, partition_dropped, index_dropped
  FROM pg_event_trigger_dropped_objects() d
  LEFT JOIN pg_namespace n ON d.object_type IN ('default value', 'table constraint') AND n.nspname = d.address_names[1]
  LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = d.address_names[2]
 WHERE NOT d.is_temporary;
IF partition_dropped OR index_dropped THEN
  $locked
  touched := touched || ARRAY(SELECT oid FROM pg_class WHERE oid = ANY (altered) AND (index_dropped OR relkind = 'p'));
END IF;
IF index_dropped THEN
  touched := touched || ARRAY(
    SELECT r.prrelid FROM pg_publication_rel r JOIN pg_class c ON c.oid = r.prrelid
     WHERE c.relreplident = 'i'
       AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisreplident));
END IF;
""",
    locked=_LOCKED,
)

# Most commands name tables and indexes alone. Of a type, and of types that are made of it: the published columns that
# have it.
_COMMANDED = _composed(
    """
SELECT array_agg(d.objid) FILTER (WHERE d.classid = 'pg_class'::regclass), bool_or(d.object_type = 'index'),
       bool_or(d.classid IN ('pg_constraint'::regclass, 'pg_publication_rel'::regclass))
  INTO touched, has_indexes, has_others
  FROM pg_event_trigger_ddl_commands() d;
IF has_indexes THEN
  touched := touched || ARRAY(SELECT i.indrelid FROM pg_index i WHERE i.indexrelid = ANY (touched));
END IF;
IF has_others THEN
  touched := touched || ARRAY(
    SELECT k.conrelid FROM pg_event_trigger_ddl_commands() d JOIN pg_constraint k ON k.oid = d.objid
     WHERE d.classid = 'pg_constraint'::regclass
    UNION ALL SELECT r.prrelid FROM pg_event_trigger_ddl_commands() d JOIN pg_publication_rel r ON r.oid = d.objid
     WHERE d.classid = 'pg_publication_rel'::regclass);
END IF;
IF tag = 'ALTER SCHEMA' THEN
  touched := touched || ARRAY(
    SELECT c.oid FROM pg_event_trigger_ddl_commands() d JOIN pg_class c ON c.relnamespace = d.objid);
END IF;
IF tag IN ('ALTER TYPE', 'ALTER DOMAIN') THEN
  touched := touched || ARRAY(
    SELECT x.oid FROM pg_event_trigger_ddl_commands() d, LATERAL (
      SELECT c.oid FROM pg_class c
       WHERE c.reloftype <> 0 AND c.reloftype IN (d.objid, (SELECT k.reltype FROM pg_class k WHERE k.oid = d.objid))
      UNION ALL SELECT a.attrelid FROM pg_attribute a WHERE a.atttypid IN ($altered)) x (oid));
END IF;
""",
    altered=ALTERED_TYPES,
)

# The pad ends with no row: a message that is written in a subtransaction is decoded behind a row that follows it
# directly, and this one stands between them.
_PAD = "PERFORM pg_logical_emit_message(true, 'tranrepl.pad', '');"

_DECLARED = """
  published oid;
  is_partitioned boolean;
  has_types boolean;
  leaves oid[];
  locked oid[];
  altered oid[];
  snapshot pg_snapshot;
  missing jsonb;
  partitions json;
  columns json;
  rewrite jsonb;
  message text;
  told int := 0;"""

_EVENT_BODY = _composed(
    """
DECLARE
  source text := tg_event;
  tag text := tg_tag;
  touched oid[];
  unpublished jsonb;
  has_indexes boolean;
  has_others boolean;
  partition_dropped boolean;
  index_dropped boolean;$declared
BEGIN
  BEGIN
    IF tg_event = 'table_rewrite' THEN
      touched := ARRAY[pg_event_trigger_table_rewrite_oid()];
      rewrite := jsonb_build_object(
        'oid', touched[1]::bigint, 'reason', pg_event_trigger_table_rewrite_reason());
    ELSIF tg_event = 'sql_drop' THEN
      $dropped
    ELSE
      $commanded
    END IF;
    IF unpublished IS NOT NULL THEN
      PERFORM pg_logical_emit_message(true, 'tranrepl.schema', jsonb_build_object(
        'v', 1, 'event', source, 'tag', tag, 'unpublished', unpublished)::text);
      told := told + 1;
    END IF;
    FOR published, is_partitioned, has_types IN $published LOOP
      IF locked IS NULL THEN
        $locked
      END IF;
      snapshot := pg_current_snapshot();
      $describe
    END LOOP;
  EXCEPTION WHEN OTHERS THEN
    told := 1;
    PERFORM pg_logical_emit_message(true, 'tranrepl.schema', jsonb_build_object(
      'v', 1, 'event', source, 'tag', tag, 'failed', sqlstate, 'message', sqlerrm)::text);
  END;
  IF told > 0 THEN
    $pad
  END IF;
EXCEPTION WHEN OTHERS THEN
  RAISE WARNING 'tranrepl: a schema change is not announced: %', sqlerrm;
END
""",
    commanded=_COMMANDED,
    declared=_DECLARED,
    describe=_DESCRIBE,
    dropped=_DROPPED,
    locked=_LOCKED,
    pad=_PAD,
    published=_PUBLISHED,
)

# A rewrite makes a relation for the new rows, and drops it: its lock is held, but it is in no catalogue any more.
_CALL_BODY = _composed(
    """
DECLARE
  source text := 'call';
  tag text := 'ALTER TABLE';
  touched oid[] := tables::oid[];$declared
BEGIN
  $locked
  FOR published, is_partitioned, has_types IN $published LOOP
    IF EXISTS (SELECT FROM unnest(altered) it WHERE NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = it)) THEN
      rewrite := jsonb_build_object('oid', published::bigint, 'reason', 6);
    END IF;
    snapshot := pg_current_snapshot();
    $describe
  END LOOP;
  IF told > 0 THEN
    $pad
  END IF;
  RETURN told;
END
""",
    declared=_DECLARED,
    describe=_DESCRIBE,
    locked=_LOCKED,
    pad=_PAD,
    published=_PUBLISHED,
)

# A new partition has the default identity, whatever its root has. The command has locked it, and its owner ran it.
_IDENTIFY_BODY = _composed(
    """
DECLARE
  roots oid[];
  leaf oid;
BEGIN
  SELECT array_agg(root.oid) INTO roots
    FROM pg_class root
   WHERE root.relreplident = 'f'
     AND root.oid IN (
       SELECT pg_partition_ancestors(d.objid) FROM pg_event_trigger_ddl_commands() d
        WHERE d.classid = 'pg_class'::regclass);
  IF roots IS NULL THEN
    RETURN;
  END IF;
  FOR leaf IN
    SELECT c.oid
      FROM pg_class c
     WHERE c.oid IN (
         SELECT d.objid FROM pg_event_trigger_ddl_commands() d WHERE d.classid = 'pg_class'::regclass
         UNION ALL SELECT i.inhrelid FROM pg_event_trigger_ddl_commands() d JOIN pg_inherits i ON i.inhparent = d.objid
          WHERE d.classid = 'pg_class'::regclass)
       AND c.relispartition AND c.relkind = 'r' AND c.relreplident = 'd'
       AND EXISTS (
         SELECT FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
          WHERE $ours AND r.prrelid = ANY (roots) AND r.prrelid IN (SELECT pg_partition_ancestors(c.oid)))
       AND c.oid IN (
         SELECT l.relation FROM pg_locks l
          WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND l.mode = 'AccessExclusiveLock' AND l.granted)
  LOOP
    EXECUTE (SELECT format('ALTER TABLE ONLY %I.%I REPLICA IDENTITY FULL', n.nspname, c.relname)
               FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = leaf);
  END LOOP;
EXCEPTION WHEN OTHERS THEN
  RAISE WARNING 'tranrepl: a partition keeps its replica identity: %', sqlerrm;
END
""",
    ours=_OURS,
)


def _function(name: str, arguments: str, returns: str, body: str, settings: str = _VALUES_AS_IN_THE_LOG) -> str:
    lines = "\n".join(line for line in body.strip().splitlines() if line.strip())
    return (
        f"CREATE OR REPLACE FUNCTION {SCHEMA}.{name}({arguments}) RETURNS {returns} LANGUAGE plpgsql\n"
        f"{settings}\nAS $function$\n{lines}\n$function$"
    )


FUNCTIONS = {
    f"{SCHEMA}.{ANNOUNCE_EVENT}()": _function(ANNOUNCE_EVENT, "", "event_trigger", _EVENT_BODY),
    f"{SCHEMA}.{ANNOUNCE_CALL}(regclass[])": _function(
        ANNOUNCE_CALL, "VARIADIC tables regclass[]", "integer", _CALL_BODY
    ),
    f"{SCHEMA}.{IDENTIFY}()": _function(IDENTIFY, "", "event_trigger", _IDENTIFY_BODY, _PLANNED_ONCE),
}
"""The statements that create the functions, by the functions' signatures."""
